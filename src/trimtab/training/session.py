"""A run from its configuration to its end: devices, environment, programs, folder, loop."""

import dataclasses
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from trimtab.collect.fused import collect_fused
from trimtab.envs.make import make
from trimtab.log.progress import Progress
from trimtab.log.writer import JsonLines, read_jsonl
from trimtab.training import checkpoint
from trimtab.training.config import TrainSettings, batch_size, num_updates
from trimtab.training.devices import DevicePlan
from trimtab.training.evaluate import make_evaluator
from trimtab.training.loop import Loop, Outcome, Programs, Records, Schedule, default_eval_every
from trimtab.training.memory import check_memory
from trimtab.training.rundir import RunFolder
from trimtab.training.step import LANES_AXIS, Run, begin, lanes_mesh, make_step
from trimtab.types import JaxEnv


@dataclasses.dataclass(frozen=True)
class Session:
    """What a run is made of, once its configuration has been checked."""

    env: JaxEnv
    algorithm: Any
    settings: TrainSettings
    devices: DevicePlan

    @staticmethod
    def prepare(
        env: JaxEnv | str,
        algorithm: Any,
        settings: TrainSettings,
        devices: DevicePlan,
        options: Mapping[str, Any],
    ) -> "Session":
        """Make the environment, and refuse what could not be trained, before memory is taken."""
        made = make(env, **options)
        whole = dataclasses.replace(algorithm, total_updates=float(num_updates(settings)))
        session = Session(made, as_arrays(whole), settings, devices)
        session.check()
        return session

    @property
    def schedule(self) -> Schedule:
        updates = num_updates(self.settings)
        return Schedule(
            updates=updates,
            batch=batch_size(self.settings),
            eval_every=self.settings.eval_every or default_eval_every(updates),
            checkpoint_every=self.settings.checkpoint_every,
        )

    def begin(self, algorithm: Any, root: Array) -> Run:
        return begin(algorithm, self.env, self.settings.num_envs, root)

    def check(self) -> None:
        """Trace a rollout without running it: unfit spaces and sizes are named here."""

        def first_rollout(algorithm: Any, root: Array) -> Any:
            run = self.begin(algorithm, root)
            actor = algorithm.actor(run.learner)
            return collect_fused(
                algorithm, self.env, actor, run.lanes, root, run.update, self.settings.num_steps
            )

        lanes, rollout = jax.eval_shape(first_rollout, self.algorithm, self.root())
        check_memory(lanes, rollout, self.settings.num_envs, self.settings.num_steps)

    def root(self) -> Array:
        return jax.random.key(self.settings.seed)

    def template(self) -> Run:
        """The shapes of a run, to load a checkpoint into."""
        return jax.eval_shape(self.begin, self.algorithm, self.root())

    def compile(self) -> tuple[Run, Programs]:
        """The run before its first update, and the compiled programs."""
        mesh = lanes_mesh(self.devices.devices)
        step: Any = make_step(self.env, self.settings.num_steps, self.schedule.capacity, mesh)
        evaluate: Any = make_evaluator(self.env, self.settings.eval_episodes, deterministic=True)
        shapes = self.template()
        placed = self.place(shapes)

        def compile_begin() -> Run:
            run = jax.jit(self.begin)(self.algorithm, self.root())
            return jax.tree.map(jax.device_put, run, jax.tree.map(lambda x: x.sharding, placed))

        # XLA compiles outside of Python's lock: three programs in the time of the longest.
        with ThreadPoolExecutor(3) as pool:
            started = pool.submit(compile_begin)
            stepping = pool.submit(step.lower(self.algorithm, placed, np.int32(1)).compile)
            evaluating = pool.submit(
                evaluate.lower(self.algorithm, shapes.learner, self.root()).compile
            )
            return started.result(), Programs(stepping.result(), evaluating.result())

    def place(self, run: Run) -> Run:
        """The run's arrays (or shapes) with the placement that the compiled step expects."""
        mesh = lanes_mesh(self.devices.devices)
        if mesh is None:
            sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            shardings = jax.tree.map(lambda _: sharding, run)
        else:
            shared = NamedSharding(mesh, PartitionSpec())
            split = NamedSharding(mesh, PartitionSpec(LANES_AXIS))
            shardings = jax.tree.map(lambda _: shared, run)._replace(
                lanes=jax.tree.map(lambda _: split, run.lanes)
            )

        def put(leaf: Any, sharding: Any) -> Any:
            if isinstance(leaf, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
            return jax.device_put(leaf, sharding)

        return jax.tree.map(put, run, shardings)

    def network_shapes(self, run: Run) -> dict[str, tuple[int, ...]]:
        return run.learner.parameters.shapes()


def as_arrays(algorithm: Any) -> Any:
    """The algorithm with its numbers as float32 arrays, so that other numbers do not recompile."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), algorithm)


def run_session(
    session: Session, folder: RunFolder, progress: Progress, *, resumed: bool
) -> tuple[Outcome, float]:
    """Compile, train, and keep the folder up to date. Also the seconds of compiling."""
    progress.compiling()
    before = time.perf_counter()
    run, programs = session.compile()
    compile_seconds = time.perf_counter() - before
    progress.compiled(compile_seconds)
    metrics, evaluations = JsonLines(folder.metrics_path), JsonLines(folder.evaluations_path)
    # A run that was stopped before its first checkpoint begins again.
    if resumed and checkpoint.exists(folder.checkpoint_path("latest")):
        run, notes = load_run(session, folder, "latest")
        metrics.truncate(notes["metrics_offset"])
        evaluations.truncate(notes["evaluations_offset"])
        run = session.place(run)
    else:
        metrics.truncate(0)
        evaluations.truncate(0)
    identity = {"environment": session.env.spec.id, "network": session.network_shapes(run)}

    def save(name: str, saved: Run, update: int) -> None:
        metrics.sync()
        evaluations.sync()
        notes = {
            **identity,
            "update": update,
            "steps": update * batch_size(session.settings),
            "metrics_offset": metrics.offset,
            "evaluations_offset": evaluations.offset,
        }
        try:
            checkpoint.save(folder.checkpoint_path(name), saved, notes)
        except OSError as error:
            progress.say(
                f"The checkpoint {name!r} of update {update:,} could not be saved "
                f"({error.strerror or error}); the one before it is kept, and training goes on."
            )

    best = max((row["mean"] for row in read_jsonl(evaluations.path)), default=float("-inf"))
    records = Records(metrics, evaluations, save)
    loop = Loop(session.algorithm, programs, session.schedule, records, progress, best)
    return loop.go(run), compile_seconds


def load_run(session: Session, folder: RunFolder, name: str) -> tuple[Run, dict[str, Any]]:
    """A checkpoint of the folder, as this session's run, and the notes that came with it."""
    template = session.template()
    expect = {
        "environment": session.env.spec.id,
        "network": session.network_shapes(template),
    }
    run, notes = checkpoint.load(folder.checkpoint_path(name), template, expect=expect)
    return run, dict(notes)
