"""Repeated actions, shorter episodes, and starts that are not in phase."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.ppo import PPO
from trimtab.collect.fused import collect_fused
from trimtab.envs.make import make
from trimtab.envs.wrappers import has_fixed_length, wrapped
from trimtab.errors import SettingError
from trimtab.spaces import Box, Discrete, EnvSpec
from trimtab.training.step import begin
from trimtab.types import Transition


class Count(NamedTuple):
    value: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Counter:
    """Shows how often it was stepped, pays that, ends at ``end`` and is cut off at ``limit``."""

    end: int = 7
    limit: int | None = None

    @property
    def spec(self) -> EnvSpec:
        return EnvSpec("Counter-v0", Box((1,)), Discrete(2), self.limit, solved_at=5.0)

    def reset(self, key):
        return Count(jnp.int32(0)), jnp.zeros(1)

    def step(self, key, state, action):
        value = state.value + 1
        shown = value.astype(jnp.float32)
        clock = jnp.bool_(False) if self.limit is None else value >= self.limit
        return Count(value), Transition(shown[None], shown, value >= self.end, clock)


@dataclasses.dataclass(frozen=True, eq=False)
class NeverEnding:
    """As Counter, but only the clock ends it."""

    limit: int = 8
    spec: EnvSpec = EnvSpec("NeverEnding-v0", Box((1,)), Discrete(2), max_episode_steps=8)

    def reset(self, key):
        return Count(jnp.int32(0)), jnp.zeros(1)

    def step(self, key, state, action):
        value = state.value + 1
        shown = value.astype(jnp.float32)
        return Count(value), Transition(
            shown[None], jnp.float32(1.0), jnp.bool_(False), value >= self.limit
        )


def episode(env, steps):
    """Rewards, flags and last observations of some steps."""
    state, _ = env.reset(jax.random.key(0))
    rows = []
    for t in range(steps):
        state, after = env.step(jax.random.key(t), state, jnp.int32(0))
        rows.append(
            (
                float(after.reward),
                bool(after.terminated),
                bool(after.truncated),
                float(after.obs[0]),
            )
        )
    return rows


def test_repeated_actions_add_rewards_and_stop_at_the_end():
    # Steps 1+2+3, 4+5+6, and 7 alone, where it ends.
    assert episode(wrapped(Counter(), 3, None), 3) == [
        (6.0, False, False, 3.0),
        (15.0, False, False, 6.0),
        (7.0, True, False, 7.0),
    ]


def test_repeated_actions_shorten_the_limit_in_steps_of_the_agent():
    env = wrapped(Counter(end=100, limit=7), 3, None)
    assert env.spec.max_episode_steps == 3
    assert episode(env, 3)[-1] == (7.0, False, True, 7.0)


def test_inner_steps_have_random_numbers_of_their_own():
    env = make("FrozenLake-v1", is_slippery=True)
    twice = wrapped(env, 2, None)
    key, action = jax.random.key(3), jnp.int32(2)
    state, _ = env.reset(key)
    first, _ = env.step(jax.random.fold_in(key, 0), state, action)
    second, _ = env.step(jax.random.fold_in(key, 1), first, action)
    assert twice.step(key, state, action)[0].position == second.position


def test_a_shorter_limit_truncates_and_a_termination_wins():
    assert episode(wrapped(Counter(), 1, 2), 2)[-1] == (2.0, False, True, 2.0)
    assert episode(wrapped(Counter(end=2), 1, 2), 2)[-1] == (2.0, True, False, 2.0)
    spec = wrapped(Counter(limit=9), 1, 2).spec
    assert (spec.max_episode_steps, spec.solved_at) == (2, None)


def test_the_limit_counts_steps_of_the_agent():
    assert episode(wrapped(Counter(end=100), 3, 2), 2)[-1] == (15.0, False, True, 6.0)


def test_a_limit_without_effect_is_refused():
    with pytest.raises(SettingError, match=r"max_episode_steps = 9 has no effect.*after 9 steps"):
        wrapped(Counter(limit=9), 1, 9)


def test_nothing_wraps_nothing():
    env = Counter()
    assert wrapped(env, 1, None) is env


@pytest.mark.parametrize(
    ("env", "fixed"),
    [
        ("Pendulum-v1", True),
        ("CartPole-v1", False),
        ("MountainCar-v0", False),
        ("Catch-bsuite", False),  # a constant after the first step, but not after the ninth
        ("FrozenLake-v1", False),
        (NeverEnding(), True),
        (Counter(limit=5), False),
    ],
)
def test_fixed_lengths_are_found(env, fixed):
    assert has_fixed_length(make(env)) is fixed


PLAIN = PPO(hidden_sizes=(4,))


def collected(env, lanes, steps, staggered):
    run = begin(PLAIN, env, lanes, jax.random.key(0), staggered)
    return collect_fused(
        PLAIN, env, PLAIN.actor(run.learner), run.lanes, run.root, run.update, steps
    )


def test_staggered_lanes_do_not_truncate_in_phase():
    lanes, rollout = collected(NeverEnding(), 4, 24, staggered=True)
    ends = [np.flatnonzero(column).tolist() for column in np.asarray(rollout.truncated).T]
    # Lane i's first episode has 8 − 2i steps, and all that follow have 8.
    assert ends == [[7, 15, 23], [5, 13, 21], [3, 11, 19], [1, 9, 17]]
    assert not rollout.terminated.any()
    # Each is bootstrapped from where it led, and the next episode begins at a first observation.
    np.testing.assert_array_equal(
        np.asarray(rollout.next_obs)[[7, 5, 3, 1], np.arange(4), 0], [8, 6, 4, 2]
    )
    np.testing.assert_array_equal(np.asarray(rollout.obs)[[8, 6, 4, 2], np.arange(4), 0], 0.0)
    # The three that were cut short are no whole episodes.
    assert float(lanes.finished.count.sum()) == 12 - 3
    assert float(lanes.finished.length_sum.sum()) == 9 * 8
    _, plain = collected(NeverEnding(), 4, 24, staggered=False)
    assert [column.nonzero()[0].tolist() for column in np.asarray(plain.truncated).T] == (
        [[7, 15, 23]] * 4
    )


def test_a_termination_before_the_cut_is_a_whole_episode():
    lanes, rollout = collected(Counter(end=3, limit=8), 4, 6, staggered=True)
    # Lane 3 is cut after 2 steps; the others terminate at 3, before their cuts at 8, 6 and 4.
    ends = np.asarray(rollout.terminated | rollout.truncated).T
    assert [row.nonzero()[0].tolist() for row in ends] == [[2, 5], [2, 5], [2, 5], [1, 4]]
    assert np.asarray(rollout.truncated).nonzero()[0].tolist() == [1]
    assert lanes.finished.count.tolist() == [2, 2, 2, 1]


def test_more_lanes_than_steps():
    _, rollout = collected(NeverEnding(), 16, 8, staggered=True)
    assert np.asarray(rollout.truncated).sum(axis=0).min() >= 1
