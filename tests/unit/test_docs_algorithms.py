"""docs/algorithms.md and docs/ppo.md name every setting, and the tables are true."""

import dataclasses
import re
from pathlib import Path

import pytest

from trimtab.algos.settings import ALGORITHMS
from trimtab.settings import setting_names
from trimtab.training.config import TrainSettings

DOCS = Path(__file__).parents[2] / "docs"
LEVERS = (DOCS / "algorithms.md").read_text(encoding="utf-8")
DETAILS = (DOCS / "ppo.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (.*?) \| (.*?) ?\| ", re.MULTILINE)
ROWS = {name: (default, bounds) for name, default, bounds in ROW.findall(LEVERS)}
FIELDS = {
    (algorithm, field.name): field
    for algorithm, cls in ALGORITHMS.items()
    for field in dataclasses.fields(cls)
}


def as_written(value):
    return str(value).lower() if value is None or isinstance(value, bool) else str(value)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_setting_has_a_row(algorithm):
    assert set(setting_names(ALGORITHMS[algorithm]())) <= set(ROWS)


def test_every_row_is_of_a_setting():
    assert set(ROWS) == {name for _, name in FIELDS}


@pytest.mark.parametrize(("algorithm", "name"), FIELDS)
def test_the_default_and_the_bounds_of_a_row_are_those_of_the_code(algorithm, name):
    default, bounds = ROWS[name]
    field = FIELDS[algorithm, name]
    own = re.search(rf"{algorithm.upper()}: ([^,)]+)", default)
    said = own.group(1) if own else default.partition(" (")[0] or default
    if isinstance(field.default, tuple):
        said = default
    assert said == as_written(field.default)
    assert bounds in (str(field.metadata["bounds"]), "") or field.name == "epochs"
    assert bounds or not str(field.metadata["bounds"])


def test_all_37_details_are_there_once_with_settings_that_exist():
    numbers = re.findall(r"^\| (\d+) \|", DETAILS, re.MULTILINE)
    assert [int(number) for number in numbers] == list(range(1, 38))
    known = {name for _, name in FIELDS} | set(setting_names(TrainSettings()))
    last_columns = re.findall(r"^\| \d+ \|.*\| (.*?) ?\|$", DETAILS, re.MULTILINE)
    named = {name for column in last_columns for name in re.findall(r"`(\w+)`", column)}
    assert len(named) > 20
    assert named <= known
