"""What is written as TOML is read back by the standard library as it was."""

import enum
import math
import tomllib
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import SettingError
from trimtab.training.tomlfile import dumps

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    TEXTS,
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=12,
)


def exact(value: Any) -> Any:
    """``value`` with the type and sign of each number, whatever the order of keys."""
    if isinstance(value, dict):
        return {key: exact(item) for key, item in value.items()}
    return [exact(item) for item in value] if isinstance(value, list) else repr(value)


@given(st.dictionaries(TEXTS, VALUES, max_size=5))
def test_round_trip(document: dict[str, Any]):
    again = tomllib.loads(dumps(document))
    assert again == document
    assert exact(again) == exact(document)


@pytest.mark.parametrize("value", [1e-05, 1e16, 1e22, 0.1, -0.0, 5e-324, math.inf, -math.inf])
def test_floats_stay_floats(value: float):
    again = tomllib.loads(dumps({"x": value}))["x"]
    assert type(again) is float
    assert repr(again) == repr(value)


def test_nan():
    assert dumps({"x": math.nan, "y": -math.nan}) == "x = nan\ny = nan\n"
    assert math.isnan(tomllib.loads(dumps({"x": math.nan}))["x"])


def test_layout_is_what_a_person_would_write():
    text = dumps(
        {
            "schema_version": 1,
            "train": {"seed": 0, "devices": "auto", "nested": {"sizes": (64, 64)}},
            "empty": {},
            "only_tables": {"inner": {"flag": True}},
        }
    )
    assert text == (
        "schema_version = 1\n"
        "\n[train]\nseed = 0\n"
        'devices = "auto"\n'
        "\n[train.nested]\nsizes = [64, 64]\n"
        "\n[empty]\n"
        "\n[only_tables.inner]\nflag = true\n"
    )


def test_values_after_a_table_still_belong_to_their_own():
    document = {"first": {"a": 1}, "second": 2}
    assert tomllib.loads(dumps(document)) == document


def test_none_is_left_out_everywhere():
    document = {"a": None, "table": {"b": None, "c": 1}, "rows": [{"d": None, "e": 2}]}
    assert tomllib.loads(dumps(document)) == {"table": {"c": 1}, "rows": [{"e": 2}]}


def test_keys_and_texts_with_every_control_character():
    text = "".join(map(chr, range(0x20))) + "\"\\\x7f\x85 é 漢 🙂 ' # = [x]"
    document = {text: {text: text, "": "empty key", "a.b": "dotted"}}
    assert tomllib.loads(dumps(document)) == document


def test_numpy_and_enum_values():
    class Colour(enum.IntEnum):
        RED = 3

    document = {"a": np.float64(0.5), "b": np.int32(2), "c": np.arange(2), "d": Colour.RED}
    assert dumps(document) == "a = 0.5\nb = 2\nc = [0, 1]\nd = 3\n"


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ({"a": {"b": object()}}, r"a\.b = <object.*cannot be written as TOML"),
        ({"a": [1, None]}, "a = None cannot be written"),
        ({"a": {3: 1}}, "a has the key 3"),
        ({"a": "\ud800"}, "not valid Unicode"),
    ],
)
def test_what_toml_cannot_hold_is_named(document: dict[str, Any], words: str):
    with pytest.raises(SettingError, match=words):
        dumps(document)
