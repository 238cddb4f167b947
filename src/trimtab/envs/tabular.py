"""Environments made from a transition table: FrozenLake, CliffWalking, Taxi, or one's own.

Gymnasium's toy-text environments hold a table P[s][a] of outcomes (probability, next state, reward,
terminated). As arrays it can be stepped inside a compiled program, and solved exactly: the arrays
are kept in float64 for dynamic programming.
"""

import dataclasses
import functools
import importlib
import inspect
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.envs.registry import entry_of, within_five_percent
from trimtab.errors import EnvironmentFaultError, SettingError, did_you_mean
from trimtab.spaces import Discrete, EnvSpec
from trimtab.types import Transition

# P[s][a]: each outcome's probability, next state, reward and whether it ends the task.
Table = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]


class TabularState(NamedTuple):
    """Where the lane is, and how many steps it has taken."""

    position: Array
    time: Array


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TabularEnv:
    """A finite Markov decision process with S states, A actions and at most K outcomes of each.

    Unused outcomes have probability 0. Equality and hash are those of identity.
    """

    spec: EnvSpec
    probability: np.ndarray  # [S, A, K] float64
    next_state: np.ndarray  # [S, A, K] int32
    reward: np.ndarray  # [S, A, K] float64
    terminated: np.ndarray  # [S, A, K] bool
    initial: np.ndarray  # [S] float64: the distribution of the first state

    @staticmethod
    def of(
        env_id: str, table: Table, initial: Any, max_episode_steps: int | None = None
    ) -> "TabularEnv":
        """The environment of a transition table, checked."""
        states, actions = len(table), len(table[0])
        outcomes = max(len(table[s][a]) for s in range(states) for a in range(actions))
        shape = (states, actions, outcomes)
        probability, reward = np.zeros(shape), np.zeros(shape)
        next_state, terminated = np.zeros(shape, np.int32), np.zeros(shape, bool)
        for s in range(states):
            for a in range(actions):
                for k, outcome in enumerate(table[s][a]):
                    probability[s, a, k], next_state[s, a, k] = outcome[0], outcome[1]
                    reward[s, a, k], terminated[s, a, k] = outcome[2], outcome[3]
        initial = np.array(initial, np.float64)
        _check_table(env_id, probability, next_state, initial)
        for array in (probability, next_state, reward, terminated, initial):
            array.flags.writeable = False
        spec = EnvSpec(env_id, Discrete(states), Discrete(actions), max_episode_steps)
        env = TabularEnv(spec, probability, next_state, reward, terminated, initial)
        if max_episode_steps is None:
            return env
        mark = within_five_percent(env.optimal_return(max_episode_steps))
        return dataclasses.replace(env, spec=dataclasses.replace(spec, solved_at=mark))

    def reset(self, key: Array) -> tuple[TabularState, Array]:
        """A first state s₀ ~ initial."""
        starts, edges = self._initial_edges
        drawn = jnp.sum(jax.random.uniform(key) >= edges)
        position = jnp.asarray(starts)[drawn]
        return TabularState(position, jnp.zeros((), jnp.int32)), position

    def step(self, key: Array, state: TabularState, action: Any) -> tuple[TabularState, Transition]:
        """One transition, drawn with one uniform number u by inverting the distribution function.

        The outcome is the number of edges c₁ ≤ c₂ ≤ … of the cumulative probabilities that u has
        reached. If the task ends as the clock does, terminated wins.
        """
        row = state.position * self.probability.shape[1] + jnp.asarray(action, jnp.int32).reshape(
            ()
        )
        edges, next_state, reward, terminated = (jnp.asarray(rows)[row] for rows in self._rows)
        outcome = jnp.sum(jax.random.uniform(key) >= edges)
        position, time = next_state[outcome], state.time + jnp.int32(1)
        limit = self.spec.max_episode_steps
        clock_ended = jnp.zeros((), bool) if limit is None else time >= limit
        return TabularState(position, time), Transition(
            obs=position,
            reward=reward[outcome],
            terminated=terminated[outcome],
            truncated=clock_ended & ~terminated[outcome],
        )

    @functools.cached_property
    def transition(self) -> np.ndarray:
        """P[s, a, s'] = Σ_k p_k·1[s'_k = s'], in float64, endings included."""
        return self._spread(self.probability)

    @functools.cached_property
    def continuation(self) -> np.ndarray:
        """Like ``transition``, for outcomes that do not end the task: what values follow from.

        Q(s, a) = expected_reward[s, a] + γ·Σ_s' continuation[s, a, s']·V(s').
        """
        return self._spread(self.probability * ~self.terminated)

    @functools.cached_property
    def expected_reward(self) -> np.ndarray:
        """R[s, a] = Σ_k p_k·r_k."""
        return (self.probability * self.reward).sum(axis=2)

    def optimal_return(self, horizon: int) -> float:
        """The greatest expected undiscounted return of an episode of at most ``horizon`` steps.

        By backward induction: V₀ = 0, Vₙ₊₁(s) = max_a Σ_k p_k·(r_k + (1 − terminated_k)·Vₙ(s'_k)).
        """
        value = np.zeros(len(self.initial))
        on = self.probability * ~self.terminated
        for _ in range(horizon):
            value = (self.expected_reward + (on * value[self.next_state]).sum(axis=2)).max(axis=1)
        return float(self.initial @ value)

    def _spread(self, weight: np.ndarray) -> np.ndarray:
        states, actions, _ = weight.shape
        dense = np.zeros((states, actions, states))
        s, a = np.arange(states)[:, None, None], np.arange(actions)[None, :, None]
        np.add.at(dense, (s, a, self.next_state), weight)
        return dense

    @functools.cached_property
    def _rows(self) -> tuple[np.ndarray, ...]:
        """Edges between outcomes [S·A, K−1], and next state, reward, terminated [S·A, K]."""
        states, actions, outcomes = self.probability.shape
        rows = states * actions
        edges = _edges(self.probability).reshape(rows, outcomes - 1)
        arrays = (self.next_state, self.reward.astype(np.float32), self.terminated)
        return (edges, *(array.reshape(rows, outcomes) for array in arrays))

    @functools.cached_property
    def _initial_edges(self) -> tuple[np.ndarray, np.ndarray]:
        """The states an episode may start in, and the edges between them."""
        starts = np.flatnonzero(self.initial).astype(np.int32)
        return starts, _edges(self.initial[starts])


def _edges(probability: np.ndarray) -> np.ndarray:
    """Cumulative probabilities but the last along the last axis, as float32.

    An outcome after which nothing is left to draw has no upper edge: u < 1 never reaches 2.
    """
    total = probability.cumsum(axis=-1)
    left = probability[..., ::-1].cumsum(axis=-1)[..., ::-1]  # of this outcome and those after it
    return np.where(left[..., 1:] > 0, total[..., :-1], 2.0).astype(np.float32)


def _check_table(
    env_id: str, probability: np.ndarray, next_state: np.ndarray, initial: np.ndarray
) -> None:
    total = probability.sum(axis=2)
    wrong = np.argwhere((np.abs(total - 1) > 1e-8) | (probability < 0).any(axis=2))
    if wrong.size:
        s, a = wrong[0]
        raise EnvironmentFaultError(
            f"{env_id}: the outcomes of state {s}, action {a} have probabilities "
            f"{probability[s, a].tolist()}; they must be at least 0 and sum to 1."
        )
    if next_state.min() < 0 or next_state.max() >= len(probability):
        raise EnvironmentFaultError(
            f"{env_id}: a next state is outside 0 … {len(probability) - 1}: "
            f"{next_state.min()} … {next_state.max()}."
        )
    if initial.shape != (len(probability),) or abs(initial.sum() - 1) > 1e-8 or initial.min() < 0:
        raise EnvironmentFaultError(
            f"{env_id}: the initial distribution must be {len(probability)} probabilities that sum "
            f"to 1, not shape {initial.shape} with sum {initial.sum():g}."
        )


# --------------------------------------------------------------------------- Gymnasium's toy text


class _Source(NamedTuple):
    module: str  # in gymnasium.envs.toy_text
    cls: str
    options: dict[str, Any]
    max_episode_steps: int


# Time limits are Gymnasium's. It has none for CliffWalking, where a policy that walks into a wall
# would never end its evaluation: there it is Taxi's.
_SOURCES = {
    "FrozenLake-v1": _Source("frozen_lake", "FrozenLakeEnv", {"map_name": "4x4"}, 100),
    "FrozenLake8x8-v1": _Source("frozen_lake", "FrozenLakeEnv", {"map_name": "8x8"}, 200),
    "CliffWalking-v1": _Source("cliffwalking", "CliffWalkingEnv", {}, 200),
    "CliffWalkingSlippery-v1": _Source(
        "cliffwalking", "CliffWalkingEnv", {"is_slippery": True}, 200
    ),
    "Taxi-v4": _Source("taxi", "TaxiEnv", {}, 200),
}
# Rendering is not stepping; a fickle passenger changes its mind outside the table.
_NOT_IN_THE_TABLE = frozenset({"self", "render_mode", "fickle_passenger", "fickle_probability"})


def make_tabular(env_id: str, **options: Any) -> TabularEnv:
    """One of Gymnasium's toy-text environments, with its constructor's options.

    FrozenLake also takes ``size`` and ``map_seed`` for a random map, the same for the same seed;
    all take ``max_episode_steps`` (None for no limit). Options change the optimum, so with them the
    mark for "solved" is within 5% of the new one.
    """
    source = _SOURCES[env_id]
    module = importlib.import_module(f"gymnasium.envs.toy_text.{source.module}")
    factory = getattr(module, source.cls)
    accepted = set(inspect.signature(factory).parameters) - _NOT_IN_THE_TABLE
    random_map = {"size", "map_seed"} if source.module == "frozen_lake" else set()
    known = sorted(accepted | random_map | {"max_episode_steps"})
    for name in options:
        if name not in known:
            raise SettingError(
                f"{env_id} has no option {name!r}.{did_you_mean(name, known)} "
                f"It has {', '.join(known)}."
            )
    limit = options.get("max_episode_steps", source.max_episode_steps)
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise SettingError(
            f"{env_id}: max_episode_steps = {limit!r} is not valid: expected 1 or more, or None."
        )
    chosen = {k: v for k, v in options.items() if k in accepted}
    if random_map & options.keys():
        chosen["desc"] = _random_map(env_id, module, options)
    _check_map(env_id, module, chosen)
    toy = factory(**{**source.options, **chosen})
    env = TabularEnv.of(env_id, toy.P, toy.initial_state_distrib, limit)
    entry = entry_of(env_id)
    if options or entry is None or entry.solved_at is None:
        return env
    return dataclasses.replace(env, spec=dataclasses.replace(env.spec, solved_at=entry.solved_at))


def _random_map(env_id: str, module: Any, options: Mapping[str, Any]) -> list[str]:
    if options.keys() & {"map_name", "desc"}:
        raise SettingError(
            f"{env_id}: size and map_seed make a random map; give them, or map_name, or desc."
        )
    size, seed = options.get("size", 8), options.get("map_seed", 0)
    if not isinstance(size, int) or size < 2:
        raise SettingError(f"{env_id}: size = {size!r} is not valid: expected 2 or more.")
    if not isinstance(seed, int) or seed < 0:
        raise SettingError(f"{env_id}: map_seed = {seed!r} is not valid: expected 0 or more.")
    return module.generate_random_map(size=size, seed=seed)


def _check_map(env_id: str, module: Any, chosen: Mapping[str, Any]) -> None:
    name = chosen.get("map_name", "")
    if name and name not in module.MAPS:
        raise SettingError(
            f"{env_id} has no map {name!r}. It has {', '.join(module.MAPS)}; "
            "size=… and map_seed=… make a random one."
        )
