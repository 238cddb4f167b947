"""First come, first served: rollouts from whichever workers are ready.

Where steps take unequal time, waiting for all lanes in each step is waiting for the slowest. Here
each worker goes through its fragments (``num_steps`` steps of its lanes) at its own pace, and an
update learns from the first ones that are complete, as many as make N×T transitions. A fragment is
acted by one policy, the newest that was there when it began; it carries that policy's version.
Fragments older than ``max_staleness`` updates are dropped, and counted.

Which worker is first depends on the machine, so such a run cannot be reproduced.
"""

import functools
from collections import deque
from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, final

import jax
import numpy as np
from jax import Array

from trimtab.collect.acting import ActingPrograms
from trimtab.collect.host import Episode, LaneCollector, lane_seeds
from trimtab.collect.workers import WorkerPool
from trimtab.envs.state import UnsavableError
from trimtab.keys import Purpose, stream
from trimtab.types import Rollout


class Policy(NamedTuple):
    """A learner that may act."""

    learner: Any
    version: int  # the updates that it has seen


class Fragment(NamedTuple):
    """What one worker's lanes did under one policy."""

    rollout: Rollout
    version: int


@final
class FirstComeCollector:
    """Collects rollouts from a pool whose workers have equally many lanes.

    ``programs`` act for the lanes of one worker.
    """

    def __init__(
        self, pool: WorkerPool, programs: ActingPrograms, num_steps: int, max_staleness: int
    ):
        self._pool = pool
        self._programs = programs
        self._max_staleness = max_staleness
        lanes = pool.num_envs // pool.num_workers
        self._collectors = [
            LaneCollector(lanes, programs, num_steps) for _ in range(pool.num_workers)
        ]
        self._views = [pool.view(rows) for rows in pool.rows]
        self._begun = [0] * pool.num_workers  # fragments of each worker
        self._complete: deque[Fragment] = deque()
        self._ages: list[int] = []
        self._dropped = 0

    def start(self, algorithm: Any, learner: Any, root: Array, update: int) -> None:
        """Begin an episode in every lane, and let every worker begin its first fragment."""
        self._pool.reset(lane_seeds(root, update, self._pool.num_envs))
        self._newest = self._acting = Policy(learner, update)
        self._roots = [stream(root, Purpose.WORKER, n) for n in range(self._pool.num_workers)]
        self._steps = []
        for number, collector in enumerate(self._collectors):
            collector.start(algorithm, learner, self._views[number].obs)
            self._steps.append(self._fragment(number, algorithm))
            self._pool.begin(number, next(self._steps[number]))

    def shapes(self, of_worker: Rollout) -> Rollout:
        """The shapes of a rollout, from those of one worker's."""

        def along(axis: int, leaf: Any) -> jax.ShapeDtypeStruct:
            shape = list(leaf.shape)
            shape[axis] *= self._pool.num_workers
            return jax.ShapeDtypeStruct(shape, leaf.dtype)

        memory = jax.tree.map(functools.partial(along, 0), of_worker.memory)
        rest = jax.tree.map(functools.partial(along, 1), of_worker._replace(memory=()))
        return rest._replace(memory=memory)

    def collect(self, algorithm: Any, learner: Any, root: Array, update: int) -> Rollout:
        """The first fragments to be complete, as one rollout of N lanes."""
        self._newest = Policy(learner, update)
        workers = range(self._pool.num_workers)
        taken: list[Fragment] = []
        while len(taken) < len(workers):
            while self._complete and len(taken) < len(workers):
                fragment = self._complete.popleft()
                if update - fragment.version <= self._max_staleness:
                    taken.append(fragment)
                else:
                    self._dropped += 1
            if len(taken) < len(workers):
                for number in self._pool.ready(workers):
                    self._advance(number, algorithm)
        self._ages += [update - fragment.version for fragment in taken]
        return joined([fragment.rollout for fragment in taken])

    def save(self) -> dict[str, np.ndarray]:
        """Workers are in the middle of fragments at any time."""
        raise UnsavableError("its workers are served first come, first served")

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """As ``save``."""
        raise UnsavableError("its workers are served first come, first served")

    def take_episodes(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        return [
            episode._replace(lane=self._pool.lanes[number].start + episode.lane)
            for number, collector in enumerate(self._collectors)
            for episode in collector.tally.take()
        ]

    def take_metrics(self) -> Mapping[str, float]:
        """How old the fragments were since the last call, in updates, and how many were dropped."""
        ages, self._ages = self._ages or [0], []
        dropped, self._dropped = self._dropped, 0
        return {
            "rollout/staleness_mean": float(np.mean(ages)),
            "rollout/staleness_max": float(max(ages)),
            "rollout/dropped_fragments": float(dropped),
        }

    def _advance(self, number: int, algorithm: Any) -> None:
        """Take a worker's answer in, and let it take its next step at once."""
        restarted = self._pool.finish(number)
        idle = self._pool.rows[number].idle.copy() if restarted else None
        answer = self._views[number], idle
        try:
            actions = self._steps[number].send(answer)
        except StopIteration as done:
            self._complete.append(done.value)
            self._steps[number] = self._fragment(number, algorithm)
            actions = next(self._steps[number])
        self._pool.begin(number, actions)

    def _fragment(self, number: int, algorithm: Any) -> Generator[np.ndarray, Any, Fragment]:
        """One worker's next fragment, by the newest policy that need not be waited for."""
        if all(leaf.is_ready() for leaf in jax.tree.leaves(self._newest.learner)):
            self._acting = self._newest
        policy, begun = self._acting, self._begun[number]
        self._begun[number] += 1
        rollout = yield from self._collectors[number].steps(
            algorithm, policy.learner, self._roots[number], begun
        )
        return Fragment(rollout, policy.version)


def joined(rollouts: list[Rollout]) -> Rollout:
    """Rollouts of some lanes each as one of all of them."""

    def along(axis: int, trees: list[Any]) -> Any:
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis), *trees)

    memory = along(0, [rollout.memory for rollout in rollouts])
    rest = along(1, [rollout._replace(memory=()) for rollout in rollouts])
    return rest._replace(memory=memory)
