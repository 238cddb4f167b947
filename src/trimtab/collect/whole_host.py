"""Rollouts of whole episodes from environments outside of compiled programs; see ``whole``.

Each rollout begins with a reset of all lanes, whose seeds follow from the root key and the update.
So all that goes on from one rollout to the next is the lanes' leads, and a run can be resumed
exactly on every environment that a seed determines.
"""

from collections.abc import Mapping
from typing import Any, final

import jax
import numpy as np
from jax import Array

from trimtab.collect.acting import ActingPrograms
from trimtab.collect.host import Episode, EpisodeTally, copied, lane_seeds
from trimtab.collect.whole import padded
from trimtab.errors import EnvironmentFaultError
from trimtab.types import HostEnv, Rollout

# Steps of all lanes in which a rollout must have come together, in rollouts. Only faults cost any.
MOST_ROUNDS = 4


@final
class WholeCollector:
    """Collects the whole episodes of ``num_steps`` steps a lane, in ``rows`` rows at the most."""

    def __init__(self, env: HostEnv, programs: ActingPrograms, num_steps: int, rows: int):
        self._env, self._programs = env, programs
        self._num_steps, self._rows = num_steps, rows
        self._tally = EpisodeTally(env.num_envs)
        self._lead = np.zeros(env.num_envs, np.int32)
        self._metrics: dict[str, int] = {}

    def start(self, algorithm: Any, learner: Any, root: Array, update: int) -> None:
        """Each rollout begins its episodes itself."""

    def collect(self, algorithm: Any, learner: Any, root: Array, update: int) -> Rollout:
        """A rollout whose leaves are [rows, N, ...]: numpy arrays that are the caller's."""
        lanes, programs = self._env.num_envs, self._programs
        obs = copied(self._env.reset(lane_seeds(root, update, lanes)))
        prepared = programs.prepare(algorithm, learner, root, np.int32(update))
        first_memory = memory = programs.first_memories(algorithm, learner)
        filled = Filled(self._rows, self._lead, self._num_steps)
        last, stepped = None, 0
        while filled.unfinished:
            if stepped == MOST_ROUNDS * self._rows:
                raise EnvironmentFaultError(
                    f"Lane {int(np.argmax(filled.playing))} did not finish an episode in "
                    f"{stepped:,} steps. Its environment seems to do nothing but restart."
                )
            acted = programs.act(prepared, memory, last, obs, filled.next)
            memory, taken = acted.memory, acted.action if acted.taken is None else acted.taken
            step = self._env.step(np.asarray(taken))
            idle = self._env.idle
            row = Rollout.row(obs, acted.action, acted.extras, step)
            unused = ~filled.playing if idle is None else idle | ~filled.playing
            self._tally.add(step, unused)
            ended = filled.put(row, idle)
            obs = copied(step.obs)
            last = (np.array(step.reward), ended) if jax.tree.leaves(memory) else None
            stepped += 1
        self._lead = filled.lead
        transitions = int(filled.taken.sum())
        self._metrics = {
            "rollout/transitions": transitions,
            "rollout/steps_ahead": int(self._lead.sum()),
            "rollout/unused_steps": stepped * lanes - transitions,
        }
        return filled.rollout()._replace(memory=first_memory)

    def save(self) -> dict[str, np.ndarray]:
        """All that goes on after a rollout."""
        return {"lead": self._lead.copy()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``save`` gave."""
        self._lead = np.asarray(saved["lead"]).copy()

    def take_episodes(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        return self._tally.take()

    def take_metrics(self) -> Mapping[str, float]:
        """What the latest rollout took."""
        return self._metrics


@final
class Filled:
    """A rollout on its way: which lanes play, and how many rows each has."""

    def __init__(self, rows: int, lead: np.ndarray, num_steps: int):
        self._num_rows, self._before, self._num_steps = rows, lead, num_steps
        self.playing = lead < num_steps
        self.taken = np.zeros(len(lead), np.int32)
        self._begun = self.taken.copy()  # the row at which each lane's episode began
        self._lanes = np.arange(len(lead))
        self._common: int | None = 0  # the next row of all lanes, while none was idle
        self._arrays: list[np.ndarray] = []
        self._tree: Any = None

    @property
    def unfinished(self) -> bool:
        return bool(self.playing.any()) or not self._arrays

    @property
    def next(self) -> Any:
        """The row that each lane fills next: a number while all keep step, else one for each."""
        if self._common is not None:
            return self._common
        return np.minimum(self.taken, self._num_rows - 1)

    @property
    def lead(self) -> np.ndarray:
        return self._before + self.taken - self._num_steps

    def put(self, row: Rollout, idle: np.ndarray | None) -> np.ndarray:
        """Keep a step of the lanes that play; says in which lanes an episode ended, or was lost.

        Of a lane whose environment was restarted, the episode that it lost is left out: it is not
        whole.
        """
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(row)]
        if not self._arrays:
            self._tree = jax.tree.structure(row)
            count = self._num_rows
            self._arrays = [np.zeros((count, *leaf.shape), leaf.dtype) for leaf in leaves]
            for array, leaf in zip(self._arrays, leaves, strict=True):
                array[0] = leaf  # lanes that rest have a transition to repeat, too
        ended = np.logical_or(row.terminated, row.truncated)
        kept = self.playing
        if idle is not None and idle.any():
            kept = self.playing & ~idle
            lost = self.playing & idle
            self.taken[lost] = self._begun[lost]
            if lost.any():
                self._common = None
            ended = np.where(idle, True, ended)
        at, lanes = self.taken[kept], self._lanes[kept]
        for array, leaf in zip(self._arrays, leaves, strict=True):
            array[at, lanes] = leaf[kept]
        self.taken += kept
        over = kept & ended
        self._begun[over] = self.taken[over]
        met = over & (self._before + self.taken >= self._num_steps)
        self.playing = self.playing & ~met & (self.taken < self._num_rows)
        if self._common is not None:
            self._common = min(self._common + 1, self._num_rows - 1)
        return ended

    def rollout(self) -> Rollout:
        return padded(jax.tree.unflatten(self._tree, self._arrays), self.taken)
