"""Advantages and returns along one lane's rollout. Callers ``vmap`` over lanes."""

import jax
import jax.numpy as jnp
from jax import Array, lax


def generalized_advantages(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    discount: Array | float,
    trace: Array | float,
) -> Array:
    """Generalised advantage estimation (Schulman et al. 2015), for one lane; every array is [T].

        δ_t = r_t + γ (1 − terminated_t) V(next_obs_t) − V(obs_t)
        A_t = δ_t + γ λ (1 − terminated_t) (1 − truncated_t) A_{t+1},    A_T = 0

    ``next_values`` are values of the true successors, before any reset: a truncated episode is
    bootstrapped from where it stopped, and a rollout that is cut in mid-episode from its last
    successor. Only the recursion is cut at both kinds of end.
    """
    deltas = rewards + discount * jnp.where(terminated, 0.0, next_values) - values
    decay = discount * trace * jnp.where(terminated | truncated, 0.0, 1.0)

    def backwards(later: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, carried = now
        advantage = delta + carried * later
        return advantage, advantage

    _, advantages = lax.scan(backwards, jnp.zeros_like(deltas[0]), (deltas, decay), reverse=True)
    return advantages


def advantages_of_lanes(
    rewards: Array,
    values: Array,
    next_values: Array,
    terminated: Array,
    truncated: Array,
    discount: Array | float,
    trace: Array | float,
) -> Array:
    """``generalized_advantages`` for [T, N] arrays, lane by lane."""
    per_lane = jax.vmap(generalized_advantages, in_axes=(1, 1, 1, 1, 1, None, None), out_axes=1)
    return per_lane(rewards, values, next_values, terminated, truncated, discount, trace)


def discounted_so_far(
    rewards: Array, ended: Array, before: Array, discount: Array | float
) -> Array:
    """The discounted return of each lane's episode so far; [T, N], with ``before`` [N].

        R_t = γ R_{t−1} (1 − ended_{t−1}) + r_t

    The deviation of these is what rewards are scaled by: it is that of value targets, but needs no
    critic.
    """

    def forwards(so_far: Array, now: tuple[Array, Array]) -> tuple[Array, Array]:
        reward, end = now
        so_far = discount * so_far + reward
        return jnp.where(end, 0.0, so_far), so_far

    return lax.scan(forwards, before, (rewards, ended))[1]
