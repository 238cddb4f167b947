"""Rollouts from host environments are those of the fused collector, and every row is a transition.

``Counting`` has episodes of every length from 1 to 7, which end by termination and by truncation in
turn; its observation says which episode and which step it is, so that a row tells where it is from.
"""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from trimtab.algos.ppo import PPO
from trimtab.collect.acting import ActingPrograms
from trimtab.collect.host import HostCollector
from trimtab.envs.in_process import InProcessEnv
from trimtab.envs.vector import VectorHostEnv
from trimtab.faults import FaultPolicy

LANES, STEPS, ROLLOUTS = 3, 10, 6


class Counting(gymnasium.Env):
    """Episode e has 1 + (e mod 7) steps; odd ones are truncated, even ones terminate."""

    observation_space = gymnasium.spaces.Box(0.0, 1e6, (3,))
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self):
        self.episode = -1

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.lane = seed
        self.episode, self.count = self.episode + 1, 0
        return self.obs(), {}

    def step(self, action):
        self.count += 1
        over = self.count == 1 + self.episode % 7
        odd = bool(self.episode % 2)
        return self.obs(), float(self.count + action), over and not odd, over and odd, {}

    def obs(self):
        return np.array([self.lane % 1000, self.episode, self.count], np.float32)


class WithoutMasks(gymnasium.vector.VectorWrapper):
    """So that the adapter cannot know that the environment understands reset masks."""


def vector(mode):
    return VectorHostEnv(
        SyncVectorEnv([Counting] * LANES, autoreset_mode=mode), FaultPolicy(), "Counting"
    )


def next_step_with_idle_rows():
    made = SyncVectorEnv([Counting] * LANES, autoreset_mode=AutoresetMode.NEXT_STEP)
    return VectorHostEnv(WithoutMasks(made), FaultPolicy(), "Counting")


ENVIRONMENTS = {
    "in process": lambda: InProcessEnv(Counting, LANES, FaultPolicy()),
    "SAME_STEP": lambda: vector(AutoresetMode.SAME_STEP),
    "DISABLED": lambda: vector(AutoresetMode.DISABLED),
    "NEXT_STEP": lambda: vector(AutoresetMode.NEXT_STEP),
    "NEXT_STEP with idle rows": next_step_with_idle_rows,
}


def rollouts(env, algorithm, root):
    learner = algorithm.init(jax.random.key(1), env.spec)
    programs = ActingPrograms(algorithm, learner, env.spec.action, LANES, STEPS)
    collector = HostCollector(env, programs, STEPS)
    collector.start(algorithm, learner, root, 0)
    found = [collector.collect(algorithm, learner, root, update) for update in range(ROLLOUTS)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *found), collector.take_episodes()


@pytest.fixture(scope="module")
def reference():
    """What three lanes of Counting say when nobody resets but their own loop."""
    return rollouts(ENVIRONMENTS["in process"](), PPO(), jax.random.key(3))


def test_the_rows_are_the_environments_own_transitions(reference):
    rollout, episodes = reference
    for lane in range(LANES):
        episode, count = 0, 0
        for row in range(STEPS * ROLLOUTS):
            assert rollout.obs[row, lane, 1:].tolist() == [episode, count]
            count += 1
            assert rollout.next_obs[row, lane, 1:].tolist() == [episode, count]
            over, odd = count == 1 + episode % 7, episode % 2 == 1
            assert rollout.reward[row, lane] == count + rollout.action[row, lane]
            assert bool(rollout.terminated[row, lane]) == (over and not odd)
            assert bool(rollout.truncated[row, lane]) == (over and odd)
            if over:
                episode, count = episode + 1, 0
        of_lane = [e for e in episodes if e.lane == lane]
        kinds = {(1 + e % 7, bool(e % 2)) for e in range(episode)}
        assert kinds == {(length, odd) for length in range(1, 8) for odd in (False, True)}
        assert [e.length for e in of_lane] == [1 + e % 7 for e in range(episode)]
        rewards = np.split(rollout.reward[:, lane], np.cumsum([e.length for e in of_lane]))
        assert [e.total for e in of_lane] == [part.sum() for part in rewards[:-1]]


@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name != "in process"])
def test_every_mode_gives_the_same_transitions(name, reference):
    rollout, episodes = rollouts(ENVIRONMENTS[name](), PPO(), jax.random.key(3))
    jax.tree.map(np.testing.assert_array_equal, rollout, reference[0])
    # Where rows are idle, lanes that were ahead have finished more episodes.
    assert set(reference[1]) <= set(episodes)
    if name != "NEXT_STEP with idle rows":
        assert sorted(episodes) == sorted(reference[1])
