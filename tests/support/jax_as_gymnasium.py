"""A JAX environment as a Gymnasium environment, with the random streams of compiled collection.

So the same lanes can be collected in every way that there is, and must come out the same. A lane
knows which one it is by the seed of its first episode, and counts its steps to know the streams.
"""

import functools

import gymnasium
import jax
import numpy as np
from gymnasium import spaces

from trimtab.collect.host import lane_seeds
from trimtab.envs.make import make
from trimtab.keys import Purpose, lane_streams
from trimtab.spaces import Discrete


class AsGymnasium(gymnasium.Env):
    """Lanes of ``env_id`` in a run with that seed, N lanes and T steps.

    Each seed begins a rollout: the first of the run, or where there are ``updates``, any of those.
    """

    def __init__(self, env_id, seed, num_envs, num_steps, updates=1):
        self.env, self.num_steps = make(env_id), num_steps
        self.root = jax.random.key(seed)
        self.seeds = {
            lane_seed: (update, lane)
            for update in range(updates)
            for lane, lane_seed in enumerate(lane_seeds(self.root, update, num_envs))
        }
        self.observation_space = as_gymnasium(self.env.spec.observation)
        self.action_space = as_gymnasium(self.env.spec.action)
        self._reset, self._step = jax.jit(self.env.reset), jax.jit(self.env.step)
        self._begin_again = jax.jit(lambda key, t: self.env.reset(jax.random.fold_in(key, t)))

    @functools.cache  # noqa: B019 (a test's environment is short-lived)
    def keys(self, update):
        """The keys of each step, and that of resets, in one update."""
        of_lane = [
            lane_streams(self.root, purpose, update, np.int32([self.lane]))[0]
            for purpose in (Purpose.STEP, Purpose.RESET)
        ]
        return jax.random.split(of_lane[0], self.num_steps), of_lane[1]

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            update, self.lane = self.seeds[seed]
            self.count = update * self.num_steps
            key = lane_streams(self.root, Purpose.FIRST_RESET, update, np.int32([self.lane]))[0]
            self.state, obs = self._reset(key)
        else:  # the step before ended an episode
            update, t = divmod(self.count - 1, self.num_steps)
            self.state, obs = self._begin_again(self.keys(update)[1], np.int32(t))
        return np.asarray(obs), {}

    def step(self, action):
        update, t = divmod(self.count, self.num_steps)
        self.count += 1
        self.state, told = self._step(self.keys(update)[0][t], self.state, action)
        obs, reward = np.asarray(told.obs), float(told.reward)
        return obs, reward, bool(told.terminated), bool(told.truncated), {}


def as_gymnasium(space):
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    low, high = (bound.astype(np.float32) for bound in space.bounds())
    return spaces.Box(low.reshape(space.shape), high.reshape(space.shape), dtype=np.float32)
