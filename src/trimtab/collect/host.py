"""Rollouts from environments outside of compiled programs: a Python loop, one jitted call a step.

Random numbers are those of ``collect_fused``: the noise of a rollout is drawn before it, from the
same streams. So the same environment gives the same rollout either way.

Every row of a rollout is a transition. Where a lane was ``idle``, it fills its row with a later
step, while the others begin their part of the next rollout. That part is kept, so each transition
is learned from exactly once; the policy that acted in it is one update older than in the rest.

JAX may read an aligned numpy array where it is, without a copy, for as long as it pleases. So what
is shown to JAX is never written again.
"""

from collections.abc import Generator, Mapping
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.collect.acting import Acted, ActingPrograms, Prepared
from trimtab.collect.rows import RolloutRows
from trimtab.envs.state import UnsavableError
from trimtab.keys import Purpose, lane_streams
from trimtab.types import HostEnv, Memory, Rollout, SavableEnv, Step

# Gymnasium's environments take seeds of 31 bits.
_SEED_BITS = np.uint32(0x7FFF_FFFF)


def lane_seeds(root: Array, update: int, lanes: int) -> list[int]:
    """A seed for the first episode of each lane, from the lane's own stream."""
    index = jnp.arange(lanes, dtype=jnp.int32)
    keys = lane_streams(root, Purpose.FIRST_RESET, update, index)
    bits = jax.vmap(lambda key: jax.random.bits(key, (), jnp.uint32))(keys)
    return (np.asarray(bits) & _SEED_BITS).tolist()


class Episode(NamedTuple):
    """One that has ended."""

    lane: int
    total: float  # its return
    length: int


@final
class EpisodeTally:
    """Returns and lengths of the episodes in N lanes: where a host episode's end is interpreted.

    An idle row is no step; an episode that it cut short counts nowhere.
    """

    def __init__(self, lanes: int):
        self._returns = np.zeros(lanes)
        self._lengths = np.zeros(lanes, np.int64)
        self._episodes: list[Episode] = []

    def add(self, step: Step, idle: np.ndarray | None) -> np.ndarray:
        """Count a step of every lane; says in which lanes an episode ended with it."""
        ended = np.logical_or(step.terminated, step.truncated)
        self._returns += step.reward
        self._lengths += 1
        if idle is not None:
            ended &= ~idle
            self._returns[idle] = 0.0
            self._lengths[idle] = 0
        if ended.any():
            for lane in np.flatnonzero(ended).tolist():
                total, length = float(self._returns[lane]), int(self._lengths[lane])
                self._episodes.append(Episode(lane, total, length))
            self._returns[ended] = 0.0
            self._lengths[ended] = 0
        return ended

    def save(self) -> dict[str, np.ndarray]:
        """The episodes as far as they have come."""
        return {"returns": self._returns.copy(), "lengths": self._lengths.copy()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        self._returns[:], self._lengths[:] = saved["returns"], saved["lengths"]

    @property
    def unfinished(self) -> list[Episode]:
        """Every lane's episode as far as it has come."""
        so_far = zip(self._returns.tolist(), self._lengths.tolist(), strict=True)
        return [Episode(lane, *figures) for lane, figures in enumerate(so_far)]

    def take(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        episodes, self._episodes = self._episodes, []
        return episodes


def episode_metrics(episodes: list[Episode]) -> Mapping[str, float]:
    """What a rollout's episodes came to; NaN where none ended."""
    returns = np.array([episode.total for episode in episodes] or [np.nan])
    lengths = np.array([episode.length for episode in episodes] or [np.nan])
    return {
        "rollout/episodes": float(len(episodes)),
        "rollout/return_mean": float(returns.mean()),
        "rollout/return_max": float(returns.max()),
        "rollout/return_min": float(returns.min()),
        "rollout/length_mean": float(lengths.mean()),
    }


@final
class HostCollector:
    """Collects rollouts of ``num_steps`` steps from a ``HostEnv``."""

    def __init__(self, env: HostEnv, programs: ActingPrograms, num_steps: int):
        self._env = env
        self._lanes = LaneCollector(env.num_envs, programs, num_steps)

    def start(self, algorithm: Any, learner: Any, root: Array, update: int) -> None:
        """Begin an episode in every lane."""
        seeds = lane_seeds(root, update, self._env.num_envs)
        self._lanes.start(algorithm, learner, self._env.reset(seeds))

    def collect(self, algorithm: Any, learner: Any, root: Array, update: int) -> Rollout:
        """A rollout whose leaves are [T, N, ...]: numpy arrays that are the caller's."""
        steps = self._lanes.steps(algorithm, learner, root, update)
        actions = next(steps)
        while True:
            try:
                actions = steps.send((self._env.step(actions), self._env.idle))
            except StopIteration as done:
                return done.value

    def save(self) -> dict[str, np.ndarray]:
        """All that goes on after a rollout; raises UnsavableError where that cannot be told."""
        if not isinstance(self._env, SavableEnv):
            raise UnsavableError(f"lanes of a {type(self._env).__name__} cannot be saved")
        return {**self._lanes.save(), **self._env.save_state()}

    def restore(self, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from what ``save`` gave, after ``start``."""
        if not isinstance(self._env, SavableEnv):
            raise UnsavableError(f"lanes of a {type(self._env).__name__} cannot be restored")
        self._lanes.restore(self._env.load_state(saved), saved)

    def take_episodes(self) -> list[Episode]:
        """The episodes that ended since the last call."""
        return self._lanes.tally.take()

    def take_metrics(self) -> Mapping[str, float]:
        """What else is to be said of the rollouts since the last call."""
        return {}


@final
class LaneCollector:
    """Some lanes on their way through rollouts; somebody else steps their environments."""

    def __init__(self, lanes: int, programs: ActingPrograms, num_steps: int):
        self.tally = EpisodeTally(lanes)
        self._programs = programs
        self._rows = RolloutRows(num_steps, lanes)
        self._ended = np.ones(lanes, bool)  # where nothing follows on the last row of a lane

    def start(self, algorithm: Any, learner: Any, obs: Any) -> None:
        """From the first observations of the lanes' episodes."""
        self._obs = copied(obs)
        self._memory: Memory = self._programs.first_memories(algorithm, learner)
        self._remembers = bool(jax.tree.leaves(self._memory))
        self._first_memory = self._next_first_memory = self._memory

    def save(self) -> dict[str, np.ndarray]:
        """What the lanes have on their way, between two rollouts."""
        if not self._rows.empty:
            raise UnsavableError("some of its lanes are ahead of others, since one was restarted")
        memory = {
            f"memory{number}": np.array(leaf)
            for number, leaf in enumerate(jax.tree.leaves(self._memory))
        }
        return {"ended": self._ended.copy(), **self.tally.save(), **memory}

    def restore(self, obs: Any, saved: Mapping[str, np.ndarray]) -> None:
        """Go on from ``saved``, with the observations that the lanes are at."""
        self._obs, self._ended = copied(obs), saved["ended"].copy()
        self.tally.restore(saved)
        tree = jax.tree.structure(self._memory)
        leaves = [jnp.array(saved[f"memory{number}"]) for number in range(tree.num_leaves)]
        self._memory = jax.tree.unflatten(tree, leaves)
        self._first_memory = self._next_first_memory = self._memory

    def steps(
        self, algorithm: Any, learner: Any, root: Array, update: int
    ) -> Generator[np.ndarray, tuple[Step, np.ndarray | None], Rollout]:
        """Yields actions, wants to be sent what the environments answer; returns a rollout."""
        prepared = self._programs.prepare(algorithm, learner, root, np.int32(update))
        ahead = None
        last = None
        while not self._rows.full:
            if self._rows.in_step:
                acted = self._act(prepared, last)
            else:
                last = self._settle_memory(prepared, last)
                if ahead is None:
                    later = self._programs.prepare(algorithm, learner, root, np.int32(update + 1))
                    ahead = prepared.followed_by(later)
                acted = self._act(ahead, last)
            answer = yield np.asarray(acted.action if acted.taken is None else acted.taken)
            last = self._take_in(acted, *answer)
        self._settle_memory(prepared, last)
        memory, self._first_memory = self._first_memory, self._next_first_memory
        return self._rows.take()._replace(memory=memory)

    def _act(self, prepared: Prepared, last: Any) -> Acted:
        acted = self._programs.act(prepared, self._memory, last, self._obs, self._rows.next)
        self._memory = acted.memory
        return acted

    def _take_in(
        self, acted: Acted, step: Step, idle: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray] | None:
        """Keep a step; (reward, ended) for the memory to take in, if there is any."""
        ended = self.tally.add(step, idle)
        transition = Rollout.row(self._obs, acted.action, acted.extras, step)
        if idle is not None:
            if not idle.any():
                idle = None
            else:
                self._rows.cut(idle & ~self._ended)
                ended |= idle
        self._rows.put(transition, idle)
        self._ended = ended
        self._obs = copied(step.obs)
        return (np.array(step.reward), ended) if self._remembers else None

    def _settle_memory(self, prepared: Prepared, last: Any) -> None:
        """Take the last step into memory, and keep the memory of lanes that begin a rollout."""
        if not self._remembers:
            return
        self._memory = memory = self._programs.remember(prepared, self._memory, last)
        starting = self._rows.starting()

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(starting.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        self._next_first_memory = jax.tree.map(choose, memory, self._next_first_memory)


def copied(observation: Any) -> Any:
    """An observation in memory of its own."""
    if isinstance(observation, dict):
        return {key: copied(part) for key, part in observation.items()}
    return np.array(observation)
