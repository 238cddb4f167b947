"""What counts as the same number, where two runs first differ, and what is said to be the cause."""

import pytest

from trimtab.training.comparison import (
    Difference,
    causes,
    first_difference,
    same,
    settings_differences,
)

NAN = float("nan")


def rows(*values: float) -> list[dict[str, float]]:
    return [
        {"update": number, "train/loss": value, "train/norm": 1.0, "time/seconds": number * value}
        for number, value in enumerate(values, start=1)
    ]


def test_equal_rows_have_no_difference() -> None:
    assert first_difference((rows(1.0, NAN), rows(1.0, NAN))) is None
    timed = rows(1.0)
    timed[0] |= {"time/seconds": 7.0, "system/cpu_cores": 2.0}
    assert first_difference((rows(1.0), timed)) is None


@pytest.mark.parametrize(
    ("first", "second"), [(0.0, -0.0), (1.0, 1.0000000000000002), (NAN, 1.0), (1.0, None), (1, 1.0)]
)
def test_one_bit_is_a_difference(first: object, second: object) -> None:
    assert not same(first, second)


def test_the_first_difference_is_named() -> None:
    found = first_difference((rows(1.0, 2.0, 3.0), rows(1.0, 2.5, 3.5)))
    assert found == Difference(2, "train/loss", 2.0, 2.5, others=0)
    assert str(found) == "update 2, in train/loss (2.0 and 2.5)"
    missing = first_difference((rows(1.0), [{"update": 1, "time/seconds": 0}]))
    assert missing == Difference(1, "train/loss", 1.0, None, others=1)
    assert str(missing).endswith("and 1 more there")


def test_of_one_update_metrics_come_before_evaluations() -> None:
    played = [{"update": 2, "mean": 1.0}], [{"update": 2, "mean": 2.0}]
    found = first_difference((rows(1.0, 2.0), rows(1.0, 2.0)), played)
    assert found == Difference(2, "mean", 1.0, 2.0, others=0, evaluation=True)
    assert str(found) == "the evaluation after update 2, in mean (1.0 and 2.0)"
    both = first_difference((rows(1.0, 2.0), rows(1.0, 3.0)), played)
    assert both is not None
    assert not both.evaluation


CONFIG = {
    "algorithm": {"learning_rate": 0.5},
    "versions": {"jax": "1"},
    "machine": {"cores": 2},
    "devices": {"devices": 1},
}


def test_settings_that_differ() -> None:
    other = {**CONFIG, "algorithm": {"learning_rate": 0.25, "gamma": 0.9}}
    assert settings_differences(CONFIG, other) == {
        "algorithm.learning_rate": (0.5, 0.25),
        "algorithm.gamma": (None, 0.9),
    }
    assert settings_differences(CONFIG, CONFIG) == {}


def test_causes_are_what_differs() -> None:
    other = {**CONFIG, "versions": {"jax": "2"}, "machine": {"cores": 8, "nproc": "1"}}
    versions, machine = causes(CONFIG, other, steps=10, outside=False)
    assert versions == "Other versions: jax 1 → 2."
    assert "cores 2 → 8, nproc none → 1" in machine
    assert "NPROC" in machine


def test_causes_of_the_run_itself_come_first() -> None:
    notes = [
        {"steps": 10, "changed": {"learning_rate": [0.1, 0.2]}},
        {"steps": 20, "new_episodes": True},
        {"steps": 99, "new_episodes": True},
    ]
    run = {**CONFIG, "extra": {"reproducible": False, "resumed": notes}}
    found = causes(run, CONFIG, steps=20, outside=True)
    assert "first come, first served" in found[0]
    assert found[1] == ("It was resumed after 10 steps with learning_rate = 0.2 in place of 0.1.")
    assert found[2] == "It was resumed after 20 steps with new episodes."
    assert len(found) == 3


def test_where_nothing_differs_the_environment_or_a_file_is_suspected() -> None:
    assert "random numbers that its seed does not reach" in causes(CONFIG, CONFIG, 1, True)[0]
    assert "a file of the run was changed" in causes(CONFIG, CONFIG, 1, False)[0]
