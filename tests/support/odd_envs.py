"""One sound environment, and others that differ from it in one oddity each. No JAX here."""

import random
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Sound(gymnasium.Env):
    """A walk on a line: nothing is wrong with it. ``limit`` steps, then the clock ends it."""

    limit = 12

    def __init__(self):
        self.observation_space = spaces.Box(-20.0, 20.0, (2,), np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at, self.time = float(self.np_random.uniform(-1, 1)), 0
        return self.observe(), {}

    def step(self, action):
        self.at += 0.3 * float(action[0]) + 0.1 * float(self.np_random.normal())
        self.time += 1
        over = abs(self.at) > 3
        clock = self.time >= self.limit and not over
        return self.observe(), -abs(self.at), over, clock, {}

    def observe(self):
        return np.array([self.at, self.time / 10], np.float32)


class Hangs(Sound):
    def step(self, action):
        time.sleep(1_000)


class HangsWhenMade(Sound):
    def __init__(self):
        time.sleep(1_000)


class RaisesWhenMade(Sound):
    def __init__(self):
        raise OSError("no display")


class Raises(Sound):
    def step(self, action):
        raise ArithmeticError("the wheels came off")


class NoSpace(Sound):
    def __init__(self):
        self.action_space = spaces.Discrete(2)


class Words(Sound):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Text(5)


class DictActions(Sound):
    def __init__(self):
        super().__init__()
        self.action_space = spaces.Dict({"a": spaces.Discrete(2)})


class FloatImage(Sound):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(0.0, 255.0, (4, 4, 3), np.float32)

    def observe(self):
        return self.np_random.uniform(0, 255, (4, 4, 3)).astype(np.float32)


class UnboundedAction(Sound):
    def __init__(self):
        super().__init__()
        self.action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class NoSeed(Sound):
    def reset(self):
        self.at, self.time = random.uniform(-1, 1), 0
        return self.observe(), {}


class OldReset(Sound):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


class OldStep(Sound):
    def step(self, action):
        obs, reward, over, clock, info = super().step(action)
        return obs, reward, over or clock, info


class NoInfo(Sound):
    def step(self, action):
        return (*super().step(action)[:4], None)


class FloatFlags(Sound):
    def step(self, action):
        obs, reward, over, clock, info = super().step(action)
        return obs, reward, int(over), clock, info


class Float64(Sound):
    def observe(self):
        return super().observe().astype(np.float64)


class Lists(Sound):
    def observe(self):
        return super().observe().tolist()


class NoReward(Sound):
    def step(self, action):
        obs, _, over, clock, info = super().step(action)
        return obs, None, over, clock, info


class ArrayReward(Sound):
    def step(self, action):
        obs, reward, over, clock, info = super().step(action)
        return obs, np.array([reward]), over, clock, info


class NotANumber(Sound):
    def observe(self):
        return np.array([np.nan if self.time == 5 else self.at, 0.0], np.float32)


class Outside(Sound):
    def observe(self):
        return np.array([self.at, 30.0 if self.time == 5 else 0.0], np.float32)


class WrongShape(Sound):
    def observe(self):
        return np.zeros(3, np.float32)


class Unseeded(Sound):
    """Its steps draw from a generator that no seed reaches."""

    def step(self, action):
        self.at += random.uniform(-0.1, 0.1)
        return super().step(action)


class Remembers(Sound):
    """A reset forgets everything but how often there was one."""

    resets = 0

    def observe(self):
        return np.array([self.at, self.resets / 10], np.float32)

    def reset(self, *, seed=None, options=None):
        self.resets += 1
        return super().reset(seed=seed)


class Fixed(Sound):
    """Whatever the seed."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=0)


class SeedsItself(Sound):
    """Every reset without a seed begins the same random stream."""

    seeds = 0

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=7 if seed is None else seed)


class Reuses(Sound):
    def observe(self):
        self.kept = getattr(self, "kept", np.zeros(2, np.float32))
        self.kept[:] = self.at, self.time / 10
        return self.kept


class WritesActions(Sound):
    def step(self, action):
        action *= 0.5
        return super().step(action)


class Endless(Sound):
    limit = 10**9

    def step(self, action):
        self.at *= 0.5
        return super().step(action)

    def observe(self):
        return np.array([self.at, self.time % 7 / 10], np.float32)


class ClockTerminates(Sound):
    """Says that the task ended when the clock did."""

    def step(self, action):
        self.at = float(np.clip(self.at, -1, 1))
        obs, reward, _, clock, info = super().step(action)
        return obs, reward, clock, False, info


class OldClock(Sound):
    def step(self, action):
        obs, reward, over, clock, _ = super().step(action)
        return obs, reward, over or clock, False, {"TimeLimit.truncated": clock}


class BothFlags(Sound):
    def step(self, action):
        obs, reward, over, clock, info = super().step(action)
        return obs, reward, over or clock, clock, info


class Large(Sound):
    def __init__(self):
        super().__init__()
        self.observation_space = spaces.Box(-1e6, 1e6, (2,), np.float32)

    def observe(self):
        return np.array([1e4 * self.at, self.time], np.float32)


class Tiny(Sound):
    def observe(self):
        return np.array([1e-4 * self.at, 1e-5 * self.time], np.float32)


class Constant(Sound):
    def observe(self):
        return np.array([self.at, 0.5], np.float32)


class LargeRewards(Sound):
    def step(self, action):
        obs, reward, over, clock, info = super().step(action)
        return obs, 1_000 * reward, over, clock, info


class TinyRewards(Sound):
    def step(self, action):
        obs, reward, over, clock, info = super().step(action)
        return obs, 1e-4 * reward, over, clock, info


class NoRewards(Sound):
    def step(self, action):
        obs, _, over, clock, info = super().step(action)
        return obs, 0.0, over, clock, info


class Stutters(Sound):
    def step(self, action):
        if self.np_random.random() < 0.03:
            time.sleep(0.01)
        return super().step(action)


class Parts(Sound):
    """A Dict whose reset forgets one part, and whose step has one too many."""

    def __init__(self):
        super().__init__()
        box = spaces.Box(-20.0, 20.0, (2,), np.float32)
        self.observation_space = spaces.Dict({"one": box, "two": box})


class ForgetsAPart(Parts):
    def observe(self):
        row = super().observe()
        return {"one": row, "two": row.copy()} if self.time else {"one": row}


class AddsAPart(Parts):
    def observe(self):
        row = super().observe()
        return {"one": row, "two": row.copy(), "three": 3}


class LimitedWrongly(Sound):
    """Says a limit of 5, and goes on until 12."""

    def __init__(self):
        super().__init__()
        self.spec = gymnasium.envs.registration.EnvSpec("Limited-v0", max_episode_steps=5)
