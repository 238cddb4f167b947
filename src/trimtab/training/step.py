"""One update, and many of them in one compiled call: ``Run -> (Run, Metrics)``."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import AxisType, Mesh, PartitionSpec

from trimtab.collect.episodes import Finished, start_lanes
from trimtab.collect.fused import collect_fused
from trimtab.collect.whole import collect_whole, collects_whole, metrics_of
from trimtab.envs.wrappers import first_cuts
from trimtab.keys import Purpose, stream
from trimtab.ops.across import ALONE, Across
from trimtab.training.table import Table
from trimtab.types import JaxEnv, Metrics, Rollout

LANES_AXIS = "lanes"
FAULT_METRIC = "rollout/fault"


class Run(NamedTuple):
    """All that changes in a run, and so all that a checkpoint holds."""

    learner: Any
    lanes: Any  # ``Lanes``; () where the environments are outside of the compiled program
    root: Array  # the root key: never changes, and every random number follows from it
    update: Array  # updates done


def begin(algorithm: Any, env: JaxEnv, num_envs: int, root: Array, staggered: bool = False) -> Run:
    """A run before its first update; ``staggered`` so that lanes do not truncate in phase."""
    learner = algorithm.init(stream(root, Purpose.INIT), env.spec)
    index = jnp.arange(num_envs, dtype=jnp.int32)
    lanes = start_lanes(algorithm, env, algorithm.actor(learner), root, index)
    if staggered:
        lanes = lanes._replace(cut=first_cuts(env, index, num_envs))
    if collects_whole(algorithm):
        lanes = lanes._replace(lead=jnp.zeros(num_envs, jnp.int32))
    return Run(learner, lanes, root, jnp.int32(0))


def one_update(
    algorithm: Any, env: JaxEnv, num_steps: int, run: Run, across: Across = ALONE
) -> tuple[Run, Metrics]:
    """Collect a rollout, then learn from it."""
    actor = algorithm.actor(run.learner)
    started = run.lanes._replace(finished=Finished.none(run.lanes.index.shape[0]))
    whole = collects_whole(algorithm)
    collect = collect_whole if whole else collect_fused
    lanes, rollout = collect(algorithm, env, actor, started, run.root, run.update, num_steps)
    shuffle_key = stream(run.root, Purpose.SHUFFLE, run.update)
    learner, metrics = algorithm.update(run.learner, rollout, shuffle_key, across)
    metrics |= lanes.finished.metrics(across)
    if whole:
        metrics |= metrics_of(run.lanes.lead, lanes.lead, num_steps, across)
    metrics[FAULT_METRIC] = first_fault(rollout, lanes.index, across)
    return Run(learner, lanes, run.root, run.update + 1), metrics


def first_fault(rollout: Rollout, index: Array, across: Across) -> Array:
    """(step, lane) of the first observation or reward that is not finite, or (−1, −1)."""
    steps, lanes = rollout.reward.shape
    bad = ~jnp.isfinite(rollout.reward)
    for seen in jax.tree.leaves((rollout.obs, rollout.next_obs)):
        if jnp.issubdtype(seen.dtype, jnp.floating):
            bad |= ~jnp.isfinite(seen).reshape(steps, lanes, -1).all(axis=-1)
    row = jnp.argmax(bad)  # the first in time, then in lane
    here = jnp.where(bad.any(), jnp.stack([row // lanes, index[row % lanes]]), -1)
    return across.max(here.astype(jnp.int32))


def make_step(
    env: JaxEnv, num_steps: int, capacity: int, mesh: Mesh | None
) -> Callable[[Any, Run, Array], tuple[Run, Table]]:
    """A jitted ``step(algorithm, run, count) -> (run, metrics)`` of ``count`` updates.

    ``count`` may be any number up to ``capacity`` without compiling again. Metrics are
    [capacity, ...]; rows past ``count`` hold nothing.
    """
    across = ALONE if mesh is None else Across(LANES_AXIS, mesh.size)

    def step(algorithm: Any, run: Run, count: Array) -> tuple[Run, Table]:
        return repeated(
            lambda run: one_update(algorithm, env, num_steps, run, across), run, count, capacity
        )

    if mesh is None:
        return jax.jit(step)
    shared, split = PartitionSpec(), PartitionSpec(LANES_AXIS)
    layout = Run(shared, split, shared, shared)  # pyright: ignore[reportArgumentType]
    return on_mesh(step, mesh, (shared, layout, shared), (layout, shared))


def repeated(
    update: Callable[[Run], tuple[Run, Metrics]], run: Run, count: Array, capacity: int
) -> tuple[Run, Table]:
    """``update`` applied ``count`` times, and its metrics as a table of ``capacity`` rows."""
    update = jax.jit(update)  # traced once, here and in the loop
    shapes = jax.eval_shape(lambda: Table.of(update(run)[1]))
    empty = jax.tree.map(lambda one: jnp.zeros((capacity, *one.shape), one.dtype), shapes)

    def body(row: Array, carry: tuple[Run, Table]) -> tuple[Run, Table]:
        run, metrics = update(carry[0])
        table = Table.of(metrics)
        return run, jax.tree.map(lambda all_, one: all_.at[row].set(one), carry[1], table)

    return lax.fori_loop(0, count, body, (run, empty))


def on_mesh(function: Any, mesh: Mesh, in_specs: Any, out_specs: Any) -> Any:
    """``function`` jitted over a mesh, with its arguments and results laid out as they say."""
    return jax.jit(
        jax.shard_map(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False)
    )


def lanes_mesh(devices: int) -> Mesh | None:
    """A mesh over that many devices, or None for one."""
    if devices == 1:
        return None
    return jax.make_mesh((devices,), (LANES_AXIS,), (AxisType.Auto,))
