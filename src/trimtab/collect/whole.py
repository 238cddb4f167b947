"""Rollouts of whole episodes, for an algorithm that asks for them (``episodes = "whole"``).

Keeping only the episodes that end within a fixed number of steps would prefer short ones: near the
end of a rollout only those come to theirs. So here the steps decide which episodes *begin*, and
every episode that begins is played to its end:

- Over the run each lane owes T = ``num_steps`` steps to every rollout. It begins one more episode
  while it owes any, and rests once it has met its share.
- What its last episode took beyond that is the lane's lead, and it owes so much less to the next
  rollout. A lead is shorter than an episode, so after u updates the lanes have made
  u N T ≤ steps < u N T + N L, where L is the longest that an episode can be.

Whether an episode begins depends on what was before it, never on how it will end. By Wald's
identity a sum over the episodes of a rollout then expects (the expected number of episodes) × (what
one episode expects): no length is preferred. All episodes of a rollout are of one policy, since
each rollout begins with a reset of all lanes.

Shapes are static: a rollout has T + L rows in each lane, of which a lane fills as many as its
episodes have steps. The other rows repeat its first transition, without a reward or an end. A row
counts if its lane has an end in it or after it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from trimtab.collect.episodes import Lanes, start_lanes
from trimtab.collect.fused import Draws, act_and_step
from trimtab.errors import SettingError
from trimtab.ops.across import ALONE, Across
from trimtab.spaces import EnvSpec
from trimtab.types import Actor, Algorithm, JaxEnv, Metrics, Rollout


def collects_whole(algorithm: Any) -> bool:
    """Whether an algorithm, or its settings, asks for whole episodes."""
    return getattr(algorithm, "episodes", "fixed") == "whole"


def rows_for(spec: EnvSpec, num_steps: int) -> int:
    """The rows of a rollout of whole episodes; refused where it could not hold them."""
    longest = spec.max_episode_steps
    if longest is None:
        raise SettingError(
            f"episodes = whole needs episodes that end, and those of {spec.id} have no time limit: "
            "give max_episode_steps, or episodes = fixed."
        )
    if num_steps < longest:
        raise SettingError(
            f"episodes = whole needs room for a whole episode in each lane: episodes of {spec.id} "
            f"may last {longest:,} steps, and num_steps = {num_steps:,}. Expected num_steps = "
            f"{longest:,} or more (with fewer num_envs the rollout is as large), a smaller "
            "max_episode_steps, or episodes = fixed."
        )
    return num_steps + longest


def collect_whole(
    algorithm: Algorithm,
    env: JaxEnv,
    actor: Actor,
    lanes: Lanes,
    root: Array,
    update: Array,
    num_steps: int,
) -> tuple[Lanes, Rollout]:
    """The whole episodes of a rollout, leaves [T + L, N, ...]; the lanes' ``lead`` is taken up.

    Lanes that rest while others play are stepped too, as vectors of environments are, and what
    they do is left out.
    """
    rows = rows_for(env.spec, num_steps)
    draws = Draws.of(algorithm, actor, root, update, lanes.index, rows)
    first = start_lanes(algorithm, env, actor, root, lanes.index, update)

    def one_step(lanes: Lanes, t: Array) -> tuple[Lanes, Rollout]:
        drawn = Draws(draws.noise[t], draws.step_keys[t], draws.reset_keys)
        return act_and_step(algorithm, env, actor, lanes, drawn, t)

    def going_on(carry: Any) -> Array:
        t, _, playing, _, _ = carry
        # Once at the least, so that there is a transition to repeat.
        return (t < rows) & (playing.any() | (t == 0))

    def step(carry: Any) -> Any:
        t, lanes, playing, taken, rollout = carry
        after, row = one_step(lanes, t)
        taken = taken + playing.astype(jnp.int32)
        finished = jax.tree.map(
            lambda new, old: jnp.where(playing, new, old), after.finished, lanes.finished
        )
        met = (row.terminated | row.truncated) & (before + taken >= num_steps)
        rollout = jax.tree.map(lambda all_, one: all_.at[t].set(one), rollout, row)
        return t + 1, after._replace(finished=finished), playing & ~met, taken, rollout

    before = jnp.asarray(lanes.lead)
    shapes = jax.eval_shape(one_step, first, jnp.int32(0))[1]
    empty = jax.tree.map(lambda one: jnp.zeros((rows, *one.shape), one.dtype), shapes)
    start = (jnp.int32(0), first, before < num_steps, jnp.zeros_like(before), empty)
    _, after, _, taken, rollout = lax.while_loop(going_on, step, start)
    after = after._replace(lead=before + taken - num_steps)
    return after, padded(rollout, taken, jnp)._replace(memory=first.memory)


def padded(rollout: Rollout, taken: Any, numpy: Any = np) -> Rollout:
    """With the first transition in place of what a lane did after the ``taken`` rows that count.

    It is a valid sample, whatever the spaces. The rollout has no memory yet. ``numpy`` may be
    ``jax.numpy``.
    """
    rows = rollout.reward.shape[0]
    played = numpy.arange(rows)[:, None] < taken

    def repeated(leaf: Any) -> Any:
        return numpy.where(played.reshape(*played.shape, *[1] * (leaf.ndim - 2)), leaf, leaf[:1])

    return jax.tree.map(repeated, rollout)._replace(
        reward=numpy.where(played, rollout.reward, numpy.float32(0)),
        terminated=rollout.terminated & played,
        truncated=rollout.truncated & played,
    )


def metrics_of(before: Any, after: Any, num_steps: int, across: Across = ALONE) -> Metrics:
    """What a rollout took, from the lanes' leads before and after it."""
    taken = after - before + num_steps
    transitions, ahead = across.sum(jnp.stack([taken.sum(), after.sum()]))
    stepped = across.max(taken.max()) * (before.shape[0] * across.devices)
    return {
        "rollout/transitions": transitions,
        "rollout/steps_ahead": ahead,
        "rollout/unused_steps": stepped - transitions,
    }
