"""Gymnasium environments that break in one way each, and some that are whole. No JAX here."""

import os
import signal
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Counting(gymnasium.Env):
    """Shows (the seed's number, the episode, the step) and ends episodes of 1 to 7 steps.

    ``breaks`` is what goes wrong at step ``at`` of each episode: a method of this class.
    """

    def __init__(self, breaks="nothing", at=3, shared_buffer=False):
        self.observation_space = spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.action_space = spaces.Discrete(2)
        self.breaks, self.at = getattr(self, breaks), at
        self.number = self.episode = self.time = 0
        self.length = 10
        self.buffer = np.zeros(3, np.float32) if shared_buffer else None

    def observe(self):
        now = np.array([self.number, self.episode, self.time], np.float32)
        if self.buffer is None:
            return now
        self.buffer[:] = now
        return self.buffer

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.number, self.episode = int(self.np_random.integers(1_000)), 0
        self.episode += 1
        self.time = 0
        self.length = int(self.np_random.integers(1, 8)) if self.breaks == self.nothing else 10
        return self.observe(), {}

    def step(self, action):
        self.time += 1
        ended = self.time == self.length
        clock = self.episode % 2 == 0
        answer = (self.observe(), float(action), ended and not clock, ended and clock, {})
        return self.breaks(answer) if self.time == self.at else answer

    def nothing(self, answer):
        return answer

    def raises(self, answer):
        raise ArithmeticError("the wheels came off")

    def hangs(self, answer):
        time.sleep(1_000)

    def dies(self, answer):
        os.kill(os.getpid(), signal.SIGKILL)

    def nan(self, answer):
        answer[0][1] = np.nan
        return answer

    def infinite_reward(self, answer):
        return (answer[0], np.inf, *answer[2:])

    def no_reward(self, answer):
        return (answer[0], None, *answer[2:])

    def object_reward(self, answer):
        return (answer[0], object(), *answer[2:])

    def vector_reward(self, answer):
        return (answer[0], np.ones(2), *answer[2:])

    def huge_reward(self, answer):
        return (answer[0], 1e300, *answer[2:])

    def wrong_shape(self, answer):
        return (answer[0][:2], *answer[1:])

    def wrong_dtype(self, answer):
        return (np.array(["a", "b", "c"]), *answer[1:])

    def objects(self, answer):
        return (np.array([1.0, None, 2.0], object), *answer[1:])

    def overflow(self, answer):
        return (np.array([0.0, 0.0, 1e300]), *answer[1:])

    def outside(self, answer):
        return (np.array([0.0, 2e6, 0.0], np.float32), *answer[1:])

    def four(self, answer):
        return answer[:2] + answer[3:]

    def no_flag(self, answer):
        return (*answer[:2], None, False, {})


class NoReset(Counting):
    """Raises in every reset."""

    def reset(self, *, seed=None, options=None):
        raise OSError("the licence server is gone")


class NoConstruction(Counting):
    """Hangs while it is made."""

    def __init__(self):
        time.sleep(1_000)


class Pixels(gymnasium.Env):
    """A Dict of an image, a Discrete that counts from 5, and a nested vector of float64."""

    def __init__(self, level=7):
        inner = spaces.Dict({"speed": spaces.Box(-1, 1, (2,), np.float64)})
        self.observation_space = spaces.Dict(
            {
                "image": spaces.Box(0, 255, (4, 4, 3), np.uint8),
                "level": spaces.Discrete(3, start=5),
                "body": inner,
            }
        )
        self.action_space = spaces.Discrete(4, start=-1)
        self.level = level

    def observe(self):
        image = self.np_random.integers(0, 256, (4, 4, 3), np.uint8)
        speed = self.np_random.uniform(-1, 1, 2)
        return {"image": image, "level": self.level, "body": {"speed": speed}}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self.observe(), {}

    def step(self, action):
        return self.observe(), int(action), False, False, {}


class Flaky(gymnasium.Wrapper):
    """Raises in a step now and then, and hangs more rarely; each leaves a mark in a file."""

    def __init__(self, env, marks, raises, hangs):
        super().__init__(env)
        self.marks, self.raises, self.hangs = marks, raises, hangs

    def step(self, action):
        # Whether it breaks follows from the lane's own stream, which a restart seeds afresh.
        luck = self.env.unwrapped.np_random.random()
        if luck < self.raises:
            self.mark("r")
            raise ConnectionError("lost the simulator")
        if luck < self.raises + self.hangs:
            self.mark("h")
            time.sleep(1_000)
        return self.env.step(action)

    def mark(self, kind):
        with open(self.marks, "a") as file:
            file.write(kind)


def flaky_cartpole(marks, raises, hangs):
    return Flaky(gymnasium.make("CartPole-v1"), marks, raises, hangs)


class Slow(Counting):
    """Its steps take 0, 0.3 or 0.6 seconds: the remainder of its seed by three says which."""

    def reset(self, *, seed=None, options=None):
        if seed is not None:
            self.seconds = 0.3 * (seed % 3)
        return super().reset(seed=seed)

    def step(self, action):
        time.sleep(self.seconds)
        return super().step(action)


class Differing:
    """Makes environments whose observations grow."""

    def __init__(self):
        self.size = 0

    def __call__(self):
        self.size += 1
        env = Counting()
        env.observation_space = spaces.Box(-1, 1, (self.size,))
        return env
