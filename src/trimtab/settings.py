"""Settings: a dataclass field that knows its help text and its bounds.

Flags, TOML keys, documentation and checks are all made from these fields, so that a setting is
described in one place. Nothing here imports JAX: the command line must answer before JAX loads.
"""

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

from trimtab.errors import SettingError, did_you_mean


@dataclasses.dataclass(frozen=True)
class Bounds:
    """The values a number may take: strictly above/below, or inclusively at least/at most."""

    above: float | None = None
    at_least: float | None = None
    below: float | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        words = [
            f"{name.replace('_', ' ')} {value if isinstance(value, int) else f'{value:g}'}"
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        ]
        return " and ".join(words)

    def admit(self, value: float) -> bool:
        # math.isfinite would overflow on a large int; every int is finite.
        return (
            (isinstance(value, int) or math.isfinite(value))
            and (self.above is None or value > self.above)
            and (self.at_least is None or value >= self.at_least)
            and (self.below is None or value < self.below)
            and (self.at_most is None or value <= self.at_most)
        )


def setting(
    default: Any,
    help: str,
    *,
    above: float | None = None,
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    needs: tuple[Any, ...] = (),
    instead_of: str = "",
) -> Any:
    """A dataclass field with a help text and, for numbers, bounds.

    ``needs=(other, *choices)``: without one of those choices for the other setting, this one has no
    effect. ``instead_of=other``: it says the same as the other setting, in another way.
    """
    bounds = Bounds(above, at_least, below, at_most)
    metadata = {"help": help, "bounds": bounds, "needs": needs, "instead_of": instead_of}
    return dataclasses.field(default=default, metadata=metadata)


def describe(field: dataclasses.Field) -> str:
    """The help text of a field, with its bounds."""
    bounds = str(field.metadata.get("bounds", ""))
    return field.metadata.get("help", "") + (f" [{bounds}]" if bounds else "")


def field_types(cls: type) -> dict[str, Any]:
    """The resolved type of each field."""
    hints = typing.get_type_hints(cls)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def type_words(kind: Any) -> str:
    """A type as a person would say it."""
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in get_args(kind))
    if get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(type_words(part) for part in get_args(kind))
    if get_origin(kind) is tuple:
        part = type_words(get_args(kind)[0])
        return (
            f"a list of {part.removeprefix('a ')}s"
            if part.startswith("a ")
            else f"a list, each {part}"
        )
    names = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    return "none" if kind is type(None) else names.get(kind, str(kind))


def expectation(kind: Any, bounds: Bounds) -> str:
    """What a setting takes: a number above 0 and at most 1."""
    each = ", each" if get_origin(kind) is tuple and str(bounds) else ""
    return f"{type_words(kind)}{each} {bounds}".rstrip()


def from_text(text: str, kind: Any) -> Any:
    """The value that a flag's text stands for; ValueError when it is no ``kind``."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        for part in get_args(kind):
            try:
                return from_text(text, part)
            except ValueError:
                continue
        raise ValueError
    if get_origin(kind) is Literal:
        return coerce({str(choice): choice for choice in get_args(kind)}.get(text, text), kind)
    if kind is type(None):
        return coerce(None if text.lower() == "none" else text, kind)
    if kind is bool:
        return coerce({"true": True, "false": False}.get(text.lower(), text), kind)
    if kind is int:
        try:
            return int(text)
        except ValueError:
            return coerce(float(text), int)  # 1e6 is how many people write a million
    return coerce(float(text) if kind is float else text, kind)


def coerce(value: Any, kind: Any) -> Any:
    """``value`` as ``kind``; raises ValueError when that would lose or invent something."""
    if get_origin(kind) in (typing.Union, types.UnionType):
        for part in get_args(kind):
            try:
                return coerce(value, part)
            except ValueError:
                continue
        raise ValueError
    if get_origin(kind) is Literal:
        if value in get_args(kind):
            return value
        raise ValueError
    if get_origin(kind) is tuple:
        if isinstance(value, (list, tuple)):
            return tuple(coerce(item, get_args(kind)[0]) for item in value)
        raise ValueError
    if kind is type(None):
        if value is None:
            return None
        raise ValueError
    # The abstract types are those of numpy's scalars too; bool is one of them, and is not meant.
    if kind is float and isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            raise ValueError from None
    if kind is int and isinstance(value, numbers.Integral) and not isinstance(value, bool):
        return int(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is kind:
        return value
    raise ValueError


def valid(given: str, value: Any, kind: Any, bounds: Bounds) -> Any:
    """``value`` as ``kind`` and within ``bounds``, or a SettingError that begins with ``given``."""
    try:
        coerced = coerce(value, kind)
    except ValueError:
        raise SettingError(
            f"{given} is not valid: expected {expectation(kind, bounds)}.{_meant(value, kind)}"
        ) from None
    for item in coerced if isinstance(coerced, tuple) else (coerced,):
        number = isinstance(item, (int, float)) and not isinstance(item, bool)
        if number and not bounds.admit(item):
            expected = expectation(kind, bounds) if str(bounds) else "a finite number"
            raise SettingError(f"{given} is out of bounds: expected {expected}.")
    return coerced


def _meant(value: Any, kind: Any) -> str:
    """Half a sentence with the choices that are nearest to what was given."""
    if get_origin(kind) is tuple and isinstance(value, (list, tuple)):
        return "".join(_meant(item, get_args(kind)[0]) for item in value)
    choices = [str(choice) for choice in get_args(kind)] if get_origin(kind) is Literal else []
    return "" if value in choices else did_you_mean(str(value), choices)


def checked(instance: Any) -> Any:
    """``instance`` with its values coerced to their types, or a SettingError that says why not."""
    values = {name: getattr(instance, name) for name in setting_names(instance)}
    return replaced(instance, values)


def replaced(instance: Any, values: Mapping[str, Any], source: str = "") -> Any:
    """``instance`` with ``values``, coerced to their types; errors name the ``source``."""
    known = setting_names(instance)
    prefix = f"{source}: " if source else ""
    fields = {field.name: field for field in dataclasses.fields(instance)}
    kinds = field_types(type(instance))
    changes = {}
    for name, value in values.items():
        if name not in known:
            raise SettingError(f"{prefix}there is no setting {name!r}.{did_you_mean(name, known)}")
        bounds = fields[name].metadata["bounds"]
        changes[name] = valid(f"{prefix}{name} = {value!r}", value, kinds[name], bounds)
    return dataclasses.replace(instance, **without_rivals(instance, changes))


def without_rivals(instance: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """``changes`` in which a setting that is changed takes the place of the one it stands for.

    So a flag ``--horizon`` overrules the gamma of a preset. If both change, both are kept, and the
    check of contradictions answers.
    """
    fields = {field.name: field for field in dataclasses.fields(instance)}
    changed = {name for name, value in changes.items() if value != getattr(instance, name)}
    pairs = [(name, field.metadata.get("instead_of")) for name, field in fields.items()]
    for name, other in pairs:
        if other and (name in changed) != (other in changed):
            loser = other if name in changed else name
            changes = {**changes, loser: fields[loser].default}
    return changes


def check_effects(instance: Any) -> None:
    """Refuse a setting that was changed though, as others stand, it has no effect."""
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if not field.metadata.get("needs") or value == field.default:
            continue
        other, *choices = field.metadata["needs"]
        if getattr(instance, other) not in choices:
            raise SettingError(
                f"{field.name} = {value} has no effect with {other} = {getattr(instance, other)}: "
                f"leave it out, or give {other} = {' or '.join(map(str, choices))}."
            )


def setting_names(instance: Any) -> list[str]:
    """The names of the settings among the fields of a dataclass."""
    return [field.name for field in dataclasses.fields(instance) if "help" in field.metadata]
