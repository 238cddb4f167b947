"""A run from its configuration to its end: devices, environment, programs, folder, loop."""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from trimtab.envs.make import make
from trimtab.log.progress import Progress
from trimtab.log.writer import JsonLines, read_jsonl
from trimtab.spaces import num_bytes
from trimtab.training import checkpoint
from trimtab.training.config import TrainSettings, batch_size, num_updates
from trimtab.training.devices import DevicePlan
from trimtab.training.evaluate import make_evaluator
from trimtab.training.ledger import Ledger, Records
from trimtab.training.loop import Loop, Outcome, Programs, Schedule, default_eval_every
from trimtab.training.memory import check_memory, tree_bytes
from trimtab.training.rundir import RunFolder
from trimtab.training.step import LANES_AXIS, Run, begin, lanes_mesh, make_step
from trimtab.training.tracking import tracked
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

    def check(self) -> None:
        """Trace the first state of the run without making it: unfit spaces and sizes show here."""
        lanes = self.template.lanes
        obs_bytes = tree_bytes(lanes.obs)
        action_bytes = self.settings.num_envs * num_bytes(self.env.spec.action)
        # Beside the observation, its successor and the action: reward, flags, log-probability.
        step_bytes = 2 * obs_bytes + action_bytes + 16 * self.settings.num_envs
        check_memory(tree_bytes(lanes), step_bytes, self.settings.num_envs, self.settings.num_steps)

    @functools.cached_property
    def root(self) -> Array:
        return jax.random.key(self.settings.seed)

    @functools.cached_property
    def _begin(self) -> Any:
        # One jitted function for tracing, compiling and running: it is traced once.
        return jax.jit(
            lambda algorithm, root: begin(algorithm, self.env, self.settings.num_envs, root)
        )

    @functools.cached_property
    def template(self) -> Run:
        """The shapes of a run, to load a checkpoint into."""
        return jax.eval_shape(self._begin, self.algorithm, self.root)

    @functools.cached_property
    def _evaluators(self) -> dict[tuple[int, bool], Any]:
        return {}

    def lowered_evaluator(self, episodes: int, deterministic: bool) -> Any:
        evaluate: Any = make_evaluator(self.env, episodes, deterministic)
        return evaluate.lower(self.algorithm, self.template.learner, self.root)

    def evaluator(self, episodes: int, deterministic: bool) -> Any:
        """A compiled ``evaluate(algorithm, learner, root)``, kept for the next time."""
        kind = (episodes, deterministic)
        if kind not in self._evaluators:
            self._evaluators[kind] = self.lowered_evaluator(*kind).compile()
        return self._evaluators[kind]

    def compile(self) -> tuple[Run, Programs]:
        """The run before its first update, and the compiled programs."""
        mesh = lanes_mesh(self.devices.devices)
        step: Any = make_step(self.env, self.settings.num_steps, self.schedule.capacity, mesh)
        while_training = (self.settings.eval_episodes, True)
        # XLA compiles outside of Python's lock: three programs in the time of the longest.
        with ThreadPoolExecutor(3) as pool:
            started = pool.submit(self._begin, self.algorithm, self.root)
            lowered = step.lower(self.algorithm, self.place(self.template), np.int32(1))
            stepping = pool.submit(lowered.compile)
            evaluating = pool.submit(self.lowered_evaluator(*while_training).compile)
            self._evaluators[while_training] = evaluating.result()
            programs = Programs(stepping.result(), evaluating.result())
            return self.place(started.result()), programs

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
    ledger, saved = open_ledger(session, folder, progress, resumed=resumed)
    start = run if saved is None else session.place(saved)
    settings = session.settings
    resumed_at = 0 if saved is None else int(saved.update) * batch_size(settings)
    with tracked([folder], settings.track, resumed_at, progress) as watched:
        loop = Loop(session.algorithm, programs, session.schedule, ledger, watched)
        return loop.go(start), compile_seconds


def open_ledger(
    session: Session,
    folder: RunFolder,
    progress: Progress,
    *,
    resumed: bool,
    alone: Callable[[Any], Run] = lambda run: run,
) -> tuple[Ledger, Run | None]:
    """The ledger of a run's folder, and the run that it goes on from; None where it begins.

    ``alone`` gives the run itself, where the loop keeps it in some other form.
    """
    metrics, evaluations = JsonLines(folder.metrics_path), JsonLines(folder.evaluations_path)
    run = None
    # A run that was stopped before its first checkpoint begins again.
    if resumed and checkpoint.exists(folder.checkpoint_path("latest")):
        run, notes = load_run(session, folder, "latest")
        metrics.truncate(notes["metrics_offset"])
        evaluations.truncate(notes["evaluations_offset"])
    else:
        metrics.truncate(0)
        evaluations.truncate(0)
    shapes = session.network_shapes(session.template)
    identity = {"environment": session.env.spec.id, "network": shapes}

    def save(name: str, saved: Any, update: int) -> None:
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
            checkpoint.save(folder.checkpoint_path(name), alone(saved), notes)
        except OSError as error:
            progress.say(
                f"The checkpoint {name!r} of update {update:,} could not be saved "
                f"({error.strerror or error}); the one before it is kept, and training goes on."
            )

    best = max((row["mean"] for row in read_jsonl(evaluations.path)), default=float("-inf"))
    return Ledger(Records(metrics, evaluations, save), session.schedule.batch, best), run


def load_run(session: Session, folder: RunFolder, name: str) -> tuple[Run, dict[str, Any]]:
    """A checkpoint of the folder, as this session's run, and the notes that came with it."""
    template = session.template
    expect = {
        "environment": session.env.spec.id,
        "network": session.network_shapes(template),
    }
    run, notes = checkpoint.load(folder.checkpoint_path(name), template, expect=expect)
    return run, dict(notes)
