"""Independent batches of transitions of one policy, from lanes that start as asked for."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.collect.episodes import Lanes, start_lanes
from trimtab.collect.fused import collect_fused
from trimtab.keys import Purpose, stream
from trimtab.lab.plan import Split, Start
from trimtab.types import JaxEnv, Rollout


class Facts(NamedTuple):
    """What is worth knowing of a group of batches beside its gradients."""

    lowest_reward: Any
    highest_reward: Any
    terminations: Any
    episodes: Any
    return_sum: Any


def collect_group(
    algorithm: Any,
    env: JaxEnv,
    learner: Any,
    root: Array,
    split: Split,
    batches: int,
    start: Start,
    warm_up: int,
) -> tuple[Rollout, Facts]:
    """The rollouts of ``batches`` batches side by side: leaves are [T, batches × N, ...].

    Lanes that begin ``fresh`` are at the first step of an episode; those that are ``carried`` on
    have done ``warm_up`` steps since, all the same number; ``stationary`` ones between one and two
    times that many, each its own number, so that their episodes are out of step.
    """
    actor = algorithm.actor(learner)
    index = jnp.arange(batches * split.lanes, dtype=jnp.int32)
    lanes = start_lanes(algorithm, env, actor, root, index)
    update = jnp.int32(0)
    if start == "carried":
        lanes, _ = collect_fused(algorithm, env, actor, lanes, root, update, warm_up)
    elif start == "stationary":
        lanes = out_of_step(algorithm, env, actor, lanes, root, warm_up)
    update = jnp.int32(2 * warm_up)
    lanes, rollout = collect_fused(algorithm, env, actor, lanes, root, update, split.steps)
    finished = lanes.finished
    facts = Facts(
        rollout.reward.min(),
        rollout.reward.max(),
        rollout.terminated.sum(dtype=jnp.int32),
        finished.count.sum(),
        finished.return_sum.sum(),
    )
    return rollout, facts


def out_of_step(
    algorithm: Any, env: JaxEnv, actor: Any, lanes: Lanes, root: Array, warm_up: int
) -> Lanes:
    """Lanes carried on for w … 2w − 1 steps, each for a number of its own."""
    key = stream(root, Purpose.LAB, 0)
    stops = jax.random.randint(key, lanes.index.shape, warm_up, 2 * warm_up, jnp.int32)

    def one_step(lanes: Lanes, t: Array) -> tuple[Lanes, None]:
        after, _ = collect_fused(algorithm, env, actor, lanes, root, t, 1)
        going = t < stops

        def choose(new: Array, old: Array) -> Array:
            return jnp.where(going.reshape(-1, *[1] * (old.ndim - 1)), new, old)

        return jax.tree.map(choose, after, lanes), None

    return lax.scan(one_step, lanes, jnp.arange(2 * warm_up, dtype=jnp.int32))[0]


def into_batches(tree: Any, batches: int) -> Any:
    """Leaves [T, batches × N, ...] as [batches, T, N, ...]."""

    def divided(leaf: Array) -> Array:
        steps, lanes = leaf.shape[:2]
        parts = leaf.reshape(steps, batches, lanes // batches, *leaf.shape[2:])
        return jnp.moveaxis(parts, 1, 0)

    return jax.tree.map(divided, tree)
