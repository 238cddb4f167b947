"""Evaluation: whole episodes, on lanes and random streams of their own."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from trimtab.collect.episodes import Lanes, start_lanes, step_lanes
from trimtab.keys import Purpose, streams_of_lanes
from trimtab.training.statistics import interquartile_mean, standard_error
from trimtab.types import JaxEnv

# Environments without a time limit are given up after this many steps.
LONGEST_EPISODE = 10_000


class Episodes(NamedTuple):
    """One first episode of each evaluation lane; arrays are [episodes]."""

    returns: Any
    lengths: Any
    ended: Any  # False where the episode was given up at LONGEST_EPISODE


def make_evaluator(
    env: JaxEnv, episodes: int, deterministic: bool
) -> Callable[[Any, Any, Array], Episodes]:
    """A jitted ``evaluate(algorithm, learner, root) -> Episodes``.

    ``root`` names the random streams; training uses none that can be reached from it. Each lane
    plays its first episode only, so that short episodes do not count more often than long ones.
    """
    longest = env.spec.max_episode_steps or LONGEST_EPISODE

    def evaluate(algorithm: Any, learner: Any, root: Array) -> Episodes:
        actor = algorithm.actor(learner)
        index = jnp.arange(episodes, dtype=jnp.int32)
        purposes = Purpose.ACT, Purpose.STEP, Purpose.RESET
        act_keys, step_keys, reset_keys = streams_of_lanes(root, purposes, 0, index)

        def act(memory: Any, obs: Any, key: Array) -> tuple[Any, Any]:
            if deterministic:
                return algorithm.best_action(actor, memory, obs)
            noise = algorithm.noise(actor, key, 1)[0]
            action, _, memory = algorithm.act(actor, memory, obs, noise)
            return action, memory

        def fold(keys: Array, t: Array) -> Array:
            return jax.vmap(lambda key: jax.random.fold_in(key, t))(keys)

        def one_step(carry: tuple[Array, Lanes, Episodes]) -> tuple[Array, Lanes, Episodes]:
            t, lanes, result = carry
            action, memory = jax.vmap(act)(lanes.memory, lanes.obs, fold(act_keys, t))
            lanes, step = step_lanes(env, lanes, action, fold(step_keys, t), reset_keys, t)
            lanes = lanes._replace(memory=memory)  # of first episodes: where one ends it is over
            going = ~result.ended
            return (
                t + 1,
                lanes,
                Episodes(
                    result.returns + jnp.where(going, step.reward, 0.0),
                    result.lengths + going.astype(jnp.int32),
                    result.ended | step.terminated | step.truncated,
                ),
            )

        def going_on(carry: tuple[Array, Lanes, Episodes]) -> Array:
            t, _, result = carry
            return (t < longest) & ~result.ended.all()

        none = Episodes(
            jnp.zeros(episodes), jnp.zeros(episodes, jnp.int32), jnp.zeros(episodes, bool)
        )
        start = (jnp.int32(0), start_lanes(algorithm, env, actor, root, index), none)
        return lax.while_loop(going_on, one_step, start)[2]

    return jax.jit(evaluate)


def summary(episodes: Episodes) -> dict[str, float]:
    """The figures that describe a set of episodes."""
    returns = np.asarray(episodes.returns, np.float64)
    low, high = np.percentile(returns, [25, 75])
    return {
        "mean": float(returns.mean()),
        "median": float(np.median(returns)),
        "std": float(returns.std()),
        "standard_error": standard_error(returns),
        "iqr": float(high - low),
        "iqm": interquartile_mean(returns),
        "min": float(returns.min()),
        "max": float(returns.max()),
        "length_mean": float(np.asarray(episodes.lengths).mean()),
        "unfinished": int((~np.asarray(episodes.ended)).sum()),
        "episodes": len(returns),
    }
