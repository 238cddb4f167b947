"""Plays an environment with random actions, through the adapters that training uses.

Faults are mended and kept, so that one play finds several.
"""

import time
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from trimtab.collect.host import Episode, EpisodeTally
from trimtab.collect.random_actions import random_actions
from trimtab.errors import EnvironmentFaultError
from trimtab.faults import FaultPolicy, LaneFault
from trimtab.types import HostEnv

# Faults are met by new episodes, so that later ones are found too; after some, enough is known.
LENIENT = FaultPolicy("reset", max_restarts=20)
_MOST_BYTES = 64 * 2**20  # of steps that are kept to be compared


@final
class LeafFigures:
    """Mean, deviation and range of each element of an array, over steps and lanes."""

    def __init__(self, shape: tuple[int, ...]):
        self.count = 0
        self._sum, self._squares = np.zeros(shape), np.zeros(shape)
        self.low, self.high = np.full(shape, np.inf), np.full(shape, -np.inf)

    def add(self, rows: np.ndarray) -> None:
        """Rows [lanes, ...] of one step."""
        numbers = rows.astype(np.float64)
        self.count += len(numbers)
        self._sum += numbers.sum(axis=0)
        self._squares += (numbers**2).sum(axis=0)
        self.low = np.minimum(self.low, numbers.min(axis=0, initial=np.inf))
        self.high = np.maximum(self.high, numbers.max(axis=0, initial=-np.inf))

    @property
    def mean(self) -> np.ndarray:
        return self._sum / max(self.count, 1)

    @property
    def rms(self) -> np.ndarray:
        """Root of the mean square: how large the numbers are, wherever their middle is."""
        return np.sqrt(self._squares / max(self.count, 1))


class Play:
    """What was seen in a play."""

    def __init__(self, lanes: int) -> None:
        self.first: list[np.ndarray] = []  # the leaves of the first observation
        self.rows: list[list[np.ndarray]] = []  # of each step: reward, flags, leaves of next_obs
        self.figures: list[LeafFigures] = []
        self.rewards = LeafFigures(())
        self.faults: list[LaneFault] = []
        self.ended_by = ""  # what was wrong, if the play could not go on
        self.episodes: list[Episode] = []
        self.ends: list[tuple[int, bool]] = []  # of each episode: length, and whether truncated
        self.unfinished: list[Episode] = []
        self.broken_at: int | None = None  # the step of the first fault
        self.seconds: list[float] = []  # of each step of all lanes
        self.lanes = lanes

    @property
    def steps(self) -> int:
        return len(self.seconds) * self.lanes

    @property
    def comparable(self) -> int:
        """Steps before the first fault that were kept."""
        return len(self.rows) if self.broken_at is None else min(len(self.rows), self.broken_at)


def leaves_of(observation: Any) -> list[np.ndarray]:
    if isinstance(observation, dict):
        return [leaf for value in observation.values() for leaf in leaves_of(value)]
    return [np.asarray(observation)]


def play(env: HostEnv, seeds: Sequence[int], steps: int, episodes: int, seconds: float) -> Play:
    """Until so many episodes have ended, or steps of a lane, or seconds have gone by.

    The actions are the same in every play.
    """
    seen = Play(env.num_envs)
    tally = EpisodeTally(env.num_envs)
    rng = np.random.default_rng(0)
    begun, kept = time.perf_counter(), 0
    try:
        obs = env.reset(seeds)
        seen.first = [leaf.copy() for leaf in leaves_of(obs)]
        seen.faults += env.take_faults()
        seen.figures = [LeafFigures(leaf.shape[1:]) for leaf in seen.first]
        for number in range(steps):
            actions = random_actions(env.spec, obs, env.num_envs, rng)
            before = time.perf_counter()
            step = env.step(actions)
            obs = step.obs
            seen.seconds.append(time.perf_counter() - before)
            faults = env.take_faults()
            seen.faults += faults
            if faults and seen.broken_at is None:
                seen.broken_at = number
            idle = env.idle
            ended = tally.add(step, idle)
            _keep_ends(seen, tally, ended, step)
            sound = np.ones(env.num_envs, bool) if idle is None else ~idle
            leaves = leaves_of(step.next_obs)
            for figures, leaf in zip(seen.figures, leaves, strict=True):
                figures.add(leaf[sound])
            seen.rewards.add(np.asarray(step.reward)[sound])
            if kept < _MOST_BYTES:
                row = [step.reward, step.terminated, step.truncated, *leaves]
                seen.rows.append([np.array(part) for part in row])
                kept += sum(part.nbytes for part in seen.rows[-1])
            if len(seen.ends) >= episodes or time.perf_counter() - begun > seconds:
                break
    except EnvironmentFaultError as error:
        seen.faults += env.take_faults()
        seen.ended_by = str(error)
        if seen.broken_at is None:
            seen.broken_at = len(seen.rows)
    seen.unfinished = tally.unfinished
    return seen


def _keep_ends(seen: Play, tally: EpisodeTally, ended: np.ndarray, step: Any) -> None:
    if ended.any():
        for episode in tally.take():
            seen.episodes.append(episode)
            seen.ends.append((episode.length, bool(step.truncated[episode.lane])))
