"""Lanes, and the one place where the end of an episode is interpreted."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.keys import Purpose, lane_streams
from trimtab.ops.across import ALONE, Across
from trimtab.spaces import to_environment
from trimtab.types import (
    Action,
    Actor,
    Algorithm,
    EnvState,
    JaxEnv,
    Memory,
    Metrics,
    Observation,
    Step,
)


class Finished(NamedTuple):
    """What the episodes that ended in each lane came to; every array is [N].

    A median cannot be added up. The last episode of each lane stands for the others of that lane.
    """

    count: Array
    return_sum: Array
    return_max: Array
    return_min: Array
    return_last: Array  # NaN where none ended
    length_sum: Array
    length_max: Array
    length_min: Array
    length_last: Array

    @classmethod
    def none(cls, lanes: int) -> "Finished":
        zeros, infinity = jnp.zeros(lanes), jnp.full(lanes, jnp.inf, jnp.float32)
        nothing = jnp.full(lanes, jnp.nan, jnp.float32)
        figures = zeros, -infinity, infinity, nothing
        return cls(zeros, *figures, *figures)

    def add(self, ended: Array, returns: Array, lengths: Array) -> "Finished":
        def where_ended(values: Array, otherwise: Array) -> Array:
            return jnp.where(ended, values, otherwise)

        length = lengths.astype(jnp.float32)
        return Finished(
            count=self.count + ended.astype(jnp.float32),
            return_sum=self.return_sum + where_ended(returns, jnp.float32(0)),
            return_max=where_ended(jnp.maximum(self.return_max, returns), self.return_max),
            return_min=where_ended(jnp.minimum(self.return_min, returns), self.return_min),
            return_last=where_ended(returns, self.return_last),
            length_sum=self.length_sum + where_ended(length, jnp.float32(0)),
            length_max=where_ended(jnp.maximum(self.length_max, length), self.length_max),
            length_min=where_ended(jnp.minimum(self.length_min, length), self.length_min),
            length_last=where_ended(length, self.length_last),
        )

    def metrics(self, across: Across = ALONE) -> Metrics:
        """Over all lanes; NaN where no episode ended."""
        sums = jnp.stack([self.count, self.return_sum, self.length_sum]).sum(axis=1)
        most = jnp.stack([self.return_max, self.length_max, -self.return_min, -self.length_min])
        count, returns, lengths = across.sum(sums)
        known = jnp.where(count > 0, jnp.float32(1), jnp.nan)
        return_max, length_max, return_min, length_min = known * across.max(most.max(axis=1))
        middle = median(across.gather(jnp.stack([self.return_last, self.length_last], axis=1)))
        return {
            "rollout/episodes": count,
            "rollout/return_mean": known * returns / count,
            "rollout/return_median": middle[0],
            "rollout/return_max": return_max,
            "rollout/return_min": -return_min,
            "rollout/length_mean": known * lengths / count,
            "rollout/length_median": middle[1],
            "rollout/length_max": length_max,
            "rollout/length_min": -length_min,
        }


def median(rows: Array) -> Array:
    """Of each column, over its rows that are not NaN; NaN if there are none."""
    ordered = jnp.sort(rows, axis=0)  # NaN comes last
    known = jnp.sum(~jnp.isnan(rows), axis=0, dtype=jnp.int32)
    at = jnp.stack([jnp.maximum(known - 1, 0) // 2, known // 2])
    return jnp.take_along_axis(ordered, jnp.minimum(at, rows.shape[0] - 1), axis=0).mean(axis=0)


class Lanes(NamedTuple):
    """N environments between two steps; every leaf is [N, ...]."""

    index: Array  # a lane's global number: it names the lane's random streams
    state: EnvState
    obs: Observation
    memory: Memory  # the algorithm's
    episode_return: Array
    episode_length: Array
    finished: Finished
    # Where starts are staggered, the length at which the present episode is cut: NEVER after the
    # first. Otherwise nothing.
    cut: Array | tuple[()] = ()
    # Where rollouts are of whole episodes, the steps that a lane is ahead of its share.
    lead: Array | tuple[()] = ()


NEVER = jnp.iinfo(jnp.int32).max  # no episode is so long


def start_lanes(
    algorithm: Algorithm,
    env: JaxEnv,
    actor: Actor,
    root: Array,
    index: Array,
    update: Array | int = 0,
) -> Lanes:
    """Lanes at the first observation of their first episodes, or of those that begin anew."""
    keys = lane_streams(root, Purpose.FIRST_RESET, update, index)
    state, obs = jax.vmap(env.reset)(keys)
    count = index.shape[0]
    memory = first_memories(algorithm, actor, count)
    zeros = jnp.zeros(count)
    return Lanes(index, state, obs, memory, zeros, zeros.astype(jnp.int32), Finished.none(count))


def first_memories(algorithm: Algorithm, actor: Actor, lanes: int) -> Memory:
    """The memory of that many lanes at the beginning of their episodes."""
    first = algorithm.first_memory(actor)
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (lanes, *jnp.shape(leaf))), first)


def step_lanes(
    env: JaxEnv, lanes: Lanes, action: Action, step_keys: Array, reset_keys: Array, t: Array
) -> tuple[Lanes, Step]:
    """Step every lane, and begin a new episode in those whose episode ended. Memory is left alone.

    A reset is not a step: it emits no transition. ``Step.next_obs`` is the successor that the
    action led to, ``Step.obs`` what the policy sees next. If both flags are set, the task ended.
    An episode that a staggered start cut short is truncated, and counts in no statistics.
    """
    taken = jax.vmap(lambda one: to_environment(env.spec.action, one))(action)
    state, after = jax.vmap(env.step)(step_keys, lanes.state, taken)
    lengths = lanes.episode_length + 1
    whole = after.terminated | after.truncated
    ended, truncated, cut = whole, after.truncated & ~after.terminated, lanes.cut
    if not isinstance(cut, tuple):
        short = ~whole & (lengths >= cut)
        ended, truncated = whole | short, truncated | short
        cut = jnp.where(ended, NEVER, cut)

    def begin_anew() -> tuple[EnvState, Observation]:
        fresh = jax.vmap(lambda key: env.reset(jax.random.fold_in(key, t)))(reset_keys)

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(ended.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        return jax.tree.map(choose, fresh, (state, after.obs))

    # With few lanes most steps end no episode: a branch then saves the work of resetting.
    state, obs = lax.cond(ended.any(), begin_anew, lambda: (state, after.obs))
    returns = lanes.episode_return + after.reward
    step = Step(obs, after.reward, after.terminated, truncated, after.obs)
    return (
        Lanes(
            lanes.index,
            state,
            obs,
            lanes.memory,
            jnp.where(ended, 0.0, returns),
            jnp.where(ended, 0, lengths),
            lanes.finished.add(whole, returns, lengths),
            cut,
            lanes.lead,
        ),
        step,
    )
