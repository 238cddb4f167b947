"""Settings: types, bounds, and the sentences for what is wrong."""

import dataclasses
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.errors import SettingError, did_you_mean
from trimtab.settings import Bounds, checked, coerce, describe, from_text, replaced, setting


@dataclasses.dataclass(frozen=True)
class Example:
    rate: float = setting(0.5, "a rate", above=0, at_most=1)
    count: int = setting(3, "a count", at_least=1, at_most=2**31 - 1)
    kind: Literal["fast", "slow"] = setting("fast", "a kind")
    sizes: tuple[int, ...] = setting((4, 4), "sizes", at_least=1)
    target: float | None = setting(None, "a target")
    enabled: bool = setting(True, "a switch")
    hidden: int = 0  # no setting: no help, no flag


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("rate", 1, 1.0),
        ("rate", np.float32(0.5), 0.5),
        ("count", 5.0, 5),
        ("count", np.int64(5), 5),
        ("sizes", [8, 16], (8, 16)),
        ("sizes", (), ()),
        ("target", None, None),
        ("target", 2, 2.0),
        ("enabled", False, False),
    ],
)
def test_values_become_their_type(name: str, given: object, value: object) -> None:
    result = getattr(replaced(Example(), {name: given}), name)
    assert result == value
    assert type(result) is type(value)


@pytest.mark.parametrize(
    ("name", "given", "sentence"),
    [
        ("rate", "fast", "rate = 'fast' is not valid: expected a number above 0 and at most 1."),
        ("rate", True, "rate = True is not valid"),
        ("rate", 0, "rate = 0 is out of bounds: expected a number above 0 and at most 1."),
        ("rate", float("nan"), "rate = nan is out of bounds"),
        ("rate", 10**400, "is not valid"),
        ("count", 2.5, "count = 2.5 is not valid: expected a whole number at least 1"),
        ("count", 2**31, "at most 2147483647"),
        ("count", 10**400, "is out of bounds"),
        ("count", None, "count = None is not valid"),
        ("kind", "slwo", "expected one of 'fast', 'slow'. Did you mean 'slow'?"),
        ("kind", ["slow"], "expected one of 'fast', 'slow'."),
        ("sizes", 8, "expected a list of whole numbers, each at least 1."),
        ("sizes", [8, 0], "sizes = [8, 0] is out of bounds"),
        ("target", float("inf"), "expected a finite number"),
        ("target", "none", "expected a number or none"),
        ("enabled", 1, "expected true or false"),
        ("cuont", 1, "there is no setting 'cuont'. Did you mean 'count'?"),
        ("hidden", 1, "there is no setting 'hidden'."),
    ],
)
def test_what_is_wrong_is_named(name: str, given: object, sentence: str) -> None:
    with pytest.raises(SettingError) as caught:
        replaced(Example(), {name: given}, "mine.toml")
    assert str(caught.value).startswith("mine.toml: ")
    assert sentence in str(caught.value)


def test_checked_looks_at_every_setting() -> None:
    assert checked(Example(rate=1)) == Example(rate=1.0)
    with pytest.raises(SettingError, match=r"^count = 0 is out of bounds"):
        checked(Example(count=0))


def test_bounds_are_part_of_the_help() -> None:
    rate, _, kind, *_ = dataclasses.fields(Example)
    assert describe(rate) == "a rate [above 0 and at most 1]"
    assert describe(kind) == "a kind"


@given(st.integers() | st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_their_text(value: float) -> None:
    assert from_text(str(value), type(value)) == value


@given(st.integers(-(10**6), 10**6), st.integers(-(10**6), 10**6))
def test_bounds_admit_what_they_say(value: int, edge: int) -> None:
    assert Bounds(above=edge).admit(value) == (value > edge)
    assert Bounds(at_least=edge).admit(value) == (value >= edge)
    assert Bounds(below=edge).admit(value) == (value < edge)
    assert Bounds(at_most=edge).admit(value) == (value <= edge)


@given(
    st.text() | st.integers() | st.floats() | st.none() | st.booleans() | st.lists(st.integers())
)
def test_coerce_never_fails_but_by_refusing(value: object) -> None:
    for kind in (int, float, bool, str, tuple[int, ...], float | None, Literal["a", "b"]):
        try:
            coerce(value, kind)
        except ValueError:
            continue


def test_only_names_that_are_about_as_near_as_the_nearest_are_suggested() -> None:
    known = ["learning_rate", "learning_rate_schedule", "clip_range"]
    assert did_you_mean("learnin_rate", known) == " Did you mean 'learning_rate'?"
    both = did_you_mean("adam_beta", ["adam_beta1", "adam_beta2"])
    assert "'adam_beta1'" in both
    assert "'adam_beta2'" in both
    assert did_you_mean("xyz", known) == ""
