"""A stand-in for the envpool package: as much of its interface as trimtab uses, in Python.

Its lanes are the counting environments of ``broken_envs``. As envpool does, it steps all lanes in
NEXT_STEP mode unless lanes are reset by their ids, fixes seeds when a pool is made, and answers
with the ids of the lanes.
"""

import collections
import types

import numpy as np
from broken_envs import Counting
from gymnasium import spaces

DEFAULTS = {
    "num_envs": 1,
    "batch_size": 0,
    "seed": 42,
    "env_seed": [],
    "max_episode_steps": 500,
    "reward_threshold": 3.0,
    "episodic_life": False,
    "reward_clip": False,
}
Config = collections.namedtuple("Config", DEFAULTS)


def list_all_envs():
    return ["Counting-v0", "Other-v0"]


def make_spec(task_id, **options):
    return types.SimpleNamespace(
        config=Config(**(DEFAULTS | options)),
        gymnasium_observation_space=spaces.Box(-1e6, 1e6, (3,), np.float64),
        gymnasium_action_space=spaces.Discrete(2),
    )


class FakePool:
    observation_space = None

    def __init__(self, num_envs, env_seed, max_episode_steps=500, reward_clip=False):
        self.lanes = [Counting() for _ in range(num_envs)]
        self.seeds, self.limit, self.clip = list(env_seed), max_episode_steps, reward_clip
        self.ended = [False] * num_envs

    def reset(self, lanes=None):
        lanes = range(len(self.lanes)) if lanes is None else lanes
        return np.stack([self.begin(lane) for lane in lanes]), {"env_id": np.array(lanes)}

    def begin(self, lane):
        seed, self.seeds[lane] = self.seeds[lane], None
        self.ended[lane] = False
        return self.lanes[lane].reset(seed=seed)[0].astype(np.float64)

    def step(self, actions):
        rows = [self.step_lane(lane, action) for lane, action in enumerate(actions)]
        obs, reward, terminated, truncated = map(np.array, zip(*rows, strict=True))
        info = {"env_id": np.arange(len(rows))}
        return obs, reward.astype(np.float32), terminated, truncated, info

    def step_lane(self, lane, action):
        if self.ended[lane]:
            return self.begin(lane), 0.0, False, False
        obs, reward, terminated, truncated, _ = self.lanes[lane].step(action)
        truncated = truncated or (self.lanes[lane].time >= self.limit and not terminated)
        self.ended[lane] = terminated or truncated
        reward = float(np.sign(reward)) if self.clip else 10 * reward
        return obs.astype(np.float64), reward, terminated, truncated

    def close(self):
        self.lanes = []


def make(task_id, env_type, **options):
    assert env_type == "gymnasium"
    options.pop("episodic_life", None)
    return FakePool(**options)
