"""``trimtab explain``."""

import dataclasses
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.cli.environments import env_option, import_given
from trimtab.cli.examine import Examined, examined, of_run
from trimtab.cli.flags import Command, Flag, flags_of, parse, scan, wants_help
from trimtab.cli.group import group_members
from trimtab.cli.train import algorithm_named, own_flags, setting_flags
from trimtab.configuration import Configuration, default_configuration
from trimtab.envs.make import entry_for
from trimtab.errors import SettingError, TrimtabError
from trimtab.explain.dialects import DIALECTS
from trimtab.explain.picture import ASCII, BOXES, Ink, picture
from trimtab.explain.report import Explanation, caution_lines, sections
from trimtab.explain.svg import svg
from trimtab.explain.translate import (
    Translation,
    changed,
    dialect,
    translated_from,
    translated_to,
    word_of,
)
from trimtab.settings import setting_names
from trimtab.training.rundir import GROUP

DESCRIPTION = """\
Say what a configuration will do, before anything is compiled: rollout, minibatches, updates, what
they cost, and what is probably wrong with it. It takes all that `trimtab train` takes; without an
environment it is arithmetic alone."""

LIBRARIES = ", ".join(DIALECTS)
SCHEMA_VERSION = 1
MARGIN = 12


def word_or_library(text: str) -> Any:
    """``brax``, or ``num_envs=2048`` as a name and a value."""
    if "=" in text:
        return word_of(text)
    dialect(text)
    return text


TARGET = Flag(
    "env",
    str,
    "",
    "the environment, or a run's folder",
    metavar="ENV|RUN",
    positional=True,
    required=False,
)
TRANSLATION = [
    Flag(
        "source",
        tuple,
        (),
        f"settings in another library's words: {LIBRARIES}, then as many as are not its defaults",
        metavar="LIBRARY NAME=VALUE",
        read=word_or_library,
        spelled="--from",
    ),
    Flag("to", str, "", f"say it in another library's words: {LIBRARIES}", metavar="LIBRARY"),
]
OUTPUT = [
    Flag("svg", str, "", "also write the picture to this file", metavar="FILE"),
    Flag("json", bool, False, "for programs: all of it as one JSON object", pair=False),
]
OF_A_RUN = {"env", "to", "svg", "json", "imports"}  # flags that a run's folder goes together with


def command_for(configuration: Configuration) -> Command:
    """What ``trimtab explain`` takes, with the defaults of a configuration."""
    own = [TARGET, *TRANSLATION, *OUTPUT, *own_flags(configuration)]
    return Command("explain", DESCRIPTION, own, setting_flags(configuration))


@dataclasses.dataclass(frozen=True)
class Answer:
    """All that there is to tell."""

    explanation: Explanation
    source: Translation | None = None
    target: Translation | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            **self.explanation.to_json(),
            "from": None if self.source is None else dataclasses.asdict(self.source),
            "to": None if self.target is None else dataclasses.asdict(self.target),
            "command": command_of(self.explanation.configuration),
        }


def explain_command(arguments: Sequence[str]) -> int:
    """``trimtab explain ENV ...``"""
    plain = default_configuration("", algorithm_named(arguments))
    if wants_help(arguments):
        parse(command_for(_for_help(plain, arguments)), arguments)
    given = scan(command_for(plain), arguments)
    import_given(given.get("imports"))
    folder = Path(given.get("env", [""])[0]).expanduser()
    if "env" in given and any((folder / name).is_file() for name in ("config.toml", GROUP)):
        values = parse(command_for(plain), arguments)
        answer = _of_folder(folder, given, values)
    else:
        source = _translation(given)
        configuration = _before_flags(plain, given, source)
        values = parse(command_for(configuration), arguments)
        answer = _of_settings(configuration, values, given, source)
    _tell(answer, values)
    return 0


def _translation(given: Mapping[str, Sequence[str]]) -> Translation | None:
    """What ``--from`` says."""
    if "source" not in given:
        return None
    library, *words = [word_or_library(text) for text in given["source"]]
    if not isinstance(library, str):
        raise SettingError(f"--from needs a library before its words: one of {LIBRARIES}.")
    for word in words:
        if isinstance(word, str):
            raise SettingError(f"--from takes one library: {library} and {word} were given.")
    return translated_from(library, dict(words))


def _before_flags(
    plain: Configuration, given: Mapping[str, Sequence[str]], source: Translation | None
) -> Configuration:
    """Defaults, preset and file; the words of another library take the place of a preset."""
    env_id = given.get("env", [""])[0]
    if env_id:
        entry_for(env_id)
    options = dict(env_option(text) for text in given.get("env_option", []))
    configuration = default_configuration(env_id, plain.algorithm_name, options)
    if source is not None:
        if plain.algorithm_name != "ppo":
            raise SettingError(f"--from {source.library} is PPO: leave --algo out.")
        configuration = dataclasses.replace(plain, env_id=env_id)
        configuration = configuration.with_values(source.settings, f"--from {source.library}")
    if "config" in given:
        configuration = configuration.with_file(Path(given["config"][0]).expanduser())
    return configuration.with_env_options(options)


def _for_help(plain: Configuration, arguments: Sequence[str]) -> Configuration:
    others = [argument for argument in arguments if argument not in ("-h", "--help")]
    try:
        return _before_flags(plain, scan(command_for(plain), others), None)
    except TrimtabError:
        return plain


def _of_settings(
    configuration: Configuration,
    values: Mapping[str, Any],
    given: Mapping[str, Any],
    source: Translation | None,
) -> Answer:
    names = [*setting_names(configuration.training), *setting_names(configuration.algorithm)]
    configuration = configuration.with_values({name: values[name] for name in names}, "flags")
    configuration = configuration.consistent()
    members = group_members(configuration, values, given)
    target = translated_to(values["to"], configuration) if values["to"] else None
    looked_at = examined(configuration) if configuration.env_id else Examined()
    explanation = Explanation.of(
        configuration, looked_at.spec, looked_at.costs, max(1, len(members))
    )
    return Answer(explanation, source, target)


def _of_folder(path: Path, given: Mapping[str, Any], values: Mapping[str, Any]) -> Answer:
    """Of a run that was made, or of the runs of a group."""
    for name in given:
        if name not in OF_A_RUN:
            flag = {"source": "--from"}.get(name, "--" + name.replace("_", "-"))
            raise SettingError(
                f"{flag} has no effect on a run, which has its own settings: leave it out, or "
                f"change them with: trimtab explain ENV --config {path}/config.toml {flag} …"
            )
    configuration, looked_at, runs = of_run(path)
    target = translated_to(values["to"], configuration) if values["to"] else None
    explanation = Explanation.of(configuration, looked_at.spec, looked_at.costs, runs)
    return Answer(explanation, None, target)


def command_of(configuration: Configuration) -> str:
    """The ``trimtab train`` that does it."""
    from trimtab.cli.words import shell

    name = configuration.algorithm_name
    before = default_configuration(configuration.env_id, name, configuration.env_options)
    told = changed(configuration, before)
    words = [configuration.env_id or "ENV"] + (["--algo", name] if name != "ppo" else [])
    for key, value in configuration.env_options.items():
        words += ["--env-option", f"{key}={value}"]
    for flag in [*flags_of(configuration.training), *flags_of(configuration.algorithm)]:
        if flag.name not in told:
            continue
        value = told[flag.name]
        if flag.switch:
            words.append(flag.spelling if value else flag.off)
        else:
            items = value if isinstance(value, tuple) else (value,)
            words += [flag.spelling, *(_text(item) for item in items or ("none",))]
    return shell("trimtab", "train", *words)


def _text(value: Any) -> str:
    return "none" if value is None else str(value)


# -------------------------------------------------------------------------------------- printing


def _tell(answer: Answer, values: Mapping[str, Any]) -> None:
    from trimtab.cli.words import json_line

    if values["svg"]:
        _write(Path(values["svg"]).expanduser(), svg(answer.explanation.geometry, _title(answer)))
    if values["json"]:
        print(json_line(answer.to_json()))
        return
    print(_title(answer))
    if answer.source is not None:
        _tell_translation(f"as {dialect(answer.source.library).title} says it", answer.source)
    print()
    shape = answer.explanation.geometry
    for line in picture(shape, _ink()):
        print(line)
    print()
    for name, text in sections(answer.explanation):
        print(_wrapped(f"{name:{MARGIN}}", text))
    if not answer.explanation.cautions:
        print(_wrapped(f"{'warnings':{MARGIN}}", "none"))
    for one in answer.explanation.cautions:
        print()
        for mark, text in caution_lines(one):
            print(_wrapped(f"{mark:{MARGIN}}", text))
    if answer.target is not None:
        print()
        print(f"in the words of {dialect(answer.target.library).title}:")
        for name, value in answer.target.settings.items():
            print(f"  {name}={value}")
        _tell_notes(answer.target)
    print()
    print(_wrapped(f"{'to do it':{MARGIN}}", command_of(answer.explanation.configuration)))
    if values["svg"]:
        print(f"{'picture':{MARGIN}}{values['svg']}")


def _tell_translation(heading: str, translation: Translation) -> None:
    print(heading)
    _tell_notes(translation)


def _tell_notes(translation: Translation) -> None:
    for note in translation.notes:
        print(_wrapped("  - ", note))


def _title(answer: Answer) -> str:
    configuration = answer.explanation.configuration
    name = configuration.algorithm_name.upper()
    return f"{name} on {configuration.env_id}" if configuration.env_id else name


def _wrapped(first: str, text: str) -> str:
    """A paragraph with a hanging indent; a word is never broken."""
    from trimtab.log.progress import columns

    width = min(columns(sys.stdout), 100) if sys.stdout.isatty() else 80
    return textwrap.fill(
        text,
        max(width, 40),
        initial_indent=first,
        subsequent_indent=" " * len(first),
        break_long_words=False,
        break_on_hyphens=False,
    )


def _ink() -> Ink:
    """Boxes, if the output can show them."""
    try:
        "".join(dataclasses.astuple(BOXES)).encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return BOXES


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SettingError(f"--svg {path} cannot be written: {error.strerror}.") from None
