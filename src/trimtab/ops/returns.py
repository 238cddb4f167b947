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
