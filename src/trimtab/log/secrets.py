"""What must not reach a file or a tracker: passwords and keys, known by their names and places."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

# A whole name, or its last words: `api_key` and `DB_PASSWORD`, but not `num_tokens` or `keyboard`.
_SECRET = re.compile(
    r"(^|[_.-])(password|passwd|secret|token|api_?key|access_?key|private_?key|credentials?)$",
    re.IGNORECASE,
)
_USER_IN_ADDRESS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_MASK = "***"
_SHORTEST = 6  # a shorter value is a word that may stand anywhere


def names_of_secrets(values: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The texts in nested mappings that are secrets, by their names or for what they contain."""
    for name, value in values.items():
        where = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            yield from names_of_secrets(value, where)
        elif isinstance(value, str) and (_SECRET.search(name) or _USER_IN_ADDRESS.search(value)):
            yield where


def redacted(text: str) -> str:
    """``text`` without passwords in addresses and values of secret environment variables.

    For what others wrote: an error of a tracker may quote the address or the key it was given.
    """
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= _SHORTEST:
            text = text.replace(value, _MASK)
    return _USER_IN_ADDRESS.sub(_MASK, text)
