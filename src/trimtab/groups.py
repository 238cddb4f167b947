"""Several runs at once from Python: ``train_group``, ``load_group``, and what they return."""

import contextlib
import dataclasses
import functools
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, final

import numpy as np

from trimtab.api import TrainedRun, announce, configuration_of, tell_plan
from trimtab.configuration import Configuration
from trimtab.continuing import goes_on, note_how_it_goes_on, require_run
from trimtab.envs.make import entry_for
from trimtab.errors import RunFolderError, SettingError
from trimtab.log.progress import Progress, Quiet
from trimtab.opening import make_session, stored_configuration, write_config
from trimtab.training.checkpoint import exists, read_manifest
from trimtab.training.config import batch_size, num_updates
from trimtab.training.devices import DevicePlan, cores, start_jax
from trimtab.training.group_summary import summary_of
from trimtab.training.groupdir import GroupFolder, members_in
from trimtab.training.members import Member, Sweep, members_of
from trimtab.training.rundir import RunFolder

# What each run records of devices: alone, it would get its metrics on one.
ONE_DEVICE = DevicePlan(1, single_thread=False)


@final
class TrainedGroup:
    """The folder of a group of runs, and what can be asked of it."""

    def __init__(self, folder: GroupFolder, timing: Mapping[str, float] | None = None):
        self.path = folder.path
        self.timing = dict(timing or {})  # seconds of compiling and of training, if just trained
        self._folder = folder

    @functools.cached_property
    def document(self) -> dict[str, Any]:
        """What ``group.json`` says."""
        return self._folder.read()

    @property
    def members(self) -> list[Member]:
        """The seed and the swept values of each run."""
        return members_in(self.document)

    @functools.cached_property
    def runs(self) -> list[TrainedRun]:
        """Each run, in the order of ``members``."""
        return [TrainedRun(RunFolder.open(self._folder.run_path(one))) for one in self.members]

    @property
    def summary(self) -> list[dict[str, Any]]:
        """A row for each combination of swept values, over its seeds; [] before the end."""
        return self.document["summary"]

    @property
    def stopped_by(self) -> str | None:
        """The signal that ended training early, if one did."""
        return self.document["stopped_by"]

    def __repr__(self) -> str:
        return f"TrainedGroup({str(self.path)!r})"


def train_group(
    env: Any,
    algorithm: Any = None,
    *,
    seeds: Iterable[int],
    sweep: Sweep | None = None,
    run_dir: Path | str | None = None,
    resume: Literal["never", "auto"] = "never",
    env_options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> TrainedGroup:
    """Train several runs at once, as one compiled program: every seed with every swept value.

    ``sweep`` maps floats of the algorithm to lists of values, such as
    ``{"learning_rate": [1e-4, 3e-4]}``. All else is as in ``train``. Each run has a folder of its
    own in the group's, and the metrics that it would have alone on one device, to float tolerance.
    ``resume="auto"`` goes on with the group in ``run_dir``, if it has begun there with these runs.
    """
    configuration = configuration_of(env, algorithm, env_options or {})
    configuration = configuration.with_values(settings, "train_group()").checked()
    members = members_of(configuration.algorithm, seeds, sweep or {})
    progress = progress or Quiet()
    if not goes_on(resume, run_dir):
        return train_members(configuration, members, env, run_dir, progress)
    assert run_dir is not None
    path, total = Path(run_dir).expanduser(), configuration.training.total_steps
    require_group(path, configuration, members)
    done, planned = group_resume_point(path, total_steps=total)
    if done >= planned:
        return load_group(path)
    return resume_group(path, progress, total_steps=total)


def load_group(path: Path | str) -> TrainedGroup:
    """A group from its folder."""
    return TrainedGroup(GroupFolder.open(path))


def train_members(
    configuration: Configuration,
    members: Sequence[Member],
    env: Any,
    run_dir: Path | str | None,
    progress: Progress,
    grace: float | None = None,
    stop_after: int | None = None,
) -> TrainedGroup:
    """Train the members of a group in a new folder; ``stop_after`` so many updates at the most."""
    if isinstance(env, str):
        entry_for(env)
    configurations = [of_member(configuration, member) for member in members]
    devices = devices_for(configuration.training.devices, len(members))
    name, algorithm = configuration.env_id, configuration.algorithm_name
    folder = GroupFolder.create(run_dir, name, algorithm, len(members))
    try:
        session = group_session(configurations[0], members, env, devices)
    except BaseException:
        if run_dir is None:
            with contextlib.suppress(OSError):
                folder.path.rmdir()
        raise
    announce(configuration, env, progress)
    document = {
        "environment": {"id": name, "options": dict(configuration.env_options)},
        "algorithm": algorithm,
        "solved_at": session.common.env.spec.solved_at,
        "devices": session.devices,
        "runs": [
            {"folder": member.name, "seed": member.seed, "values": dict(member.values)}
            for member in members
        ],
        "stopped_by": None,
        "summary": [],
    }
    folders = [
        RunFolder.create(folder.run_path(member), name, algorithm, member.seed)
        for member in members
    ]
    folder.write(document)
    tell_plan(configuration, session.common.env.spec, progress, runs=len(members))
    with _locked(folders):
        for run_folder, own in zip(folders, configurations, strict=True):
            write_config(run_folder, own, ONE_DEVICE)
        manner = {"grace": grace, "stop_after": stop_after}
        return _run(session, folder, document, folders, progress, **manner)


def resume_group(
    path: Path | str,
    progress: Progress | None = None,
    *,
    strict: bool = False,
    grace: float | None = None,
    **settings: Any,
) -> TrainedGroup:
    """Go on with all runs of a group that have not failed, as if they had never stopped."""
    folder = GroupFolder.open(path)
    document = folder.read()
    members = [
        member
        for member, row in zip(members_in(document), document["runs"], strict=True)
        if row.get("error") is None
    ]
    going = [RunFolder.open(folder.run_path(member)) for member in members]
    with _locked(going):
        stored = [stored_configuration(one) for one in going]
        configurations = [one.with_values(settings, "resume()").checked() for one in stored]
        first = configurations[0]
        entry_for(first.env_id)
        devices = devices_for("auto", len(going))
        session = group_session(first, members, first.env_id, devices)
        progress = progress or Quiet()
        listeners = [progress, *[Quiet()] * (len(going) - 1)]  # of all runs it is said once
        for one, before, after, listener in zip(
            going, stored, configurations, listeners, strict=True
        ):
            note_how_it_goes_on(one, before, after, ONE_DEVICE, listener)
        manner = {"resumed": True, "strict": strict, "grace": grace}
        return _run(session, folder, document, going, progress, **manner)


def require_group(path: Path, configuration: Configuration, members: Sequence[Member]) -> None:
    """Refuse to go on with the group in the folder if it is not of these members."""
    folder = GroupFolder.open(path)
    known = members_in(folder.read())
    if [one.name for one in known] != [one.name for one in members]:
        raise SettingError(
            f"The group in {path} has the runs {', '.join(one.name for one in known)}, and "
            f"{', '.join(one.name for one in members)} are asked for here. Give the same seeds and "
            "values, or another folder with --run-dir."
        )
    for member in members:
        require_run(folder.run_path(member), of_member(configuration, member))


def group_resume_point(path: Path | str, **settings: Any) -> tuple[int, int]:
    """The steps that each run of a group has saved, and those that it would do, all in all."""
    folder = GroupFolder.open(path)
    rows = folder.read()["runs"]
    going = [row["folder"] for row in rows if row.get("error") is None]
    if not going:
        raise RunFolderError(f"No run of the group {path} can go on: {rows[0]['error']}")
    first = RunFolder.open(folder.path / going[0])
    training = stored_configuration(first).with_values(settings, "resume()").checked().training
    latest = first.checkpoint_path("latest")
    done = int(read_manifest(latest)["steps"]) if exists(latest) else 0
    return done, num_updates(training) * batch_size(training)


def of_member(configuration: Configuration, member: Member) -> Configuration:
    """The configuration of one run of a group: as it would be trained alone."""
    own = {"seed": member.seed, "devices": "1", **member.values}
    return configuration.with_values(own, member.name).checked()


def devices_for(requested: str, runs: int) -> int:
    """How many devices share the runs: by default all there are, but one a run at most."""
    if requested == "auto":
        return min(cores(), runs)
    if not requested.isdigit() or not 1 <= int(requested) <= runs:
        raise SettingError(
            f"devices = {requested!r}: expected 'auto', or a number from 1 to {runs}, since {runs} "
            f"runs are shared over them."
        )
    return int(requested)


def group_session(first: Configuration, members: Sequence[Member], env: Any, devices: int) -> Any:
    """The session of members that differ from the first in their seeds and swept values alone."""
    started = start_jax(DevicePlan(devices, single_thread=False))
    from trimtab.training.fused import FusedSession
    from trimtab.training.group import GroupSession

    if first.training.lab_every:
        # Mapped over runs, both branches of "is it due" are computed in every update.
        raise SettingError(
            "lab_every measures one run, and in a group of them it would be measured in every "
            "update: leave it out, or train one seed with --seed."
        )
    common = make_session(first, env, ONE_DEVICE)
    if not isinstance(common, FusedSession):
        raise SettingError(
            f"{common.env.spec.id} is not a JAX environment, and a group of runs is one compiled "
            "program: train its seeds one after another, with --seed."
        )
    algorithms = [
        dataclasses.replace(
            common.algorithm, **{name: np.float32(v) for name, v in member.values.items()}
        )
        for member in members
    ]
    return GroupSession(common, algorithms, [one.seed for one in members], started.devices)


@contextlib.contextmanager
def _locked(folders: Sequence[RunFolder]):
    with contextlib.ExitStack() as stack:
        for folder in folders:
            stack.enter_context(folder.lock())
        yield


def _run(
    session: Any,
    folder: GroupFolder,
    document: dict[str, Any],
    folders: Sequence[RunFolder],
    progress: Progress,
    **manner: Any,
) -> TrainedGroup:
    from trimtab.training.group import run_group
    from trimtab.training.session import Manner

    done = run_group(session, folders, progress, Manner(**manner))
    errors = {folders[place].path.name: str(error) for place, error in done.failures.items()}
    rows = [
        row | {"error": errors.get(row["folder"], row.get("error"))} for row in document["runs"]
    ]
    stopped = done.outcome.stopped_by
    document = document | {"runs": rows, "stopped_by": stopped}
    ended = stopped is None and manner.get("stop_after") is None
    document["summary"] = summary_of(folder.path, document) if ended else []
    folder.write(document)
    timing = {"compile": done.compile_seconds, "train": done.outcome.seconds}
    return TrainedGroup(folder, timing)
