"""Rollouts from JAX environments, inside the compiled program."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.collect.episodes import Lanes, step_lanes
from trimtab.keys import Purpose, streams_of_lanes
from trimtab.types import Actor, Algorithm, JaxEnv, Rollout

# Steps in one turn of the scan. Two halve what the loop itself costs, which a rollout of few lanes
# feels: 13% of collecting at 4×128. More gain nothing, and take longer to compile.
UNROLL = 2


class Draws(NamedTuple):
    """The random numbers of a rollout, drawn before it in one call for each lane."""

    noise: Array  # [T, N, ...]: of actions
    step_keys: Array  # [T, N]: of the environment
    reset_keys: Array  # [N]

    @classmethod
    def of(
        cls,
        algorithm: Algorithm,
        actor: Actor,
        root: Array,
        update: Array,
        index: Array,
        num_steps: int,
    ) -> "Draws":
        purposes = Purpose.ACT, Purpose.STEP, Purpose.RESET
        act_keys, of_steps, reset_keys = streams_of_lanes(root, purposes, update, index)
        noise = jax.vmap(lambda key: algorithm.noise(actor, key, num_steps), out_axes=1)(act_keys)
        step_keys = jax.vmap(lambda key: jax.random.split(key, num_steps), out_axes=1)(of_steps)
        return cls(noise, step_keys, reset_keys)


def act_and_step(
    algorithm: Algorithm, env: JaxEnv, actor: Actor, lanes: Lanes, draws: Draws, t: Array
) -> tuple[Lanes, Rollout]:
    """One step of every lane, with the draws of this step, and the row of a rollout that it is."""
    action, extras, memory = jax.vmap(algorithm.act, in_axes=(None, 0, 0, 0))(
        actor, lanes.memory, lanes.obs, draws.noise
    )
    after, step = step_lanes(env, lanes, action, draws.step_keys, draws.reset_keys, t)
    memory = jax.vmap(algorithm.after_step, in_axes=(None, 0, 0, 0))(
        actor, memory, step.reward, step.terminated | step.truncated
    )
    return after._replace(memory=memory), Rollout.row(lanes.obs, action, extras, step)


def collect_fused(
    algorithm: Algorithm,
    env: JaxEnv,
    actor: Actor,
    lanes: Lanes,
    root: Array,
    update: Array,
    num_steps: int,
) -> tuple[Lanes, Rollout]:
    """``num_steps`` steps in every lane: a rollout whose leaves are [T, N, ...]."""
    draws = Draws.of(algorithm, actor, root, update, lanes.index, num_steps)

    def one_step(lanes: Lanes, now: tuple[Array, Array, Array]) -> tuple[Lanes, Rollout]:
        t, noise, step_keys = now
        drawn = Draws(noise, step_keys, draws.reset_keys)
        return act_and_step(algorithm, env, actor, lanes, drawn, t)

    counters = jnp.arange(num_steps, dtype=jnp.int32)
    each = counters, draws.noise, draws.step_keys
    after, rollout = lax.scan(one_step, lanes, each, unroll=UNROLL)
    return after, rollout._replace(memory=lanes.memory)
