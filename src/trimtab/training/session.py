"""A run from its configuration to its end: environment, programs, folder, loop."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import jax
import numpy as np

from trimtab.envs.make import find, packages_of
from trimtab.envs.wrappers import wrapped
from trimtab.errors import CheckpointError, DamagedCheckpointError, SettingError
from trimtab.log.progress import Progress
from trimtab.log.writer import read_last
from trimtab.spaces import EnvSpec
from trimtab.training import checkpoint
from trimtab.training.config import TrainSettings, num_updates
from trimtab.training.devices import DevicePlan
from trimtab.training.ledger import RECENT_UPDATES, Best, Gate, Ledger
from trimtab.training.loop import Loop, Outcome, Programs, Schedule
from trimtab.training.records import Moment, Records
from trimtab.training.rundir import RunFolder
from trimtab.training.saver import Saver
from trimtab.training.specfile import write_spec
from trimtab.training.step import Run
from trimtab.training.tracking import tracked

# Enough of metrics.jsonl for the updates from which the recent return is known.
RECENT_BYTES = RECENT_UPDATES * 16_384


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

    def settled(self) -> "tuple[Session, Mapping[str, Any]]":
        """With ``vectorization = auto`` replaced by what was measured to be the fastest, and a
        record of that: nothing where there was nothing to choose."""
        ...

    def begin(self) -> Run:
        """The run before its first update."""
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
    session = assembled(env, algorithm, settings, devices, options)
    session.check()
    return session


def assembled(
    env: Any,
    algorithm: Any,
    settings: TrainSettings,
    devices: DevicePlan,
    options: Mapping[str, Any],
) -> Session:
    """The session of a run, unchecked."""
    made: Any = find(env, **options)
    whole = told_its_length(algorithm, settings)
    if settings.lab_every:
        whole = watched(whole, settings.lab_every)
    if hasattr(made, "step"):
        from trimtab.training.fused import FusedSession, Origin

        packages = packages_of(env)
        origin = None if packages is None else Origin(env, options, packages)
        changed_env = wrapped(made, settings.action_repeat, settings.max_episode_steps)
        return FusedSession(changed_env, whole, settings, devices, origin)
    from trimtab.envs.sources import changed
    from trimtab.training.host import HostSession

    source = changed(made, settings.action_repeat, settings.max_episode_steps)
    return HostSession(source, whole, settings)


def told_its_length(algorithm: Any, settings: TrainSettings) -> Any:
    """The algorithm as a run has it: in arrays, and with the number of updates for schedules."""
    return as_arrays(dataclasses.replace(algorithm, total_updates=float(num_updates(settings))))


def watched(algorithm: Any, every: int) -> Any:
    """The algorithm, measuring the noise of its gradient in every so many updates."""
    from trimtab.algos.watched import Watched

    if not hasattr(algorithm, "terms"):
        raise SettingError(
            f"lab_every = {every} has no effect on {type(algorithm).__name__}, which has no policy "
            "gradient of rollouts: leave it out."
        )
    return Watched(algorithm, every)


def network_shapes(run: Run) -> dict[str, tuple[int, ...]]:
    return run.learner.parameters.shapes()


def as_arrays(algorithm: Any) -> Any:
    """The algorithm with its numbers as float32 arrays, so that other numbers do not recompile."""
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float32), algorithm)


@dataclasses.dataclass(frozen=True)
class Manner:
    """How a run is begun, and how it may be left."""

    resumed: bool = False  # from its latest checkpoint
    strict: bool = False  # a damaged checkpoint is an error, even if the one before it is whole
    grace: float | None = None  # see ``StopRequest``
    stop_after: int | None = None  # updates, though the run would be longer


def run_session(
    session: Session, folder: RunFolder, progress: Progress, manner: Manner
) -> tuple[Outcome, float]:
    """Compile, train, and keep the folder up to date. Also the seconds of compiling."""
    progress.compiling()
    before = time.perf_counter()
    run, programs = session.compile()
    compile_seconds = time.perf_counter() - before
    progress.compiled(compile_seconds)
    settings = session.settings
    with contextlib.closing(session), Saver() as saver:
        point = saved_point(session, folder, progress, manner)
        start = run if point is None else session.place(point.run)
        note_new_episodes(session, folder, point)
        resumed_at = 0 if point is None else point.notes["steps"]
        ledger = open_ledger(session, folder, saver, point)
        with tracked([folder], settings.track, resumed_at, progress) as watched:
            schedule = dataclasses.replace(session.schedule, stop_after=manner.stop_after)
            loop = Loop(session.algorithm, programs, schedule, ledger, saver, watched)
            return loop.go(start, manner.grace), compile_seconds


def open_ledger(
    session: Session,
    folder: RunFolder,
    saver: Saver,
    point: "SavedPoint | None",
    alone: Callable[[Any], Run] = lambda run: run,
) -> Ledger:
    """The ledger of a run's folder, which goes on from a saved point or begins.

    ``alone`` gives the run itself, where the loop keeps it in some other form.
    """
    write_spec(folder.path, session.env.spec)
    shapes = network_shapes(session.template)
    identity = {"environment": session.env.spec.id, "network": shapes}
    records = Records(folder, saver, identity, alone)
    records.rewind(point.notes if point else None)
    gate = Gate(session.settings.eval_from_return, session.schedule.updates)
    ledger = Ledger(records, session.schedule.batch, point.best if point else None, gate)
    ledger.recall(read_last(folder.metrics_path, RECENT_BYTES), point.notes if point else None)
    return ledger


def note_new_episodes(session: Session, folder: RunFolder, point: "SavedPoint | None") -> None:
    """Keep in ``config.toml`` that a run goes on without the state of its environments."""
    if point is None or point.run.lanes != () or session.template.lanes != ():
        return
    if point.notes["update"] < session.schedule.updates:
        folder.note_resume({"steps": point.notes["steps"], "new_episodes": True})


@dataclasses.dataclass(frozen=True)
class SavedPoint:
    """Where a run goes on."""

    run: Run
    notes: Mapping[str, Any]
    best: Best | None


def saved_point(
    session: Session, folder: RunFolder, progress: Progress, manner: Manner
) -> SavedPoint | None:
    """Where the run goes on: at its latest checkpoint, or at the one before if that is damaged.

    None where it begins; a run that was stopped before its first checkpoint begins again.
    """

    def whole(name: str) -> tuple[Run, dict[str, Any]] | None:
        path = folder.checkpoint_path(name)
        while checkpoint.exists(path):
            try:
                return load_run(session, folder, name, whole=True)
            except DamagedCheckpointError as error:
                replaceable = name == "best" or checkpoint.previous(path).exists()
                if manner.strict or not (path.exists() and replaceable):
                    raise
                aside = checkpoint.set_aside(path)
                progress.say(f"{error} It is now {aside}, and the run goes on without it.")
        return None

    latest = whole("latest") if manner.resumed else None
    if latest is None:
        return None
    best = whole("best")
    return SavedPoint(*latest, best=_as_best(*best) if best else None)


def point_before(session: Session, folder: RunFolder, point: SavedPoint) -> SavedPoint:
    """The one that the latest replaced, if it was kept; else the latest."""
    latest = folder.checkpoint_path("latest")
    if not checkpoint.previous(latest).exists():
        return point
    run, notes = load_run(session, folder, checkpoint.previous(latest).name)
    return dataclasses.replace(point, run=run, notes=notes)


def _as_best(run: Run, notes: Mapping[str, Any]) -> Best:
    offsets = notes["metrics_offset"], notes["evaluations_offset"]
    moment = Moment(run, notes["update"], notes["steps"], *offsets)
    return Best(moment, notes["evaluation"], saved=True)


def load_run(
    session: Session, folder: RunFolder, name: str, whole: bool = False
) -> tuple[Run, dict[str, Any]]:
    """A checkpoint of the folder, as this session's run, and the notes that came with it.

    With ``whole``, the state of environments outside of the compiled program comes too.
    """
    template, outside = session.template, session.template.lanes == ()
    if outside and whole:
        template = template._replace(lanes=saved_lanes(folder.checkpoint_path(name)))
    expect = {
        "environment": session.env.spec.id,
        "network": network_shapes(template),
    }
    run, notes = checkpoint.load(
        folder.checkpoint_path(name), template, expect=expect, partial=outside and not whole
    )
    return run, dict(notes)


def saved_lanes(path: Path) -> Any:
    """Arrays of the shapes that a checkpoint has of its environments; () if it has none."""
    shapes = {}
    for name, entry in checkpoint.read_manifest(path)["leaves"].items():
        part, _, name = name.partition("/")
        if part == "lanes":
            try:
                # Without memory of its own, whatever a stranger's manifest says.
                empty = np.zeros((), np.dtype(entry["dtype"]))
                shapes[name] = np.broadcast_to(empty, tuple(entry["shape"]))
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(f"Checkpoint {path}: lanes/{name} is {entry!r}.") from error
    return shapes or ()
