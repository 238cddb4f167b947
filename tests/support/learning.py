"""Training without files or evaluations, for tests of learning."""

import functools
from typing import Any

import jax
import numpy as np

from trimtab.training.step import Run, begin, make_step
from trimtab.types import JaxEnv


def trained(
    algorithm: Any, env: JaxEnv, lanes: int = 16, steps: int = 8, updates: int = 100, seed: int = 0
) -> tuple[Run, dict[str, np.ndarray]]:
    """The run after its updates, and the metrics of each."""
    start = jax.jit(functools.partial(begin, env=env, num_envs=lanes))
    run = start(algorithm, root=jax.random.key(seed))
    run, metrics = make_step(env, steps, updates, None)(algorithm, run, np.int32(updates))
    return run, {name: np.asarray(values) for name, values in metrics.items()}


def last_return(metrics: dict[str, np.ndarray], updates: int = 20) -> float:
    """The mean return of the episodes that ended in the last updates."""
    episodes = metrics["rollout/episodes"][-updates:]
    totals = np.where(episodes > 0, metrics["rollout/return_mean"][-updates:] * episodes, 0.0)
    return float(totals.sum() / episodes.sum())
