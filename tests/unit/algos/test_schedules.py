"""Schedules at their ends, and on the way."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.algos.a2c import A2C
from trimtab.algos.ppo import PPO
from trimtab.algos.reinforce import REINFORCE
from trimtab.algos.schedules import Schedule

TOTAL = jnp.float32(100.0)


def values(schedule, updates, value=2.0, total=TOTAL):
    return [float(schedule.at(value, jnp.int32(update), total)) for update in updates]


def test_without_a_schedule_the_number_itself_comes_back():
    assert Schedule("constant").at(0.3, jnp.int32(50), TOTAL) == 0.3


@pytest.mark.parametrize(
    ("kind", "middle"), [("linear", 1.0), ("cosine", 1.0), ("linear", None), ("cosine", None)]
)
def test_it_begins_at_the_value_and_ends_at_zero(kind, middle):
    found = values(Schedule(kind), (0, 50, 100, 120))
    np.testing.assert_allclose(found[0], 2.0)
    np.testing.assert_allclose(found[2:], 0.0, atol=1e-6)
    if middle is not None:
        np.testing.assert_allclose(found[1], middle, rtol=1e-5)


def test_linear_and_cosine_differ_between():
    np.testing.assert_allclose(values(Schedule("linear"), (25,)), 1.5, rtol=1e-5)
    np.testing.assert_allclose(
        values(Schedule("cosine"), (25,)), 1.0 + np.cos(np.pi / 4), rtol=1e-5
    )


def test_warm_up_takes_steps_that_are_equal_and_none_of_them_is_zero():
    """A tenth of 100 updates: the first has a tenth of the value, the tenth all of it."""
    found = values(Schedule("constant", warmup=0.1), (0, 1, 8, 9, 10, 99))
    np.testing.assert_allclose(found, [0.2, 0.4, 1.8, 2.0, 2.0, 2.0], rtol=1e-5)


def test_a_fall_that_begins_late_holds_the_value_until_then():
    """The entropy bonus of many guides: held, then annealed to 0 in the last part."""
    found = values(Schedule("linear", decay_start=0.8), (0, 80, 90, 99, 100))
    np.testing.assert_allclose(found, [2.0, 2.0, 1.0, 0.1, 0.0], rtol=1e-3, atol=1e-5)


def test_a_run_without_an_end_has_no_parts():
    endless = jnp.float32(jnp.inf)
    for kind in ("constant", "linear", "cosine"):
        assert values(Schedule(kind, warmup=0.5), (0, 1000), total=endless) == [2.0, 2.0]


@given(
    kind=st.sampled_from(["constant", "linear", "cosine"]),
    warmup=st.none() | st.floats(0.01, 0.99),
    start=st.none() | st.floats(0.01, 0.99),
    update=st.integers(0, 120),
)
def test_no_schedule_leaves_the_range_from_zero_to_the_value(kind, warmup, start, update):
    found = float(Schedule(kind, warmup, start).at(2.0, jnp.int32(update), TOTAL))
    assert -1e-6 <= found <= 2.0 + 1e-6
    if kind != "constant" and update >= 100:
        assert found == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("kind", [PPO, A2C, REINFORCE])
def test_every_algorithm_schedules_its_learning_rate_and_its_entropy_bonus(kind):
    algorithm = kind(
        learning_rate=1.0,
        learning_rate_schedule="linear",
        learning_rate_warmup=0.1,
        entropy_coefficient=0.5,
        entropy_schedule="cosine",
        entropy_decay_start=0.5,
        total_updates=10.0,
    )
    now = [algorithm.at(jnp.int32(update)) for update in (0, 5, 10)]
    np.testing.assert_allclose([one.learning_rate for one in now], [1.0, 0.5, 0.0], atol=1e-6)
    np.testing.assert_allclose([one.entropy_coefficient for one in now], [0.5, 0.5, 0.0], atol=1e-6)


def test_ppo_schedules_its_clip_range():
    ppo = PPO(clip_range=0.4, clip_range_schedule="linear", total_updates=4.0)
    found = [ppo.at(jnp.int32(update)).clip_range for update in range(5)]
    np.testing.assert_allclose(found, [0.4, 0.3, 0.2, 0.1, 0.0], atol=1e-6)
