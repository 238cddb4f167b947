"""Settings: a dataclass field that knows its help text and its bounds.

Flags, TOML keys, documentation and checks are all made from these fields, so that a setting is
described in one place. Nothing here imports JAX: the command line must answer before JAX loads.
"""

import dataclasses
import math
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
            f"{name.replace('_', ' ')} {value:g}"
            for name, value in dataclasses.asdict(self).items()
            if value is not None
        ]
        return " and ".join(words)

    def admit(self, value: float) -> bool:
        return (
            math.isfinite(value)
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
) -> Any:
    """A dataclass field with a help text and, for numbers, bounds."""
    bounds = Bounds(above, at_least, below, at_most)
    return dataclasses.field(default=default, metadata={"help": help, "bounds": bounds})


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
        return f"a list of {type_words(get_args(kind)[0])}s"
    names = {int: "whole number", float: "number", bool: "true or false", str: "text"}
    return "nothing" if kind is type(None) else names.get(kind, str(kind))


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
    if kind is float and isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if type(value) is kind:
        return value
    raise ValueError


def checked(instance: Any) -> Any:
    """``instance`` with its values coerced to their types, or a SettingError that says why not."""
    changes = {}
    kinds = field_types(type(instance))
    for field in dataclasses.fields(instance):
        value = getattr(instance, field.name)
        if "help" not in field.metadata:
            continue
        try:
            changes[field.name] = coerce(value, kinds[field.name])
        except ValueError:
            expected = type_words(kinds[field.name])
            raise SettingError(
                f"{field.name} = {value!r} is not valid: expected {expected}."
            ) from None
        bounds: Bounds = field.metadata["bounds"]
        items = value if isinstance(value, (list, tuple)) else [value]
        for item in items:
            number = isinstance(item, (int, float)) and not isinstance(item, bool)
            if number and not bounds.admit(item):
                expected = str(bounds) or "a finite number"
                raise SettingError(
                    f"{field.name} = {item!r} is out of bounds: expected {expected}."
                )
    return dataclasses.replace(instance, **changes)


def replaced(instance: Any, values: Mapping[str, Any], source: str) -> Any:
    """``instance`` with ``values``; a name it does not have is an error that names ``source``."""
    known = [field.name for field in dataclasses.fields(instance) if "help" in field.metadata]
    for name in values:
        if name not in known:
            raise SettingError(
                f"{source}: there is no setting {name!r}.{did_you_mean(name, known)}"
            )
    return dataclasses.replace(instance, **values)
