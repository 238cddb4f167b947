"""Writes TOML; the standard library only reads it (``tomllib``).

Covers what settings are made of: text, whole and real numbers, true and false, lists, and tables
in tables. ``None`` has no form in TOML: a key that holds it is left out, which reads back as the
default.
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from trimtab.errors import SettingError

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_NEEDS_ESCAPE = re.compile(r'[\x00-\x1f\x7f"\\]')
_SHORT_ESCAPES = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_SHORT_ESCAPES |= {'"': '\\"', "\\": "\\\\"}


def dumps(document: Mapping[str, Any]) -> str:
    """``document`` as TOML that ``tomllib.loads`` reads back as it was, but for ``None``."""
    return "\n".join(_table_lines(document, ())).lstrip("\n") + "\n"


def _table_lines(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[str]:
    values = {name: value for name, value in table.items() if value is not None}
    tables = {name: value for name, value in values.items() if isinstance(value, Mapping)}
    plain = {name: value for name, value in values.items() if name not in tables}
    if path and (plain or not tables):
        yield ""
        yield f"[{'.'.join(_key(part, path) for part in path)}]"
    # A table's own values come first: after a sub-table's header they would belong to that one.
    for name, value in plain.items():
        yield f"{_key(name, path)} = {_value(value, (*path, name))}"
    for name, value in tables.items():
        yield from _table_lines(value, (*path, name))


def _key(name: Any, path: tuple[str, ...]) -> str:
    if not isinstance(name, str):
        place = ".".join(map(str, path)) or "the document"
        raise SettingError(f"{place} has the key {name!r}: TOML needs keys that are text.")
    return name if _BARE_KEY.fullmatch(name) else _text(name, path)


def _value(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _text(value, path)
    if isinstance(value, int):
        return int.__repr__(value)  # subclasses, such as enums, have texts of their own
    if isinstance(value, float):
        return "nan" if math.isnan(value) else float.__repr__(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_value(item, path) for item in value) + "]"
    if isinstance(value, Mapping):
        kept = {name: item for name, item in value.items() if item is not None}
        pairs = [f"{_key(k, path)} = {_value(v, (*path, k))}" for k, v in kept.items()]
        return "{ " + ", ".join(pairs) + " }" if pairs else "{}"
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return _value(value.tolist(), path)
    raise SettingError(
        f"{'.'.join(path)} = {value!r} cannot be written as TOML: expected text, a number, "
        "true or false, or lists and tables of these."
    )


def _text(text: str, path: tuple[str, ...]) -> str:
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise SettingError(
            f"{'.'.join(map(str, path))} holds the text {text!r}, which is not valid Unicode. "
            "Use a name that can be written in UTF-8."
        )
    return '"' + _NEEDS_ESCAPE.sub(_escape, text) + '"'


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT_ESCAPES.get(character) or f"\\u{ord(character):04x}"
