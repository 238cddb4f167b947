"""Presets: each is valid where it is used, and the general ones stand in where there is none."""

import re
import tomllib
from importlib import resources
from pathlib import Path

import gymnasium
import pytest

from trimtab.algos.settings import ALGORITHMS
from trimtab.configuration import default_configuration
from trimtab.envs.registry import entry_of, list_environments
from trimtab.spaces import Box, Discrete, EnvSpec
from trimtab.training.presets import preset_for, preset_values

FILES = sorted(
    file.name.removesuffix(".toml") for file in (resources.files("trimtab") / "presets").iterdir()
)
GENERAL = ["continuous", "discrete", "image", "tabular"]
OWN = [name for name in FILES if name not in GENERAL]
IDS = {name.lower(): name for name in gymnasium.registry}
IDS |= {entry.id.lower(): entry.id for entry in list_environments()}


def tables(name: str) -> dict:
    return tomllib.loads(
        (resources.files("trimtab") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    )


def test_the_promised_ones_are_there():
    assert set(GENERAL) < set(FILES)
    assert {
        "acrobot-v1",
        "breakout-minatar",
        "cartpole-v1",
        "catch-bsuite",
        "frozenlake-v1",
        "frozenlake8x8-v1",
        "mountaincar-v0",
        "mountaincarcontinuous-v0",
        "pendulum-v1",
    } <= set(OWN)


@pytest.mark.parametrize("name", OWN)
def test_each_is_of_an_environment_and_valid(name):
    for algorithm in set(tables(name)) & set(ALGORITHMS):
        configuration = default_configuration(IDS[name], algorithm).checked()
        assert configuration.preset.name == name
        assert not configuration.preset.general
        assert "tuned for this environment" in configuration.preset.words(IDS[name], algorithm)


@pytest.mark.parametrize("entry", list_environments(), ids=lambda entry: entry.id)
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_environment_has_one_but_the_probes(entry, algorithm):
    configuration = default_configuration(entry.id, algorithm).checked()
    assert (configuration.preset.name == "") == (entry.backend == "probe")


def test_a_general_one_where_none_was_tuned():
    taken = default_configuration("Reacher-misc", "ppo")
    assert taken.preset.name == "continuous"
    assert taken.preset.general
    assert taken.algorithm.normalize_observations
    assert taken.preset.words("Reacher-misc", "ppo") == (
        "Settings: the general preset 'continuous'; none was tuned for Reacher-misc with ppo."
    )


def test_of_an_object_its_spaces_decide():
    spec = EnvSpec("Mine-v0", Box((2,)), Box((1,)))
    assert default_configuration("Mine-v0", "ppo", spec=spec).preset.name == "continuous"
    spec = EnvSpec("Mine-v0", Discrete(3), Discrete(2))
    assert default_configuration("Mine-v0", "ppo", spec=spec).preset.name == "tabular"


def test_without_an_environment_there_is_none():
    assert default_configuration("", "ppo").preset.values == {}
    assert default_configuration("", "ppo").preset.words("", "ppo") == ""


def test_the_kind_is_asked_only_where_it_is_needed():
    def never() -> str:
        raise AssertionError

    assert preset_for("gymnax:CartPole-v1", "ppo", never).name == "cartpole-v1"
    entry = entry_of("CartPole-v1")
    assert entry is not None
    assert preset_for("CartPole-v1", "no such algorithm", lambda: "discrete").name == ""


def test_an_algorithms_table_goes_over_the_top():
    ppo, a2c = (preset_values("cartpole-v1", name) or {} for name in ("ppo", "a2c"))
    assert ppo["num_steps"] == tables("cartpole-v1")["num_steps"]
    assert a2c["num_steps"] == tables("cartpole-v1")["a2c"]["num_steps"] != ppo["num_steps"]


# What they reached: comments and a page that bench/learning.py writes

PAGE = Path(__file__).parents[3] / "docs" / "learning.md"
NOT_YET = "# Result: not measured yet\n"
RESULT = re.compile(
    r"^# Result: (\w+) on (\S+), (\d+) seeds, \S+ steps: mean return \S+, lowest \S+(;|$)", re.M
)


def results(name: str) -> list[tuple[str, str, int]]:
    """The algorithm, the environment and the number of seeds of each result in a preset's file."""
    text = (resources.files("trimtab") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    found = RESULT.findall(text)
    assert len(found) + text.count(NOT_YET) == text.count("# Result:")
    return [(algorithm, env_id, int(seeds)) for algorithm, env_id, seeds, _ in found]


@pytest.mark.parametrize("name", FILES)
def test_each_says_where_it_comes_from_and_what_it_reached(name):
    """Or that it was not measured yet, which the page then says too."""
    text = (resources.files("trimtab") / "presets" / f"{name}.toml").read_text(encoding="utf-8")
    origin, found, _ = text.partition("# Result: ")
    assert found
    assert text.startswith("# ")
    assert len(origin.split()) > 15, "where the values come from"
    if not results(name):
        assert text.count(NOT_YET) == 1
        assert f"`{name}`" in PAGE.read_text(encoding="utf-8").partition("Not measured yet:")[2]
    elif name in OWN:
        assert {env_id.lower() for _, env_id, _ in results(name)} == {name}
        assert {algorithm for algorithm, _, _ in results(name)} == set(tables(name)) & set(
            ALGORITHMS
        )


@pytest.mark.parametrize("name", FILES)
def test_the_page_has_the_same_results(name):
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text(encoding="utf-8").splitlines()
        if line.startswith("| ")
    ]
    rows = {(row[1], row[0]) for row in cells if len(row) > 3 and row[2] == name}
    assert rows == {(algorithm, env_id) for algorithm, env_id, _ in results(name)}
