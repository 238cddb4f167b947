"""Many runs at once: one compiled program whose every array has the runs as its first axis.

Nothing in the algorithm or the collector knows of this: an update is ``vmap``ped over runs that
differ in their root key and in the algorithm's floats, and the runs are shared over devices, a
group to each.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array
from jax.sharding import AxisType, Mesh, PartitionSpec

from trimtab.training.evaluate import Episodes, make_evaluator
from trimtab.training.step import Run, begin, on_mesh, one_update, repeated
from trimtab.training.table import Table
from trimtab.types import JaxEnv, Metrics

SEEDS_AXIS = "seeds"
OF_EACH = PartitionSpec(SEEDS_AXIS)


def stacked(algorithms: Sequence[Any]) -> Any:
    """Algorithms that differ in floats alone, as one whose floats are arrays [runs]."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *algorithms)


def begin_seeds(
    algorithms: Any, env: JaxEnv, num_envs: int, seeds: Array, staggered: bool = False
) -> Run:
    """The runs of several seeds before their first updates, as one."""

    def one(algorithm: Any, seed: Array) -> Run:
        return begin(algorithm, env, num_envs, jax.random.key(seed), staggered)

    return jax.vmap(one)(algorithms, seeds)


def make_seeds_step(
    env: JaxEnv, num_steps: int, capacity: int, mesh: Mesh | None
) -> Callable[[Any, Run, Array], tuple[Run, Table]]:
    """As ``make_step``, for runs of ``stacked`` algorithms; metrics are [capacity, runs, …]."""

    def step(algorithms: Any, runs: Run, count: Array) -> tuple[Run, Table]:
        def update(runs: Run) -> tuple[Run, Metrics]:
            return jax.vmap(lambda algorithm, run: one_update(algorithm, env, num_steps, run))(
                algorithms, runs
            )

        return repeated(update, runs, count, capacity)

    if mesh is None:
        return jax.jit(step)
    per_run = (OF_EACH, PartitionSpec(None, SEEDS_AXIS))
    return on_mesh(step, mesh, (OF_EACH, OF_EACH, PartitionSpec()), per_run)


def make_seeds_evaluator(
    env: JaxEnv, episodes: int, deterministic: bool, mesh: Mesh | None
) -> Callable[[Any, Any, Array], Episodes]:
    """As ``make_evaluator``, for several learners, with a root for each; arrays are [runs, …]."""
    evaluate = jax.vmap(make_evaluator(env, episodes, deterministic))
    if mesh is None:
        return jax.jit(evaluate)
    return on_mesh(evaluate, mesh, (OF_EACH, OF_EACH, OF_EACH), OF_EACH)


def one_of(runs: Run, index: int) -> Run:
    """One of several runs, on the device that holds it."""

    def rows(leaf: Array) -> Array:
        return leaf.addressable_shards[shard].data

    devices = len(runs.update.addressable_shards)
    shard, row = divmod(index, runs.update.shape[0] // devices)
    return _row(jax.tree.map(rows, runs), jnp.int32(row))


@jax.jit
def _row(runs: Run, row: Array) -> Run:
    return jax.tree.map(lambda leaf: leaf[row], runs)


def seeds_mesh(devices: int) -> Mesh | None:
    """A mesh that shares the runs over that many devices, or None for one."""
    if devices == 1:
        return None
    return jax.make_mesh((devices,), (SEEDS_AXIS,), (AxisType.Auto,))
