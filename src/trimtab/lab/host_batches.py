"""Independent batches from environments outside of compiled programs.

Stepping these is what a survey's time is spent on, so their lanes go on from one group of batches
to the next, and are only carried on between them.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, final

import jax
import numpy as np
from jax import Array

from trimtab.collect.acting import ActingPrograms
from trimtab.collect.host import HostCollector
from trimtab.collect.settings import HostSettings
from trimtab.collect.vectorize import vectorize
from trimtab.envs.sources import HostSource
from trimtab.errors import SettingError
from trimtab.keys import Purpose, stream
from trimtab.lab.batches import Request, shortest_seconds
from trimtab.lab.collecting import Facts
from trimtab.lab.plan import Split
from trimtab.spaces import EnvSpec
from trimtab.types import HostEnv, Rollout

# Lanes whose episodes are to be out of step are in this many parts, each carried on for another
# number of steps: a vector of environments steps all its lanes.
PARTS = 8
# Rollouts are collected in pieces, so that carrying on and measuring share their programs.
LONGEST_PIECE = 16


@final
class HostBatches:
    """From a source of host environments, which are stepped in this process."""

    def __init__(self, source: HostSource, settings: HostSettings):
        if source.num_envs is not None:
            raise SettingError(
                f"{source.spec.id} is a vector of {source.num_envs} lanes, and the lab needs "
                "other numbers of them: give what makes one gymnasium.Env."
            )
        self.env = source
        self._settings = dataclasses.replace(settings, vectorization="in-process", num_workers=0)

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    @property
    def side_by_side(self) -> int:
        return 2

    @property
    def reference_batches(self) -> int:
        return 20

    def _lanes(self, count: int) -> HostEnv:
        return vectorize(self.env, count, self._settings)

    def _programs(self, algorithm: Any, learner: Any, lanes: int, steps: int) -> ActingPrograms:
        return ActingPrograms(algorithm, learner, self.spec.action, lanes, steps)

    def groups(
        self, algorithm: Any, learner: Any, root: Array, request: Request
    ) -> Iterator[tuple[Rollout, Facts]]:
        lanes = request.split.lanes * request.batches
        parts = largest_divisor(lanes, PARTS) if request.start == "stationary" else 1
        piece = largest_divisor(request.split.steps, LONGEST_PIECE)
        programs = self._programs(algorithm, learner, lanes // parts, piece)
        with contextlib.ExitStack() as stack:
            envs = [
                stack.enter_context(contextlib.closing(self._lanes(lanes // parts)))
                for _ in range(parts)
            ]
            walks = [
                Walk(env, programs, algorithm, learner, stream(root, Purpose.LAB, 7, part), piece)
                for part, env in enumerate(envs)
            ]
            for group in range(request.groups):
                for part, walk in enumerate(walks):
                    if group == 0 or request.start != "stationary":
                        walk.begin(group)
                    share = (part + 0.5) / parts if group == 0 and parts > 1 else 0.0
                    if request.start != "fresh":
                        walk.carry_on(round(request.warm_up * (1.0 + share)))
                found = [walk.rollout(request.split.steps) for walk in walks]
                yield interleaved([one for one, _ in found]), _joined([one for _, one in found])

    def shapes(self, algorithm: Any, learner: Any) -> Rollout:
        programs = self._programs(algorithm, learner, 1, 1)
        return programs.compile(algorithm, learner, self.spec.observation)

    def update_seconds(self, algorithm: Any, learner: Any, split: Split) -> float:
        root, key = jax.random.key(0), jax.random.key(1)
        learn: Any = jax.jit(lambda algorithm, *rest: algorithm.update(*rest))
        programs = self._programs(algorithm, learner, split.lanes, split.steps)
        with contextlib.closing(self._lanes(split.lanes)) as env:
            collector = HostCollector(env, programs, split.steps)
            collector.start(algorithm, learner, root, 0)

            def update() -> Any:
                rollout = collector.collect(algorithm, learner, root, 0)
                return learn(algorithm, learner, rollout, key)

            return shortest_seconds(update)


@final
class Walk:
    """Some lanes under one policy, which never learns."""

    def __init__(
        self,
        env: HostEnv,
        programs: ActingPrograms,
        algorithm: Any,
        learner: Any,
        root: Array,
        piece: int,
    ):
        self._collector = HostCollector(env, programs, piece)
        self._who = algorithm, learner
        self._root = root
        self._piece = piece
        self._count = 0  # of pieces: each has random numbers of its own

    def begin(self, number: int) -> None:
        """New episodes in every lane, others for every number."""
        self._collector.start(*self._who, self._root, number)

    def carry_on(self, steps: int) -> None:
        for _ in range(-(-steps // self._piece)):
            self._collect()
        self._collector.take_episodes()

    def rollout(self, steps: int) -> tuple[Rollout, Facts]:
        """The next ``steps`` steps, which pieces divide."""
        pieces = [self._collect() for _ in range(steps // self._piece)]
        episodes = self._collector.take_episodes()
        without = [piece._replace(memory=()) for piece in pieces]
        joined = jax.tree.map(lambda *leaves: np.concatenate(leaves), *without)
        facts = Facts(
            joined.reward.min(),
            joined.reward.max(),
            joined.terminated.sum(),
            np.float64(len(episodes)),
            np.float64(sum(episode.total for episode in episodes)),
        )
        return joined._replace(memory=pieces[0].memory), facts

    def _collect(self) -> Rollout:
        self._count += 1
        return self._collector.collect(*self._who, self._root, self._count)


def interleaved(parts: list[Rollout]) -> Rollout:
    """Rollouts of equally many lanes as one, in which neighbours are lanes of different parts."""

    def along(axis: int) -> Any:
        def joined(*leaves: Any) -> np.ndarray:
            stacked = np.stack([np.asarray(leaf) for leaf in leaves], axis=axis + 1)
            shape = stacked.shape
            return stacked.reshape(*shape[:axis], -1, *shape[axis + 2 :])

        return joined

    memory = jax.tree.map(along(0), *[part.memory for part in parts])
    rows = jax.tree.map(along(1), *[part._replace(memory=()) for part in parts])
    return rows._replace(memory=memory)


def _joined(parts: list[Facts]) -> Facts:
    return Facts(
        min(part.lowest_reward for part in parts),
        max(part.highest_reward for part in parts),
        np.sum([part.terminations for part in parts]),
        np.sum([part.episodes for part in parts]),
        np.sum([part.return_sum for part in parts]),
    )


def largest_divisor(number: int, most: int) -> int:
    """The largest divisor of a number that is not above another."""
    return max(d for d in range(1, min(number, most) + 1) if number % d == 0)
