"""A run from its configuration to its end: environment, programs, folder, loop."""

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from trimtab.envs.make import find
from trimtab.log.progress import Progress
from trimtab.log.writer import JsonLines, read_jsonl
from trimtab.spaces import EnvSpec
from trimtab.training import checkpoint
from trimtab.training.config import TrainSettings, batch_size, num_updates
from trimtab.training.devices import DevicePlan
from trimtab.training.ledger import Ledger, Records
from trimtab.training.loop import Loop, Outcome, Programs, Schedule
from trimtab.training.rundir import RunFolder
from trimtab.training.step import Run
from trimtab.training.tracking import tracked


class HasSpec(Protocol):
    """An environment, or where environments come from."""

    @property
    def spec(self) -> EnvSpec: ...


class Session(Protocol):
    """What a run is made of, once its configuration has been checked.

    There are two: ``FusedSession``, whose environment is in the compiled program, and
    ``HostSession``, whose environments are outside of it. Nobody else asks which it is.
    """

    @property
    def env(self) -> HasSpec: ...
    @property
    def algorithm(self) -> Any: ...
    @property
    def settings(self) -> TrainSettings: ...
    @property
    def schedule(self) -> Schedule: ...
    @property
    def template(self) -> Any:
        """The shapes of a run, to load a checkpoint into."""
        ...

    def check(self) -> None:
        """Refuse what could not be trained, before memory is taken for it."""
        ...

    def compile(self) -> tuple[Run, Programs]:
        """The run before its first update, and the programs."""
        ...

    def place(self, run: Run) -> Run:
        """The run's arrays with the placement that the programs expect."""
        ...

    def evaluator(self, episodes: int, deterministic: bool) -> Any:
        """An ``evaluate(algorithm, learner, root) -> Episodes``, kept for the next time."""
        ...

    def close(self) -> None:
        """End what training has opened. Evaluators work afterwards, too."""
        ...


def prepare(
    env: Any,
    algorithm: Any,
    settings: TrainSettings,
    devices: DevicePlan,
    options: Mapping[str, Any],
) -> Session:
    """Make the environment, and refuse what could not be trained, before memory is taken."""
    made: Any = find(env, **options)
    whole = as_arrays(dataclasses.replace(algorithm, total_updates=float(num_updates(settings))))
    if hasattr(made, "step"):
        from trimtab.training.fused import FusedSession

        session: Session = FusedSession(made, whole, settings, devices)
    else:
        from trimtab.training.host import HostSession

        session = HostSession(made, whole, settings)
    session.check()
    return session


def network_shapes(run: Run) -> dict[str, tuple[int, ...]]:
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
    try:
        with tracked([folder], settings.track, resumed_at, progress) as watched:
            loop = Loop(session.algorithm, programs, session.schedule, ledger, watched)
            return loop.go(start), compile_seconds
    finally:
        session.close()


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
    shapes = network_shapes(session.template)
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
        "network": network_shapes(template),
    }
    run, notes = checkpoint.load(folder.checkpoint_path(name), template, expect=expect)
    return run, dict(notes)
