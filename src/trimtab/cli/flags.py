"""Flags: what a command takes, read strictly, with a sentence for whatever is wrong.

A command's flags are data. ``scan`` reads an argument list against them and finds the faults of
its form: unknown flags, values that are missing or too many. tyro then makes the values and the
help page, from dataclasses that are built of the same data.
"""

import contextlib
import dataclasses
import io
import re
import shutil
import sys
import textwrap
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Literal, Union, final, get_args, get_origin

from trimtab.errors import SettingError, did_you_mean
from trimtab.settings import (
    Bounds,
    describe,
    expectation,
    field_types,
    from_text,
    setting_names,
    valid,
)

UNBOUNDED = Bounds()
_EMPTY = "none"  # how a list without items is written
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NUMBER = re.compile(r"-(\d|\.\d|inf|nan)", re.IGNORECASE)


@dataclasses.dataclass(frozen=True)
class Flag:
    """One flag, or one positional argument, of a command."""

    name: str  # as in Python: the flag of learning_rate is --learning-rate
    kind: Any  # a type that ``settings.from_text`` knows
    default: Any
    help: str
    bounds: Bounds = UNBOUNDED
    metavar: str = ""
    positional: bool = False
    required: bool = True  # of a positional argument
    pair: bool = True  # of a switch: whether there is a --no- form
    # Of a flag that may be given several times, each time with one value or with more.
    read: Callable[[str], Any] | None = None
    spelled: str = ""  # where the flag's name is no name in Python

    @property
    def spelling(self) -> str:
        if self.spelled:
            return self.spelled
        return self.name.upper() if self.positional else "--" + self.name.replace("_", "-")

    @property
    def switch(self) -> bool:
        return self.kind is bool

    @property
    def off(self) -> str:
        """The spelling that turns a switch off; none where it has no such form."""
        return "--no-" + self.spelling.removeprefix("--") if self.switch and self.pair else ""

    @property
    def several(self) -> bool:
        return self.read is not None or get_origin(self.kind) is tuple

    @property
    def expected(self) -> str:
        return self.metavar if self.read else expectation(self.kind, self.bounds)

    def value(self, texts: Sequence[str]) -> Any:
        """The value that those arguments stand for."""
        given = " ".join([self.spelling, *texts])
        if self.read is not None:
            return tuple(self.read(text) for text in texts)
        kind = get_args(self.kind)[0] if self.several else self.kind
        if self.several:  # 64,64 is as good as 64 64
            texts = [part for text in texts for part in text.split(",") if part]
            texts = [] if texts == [_EMPTY] else texts
        read = [_or_text(text, kind) for text in texts]
        return valid(given, tuple(read) if self.several else read[0], self.kind, self.bounds)


def flags_of(settings: Any) -> list[Flag]:
    """A flag for each setting of a dataclass; the values of the instance are the defaults."""
    kinds = field_types(type(settings))
    fields = {field.name: field for field in dataclasses.fields(settings)}
    return [
        Flag(
            name,
            kinds[name],
            getattr(settings, name),
            describe(fields[name]),
            fields[name].metadata["bounds"],
        )
        for name in setting_names(settings)
    ]


@dataclasses.dataclass(frozen=True)
class Command:
    """What ``trimtab NAME`` takes: flags of its own, and groups of them with a heading each."""

    name: str
    description: str
    own: Sequence[Flag]
    groups: Mapping[str, Sequence[Flag]] = dataclasses.field(default_factory=dict)

    @property
    def program(self) -> str:
        return f"trimtab {self.name}"

    @property
    def flags(self) -> list[Flag]:
        return [*self.own, *(flag for group in self.groups.values() for flag in group)]


Given = dict[str, list[str]]  # the arguments of each flag that was given; "on" or "off" of a switch


def wants_help(arguments: Sequence[str]) -> bool:
    return "--help" in arguments or "-h" in arguments


def scan(command: Command, arguments: Sequence[str]) -> Given:
    """The arguments of each flag. Of a flag that is given twice, the last time counts."""
    named = [flag for flag in command.flags if not flag.positional]
    by_spelling = {flag.spelling: flag for flag in named}
    by_spelling |= {flag.off: flag for flag in named if flag.off}
    missing = deque(flag for flag in command.flags if flag.positional)
    given: Given = {}
    rest = deque(arguments)
    while rest:
        token = rest.popleft()
        if not looks_like_flag(token):
            if not missing:
                raise SettingError(_unexpected(command, token, given))
            given[missing.popleft().name] = [token]
            continue
        spelling, equals, value = token.partition("=")
        spelling = spelling.replace("_", "-")
        flag = by_spelling.get(spelling)
        if flag is None:
            raise SettingError(
                f"There is no flag {spelling}.{_meant(spelling, by_spelling)} "
                f"`{command.program} --help` lists them all."
            )
        if flag.switch:
            if equals:
                raise SettingError(_takes_no_value(flag))
            given[flag.name] = ["off" if spelling == flag.off else "on"]
            continue
        texts = [value] if equals else _take(flag, rest, bool(missing))
        if not texts:
            raise SettingError(
                f"{spelling} needs a value: expected {flag.expected} "
                f"({flag.help.partition(' [')[0]})."
            )
        given[flag.name] = (given.get(flag.name, []) if flag.read else []) + texts
    for flag in missing:
        if flag.required:
            raise SettingError(f"{flag.spelling} is missing: {flag.help}.")
    return given


def _take(flag: Flag, rest: deque[str], open_positionals: bool) -> list[str]:
    """The flag's arguments, taken off ``rest``."""
    texts: list[str] = []
    while rest and not looks_like_flag(rest[0]) and (flag.several or not texts):
        # A list of values ends where a positional argument that is still missing must be meant.
        if texts and open_positionals and not _fits(flag, rest[0]):
            break
        texts.append(rest.popleft())
    return texts


def _fits(flag: Flag, text: str) -> bool:
    try:
        flag.value([text])
    except SettingError:
        return False
    return True


def looks_like_flag(token: str) -> bool:
    return len(token) > 1 and token.startswith("-") and not _NUMBER.match(token)


def _meant(spelling: str, known: Mapping[str, Flag]) -> str:
    return did_you_mean(spelling, known).replace("'", "")


def _unexpected(command: Command, token: str, given: Given) -> str:
    latest = list(given)[-1] if given else ""
    flag = next((flag for flag in command.flags if flag.name == latest), None)
    if flag is not None and flag.switch:
        return _takes_no_value(flag)
    taken = [f"{f.spelling} is {given[f.name][0]!r} already" for f in command.flags if f.positional]
    return f"{token!r} was not expected: {', '.join(taken) or 'only flags are'}."


def _takes_no_value(flag: Flag) -> str:
    return f"{flag.spelling} takes no value: give {flag.spelling}{flag.off and f' or {flag.off}'}."


def _or_text(text: str, kind: Any) -> Any:
    """The value, or the text itself where it is none: ``valid`` refuses that with a sentence."""
    try:
        return from_text(text, kind)
    except ValueError:
        return text


# Values and help, by tyro


def parse(command: Command, arguments: Sequence[str]) -> dict[str, Any]:
    """The value of every flag: given, or its default. Prints the help and exits where asked to."""
    if wants_help(arguments):
        _help(command)
    given = scan(command, arguments)
    values = {flag.name: flag.default for flag in command.flags}
    if all(flag.positional for flag in command.flags if flag.name in given):
        # The most usual case, ``trimtab train ENV``, need not wait for tyro to load.
        return values | {name: texts[0] for name, texts in given.items()}
    parsed = _tyro(command, canonical(command, given))
    owners = {flag.name: parsed for flag in command.own}
    owners |= {
        flag.name: getattr(parsed, heading)
        for heading, group in command.groups.items()
        for flag in group
    }
    return {name: getattr(owner, name) for name, owner in owners.items()}


@final
class _Page(io.StringIO):
    """What tyro prints, which asks its output how to: with colours and lines of boxes, or not."""

    def __init__(self, shown: Any):
        super().__init__()
        self._shown = shown

    @property
    def encoding(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return getattr(self._shown, "encoding", None)

    def isatty(self) -> bool:
        return self._shown.isatty()


def _help(command: Command) -> None:
    """Print the help and exit. tyro wraps what is in boxes, but neither usage nor description."""
    page = _Page(sys.stdout)
    try:
        with contextlib.redirect_stdout(page):
            _tyro(command, ["--help"])
    finally:
        width = shutil.get_terminal_size().columns
        for line in page.getvalue().splitlines():
            plain = _COLOUR.sub("", line)
            wide = len(plain) > width and plain[:1].isalpha()
            indent = " " * 7 if plain.startswith("usage:") else ""
            print(textwrap.fill(plain, width, subsequent_indent=indent) if wide else line)


def canonical(command: Command, given: Given) -> list[str]:
    """The same arguments in the one form that leaves nothing to interpret."""
    positionals: list[str] = []
    rest: list[str] = []
    for flag in command.flags:
        texts = given.get(flag.name)
        if texts is None:
            continue
        if flag.positional:
            positionals += texts
        elif flag.switch:
            rest.append(flag.spelling if texts == ["on"] else flag.off)
        elif flag.several:
            rest += [flag.spelling, *texts]
        else:
            rest.append(f"{flag.spelling}={texts[0]}")
    return positionals + rest


def _tyro(command: Command, arguments: list[str]) -> Any:
    import tyro

    fields: list[Any] = [_field(flag) for flag in command.own]
    for heading, group in command.groups.items():
        kind = dataclasses.make_dataclass(heading, [_field(flag) for flag in group])
        fields.append((heading, kind, dataclasses.field(default_factory=kind)))
    return tyro.cli(
        dataclasses.make_dataclass("Arguments", fields),
        prog=command.program,
        description=command.description,
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes,),
    )


def _field(flag: Flag) -> Any:
    import tyro
    from tyro.constructors import PrimitiveConstructorSpec

    default = " ".join(_texts(flag.default)) or (_EMPTY if flag.several and not flag.read else "")
    if flag.switch:
        default = flag.spelling if flag.default else flag.off
    hint = f"(default: {default})" if default else ""
    name = flag.spelled.removeprefix("--") or None
    described = tyro.conf.arg(name=name, help=flag.help, help_behavior_hint=hint)
    if flag.switch:
        single = () if flag.pair else (tyro.conf.FlagCreatePairsOff,)
        return flag.name, _annotated(bool, described, *single), flag.default
    spec = PrimitiveConstructorSpec(
        nargs="*" if flag.several else 1,
        metavar=flag.metavar or _metavar(flag.kind),
        instance_from_str=flag.value,
        is_instance=lambda value: True,
        str_from_instance=_texts,
    )
    # ``object``, because tyro loads a large library to compare a default with a richer type.
    if not flag.positional:
        return flag.name, _annotated(object, spec, described), flag.default
    positional = _annotated(object, spec, described, tyro.conf.Positional)
    return (flag.name, positional) if flag.required else (flag.name, positional, flag.default)


def _annotated(kind: type, *notes: Any) -> Any:
    return Annotated[(kind, *notes)]


def _texts(value: Any) -> list[str]:
    if value is None or value == "":
        return []
    return [str(item) for item in value] if isinstance(value, tuple) else [str(value)]


def _metavar(kind: Any) -> str:
    if get_origin(kind) is tuple:
        part = _metavar(get_args(kind)[0])
        return f"{part} [{part} ...]"
    if get_origin(kind) is Literal:
        return "{" + ",".join(map(str, get_args(kind))) + "}"
    if get_origin(kind) in (Union, UnionType):
        return "|".join(_metavar(part) for part in get_args(kind))
    names = {int: "INT", float: "FLOAT", str: "TEXT", type(None): "none"}
    return names.get(kind, "VALUE")
