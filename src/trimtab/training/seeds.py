"""Many seeds at once: one compiled program whose every array has the seeds as its first axis.

Nothing in the algorithm or the collector knows of this: an update is ``vmap``ped over runs that
differ in their root key, and the seeds are shared over devices, a group to each.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, Mesh, PartitionSpec

from trimtab.training.step import Run, begin, on_mesh, one_update, repeated
from trimtab.types import JaxEnv, Metrics

SEEDS_AXIS = "seeds"


def begin_seeds(algorithm: Any, env: JaxEnv, num_envs: int, seeds: Sequence[int]) -> Run:
    """The runs of several seeds before their first updates, as one."""
    return jax.vmap(lambda seed: begin(algorithm, env, num_envs, jax.random.key(seed)))(
        jnp.asarray(seeds, jnp.uint32)
    )


def make_seeds_step(
    env: JaxEnv, num_steps: int, capacity: int, mesh: Mesh | None
) -> Callable[[Any, Run, Array], tuple[Run, Metrics]]:
    """As ``make_step``, for the run of several seeds; metrics are [capacity, seeds, ...]."""

    def step(algorithm: Any, runs: Run, count: Array) -> tuple[Run, Metrics]:
        def update(runs: Run) -> tuple[Run, Metrics]:
            return jax.vmap(lambda run: one_update(algorithm, env, num_steps, run))(runs)

        return repeated(update, runs, count, capacity)

    if mesh is None:
        return jax.jit(step)
    return on_mesh(step, mesh, PartitionSpec(SEEDS_AXIS), PartitionSpec(None, SEEDS_AXIS))


def seeds_mesh(devices: int) -> Mesh | None:
    """A mesh that shares the seeds over that many devices, or None for one."""
    if devices == 1:
        return None
    return jax.make_mesh((devices,), (SEEDS_AXIS,), (AxisType.Auto,))
