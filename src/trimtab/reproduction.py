"""Whether a run can be trained again with the same numbers, and what two runs differ in.

``reproduce`` trains once more from a run's ``config.toml`` and compares every metric and every
evaluation, bit for bit, as training goes: it ends at the first that differs. A run that was resumed
with other settings is trained again in the same stages.
"""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from trimtab.api import TrainedRun, resume
from trimtab.configuration import Configuration
from trimtab.errors import EnvironmentFaultError, RunFolderError, SettingError
from trimtab.groups import train_members
from trimtab.log.progress import Progress, Quiet, Status
from trimtab.log.writer import read_after, read_jsonl
from trimtab.opening import open_session, recorded_devices, stored_configuration, write_config
from trimtab.training.comparison import (
    Difference,
    Pairs,
    causes,
    circumstances_differences,
    first_difference,
    settings_differences,
)
from trimtab.training.config import TrainSettings, batch_size
from trimtab.training.evaluations import of_best, while_training
from trimtab.training.groupdir import GroupFolder, is_group, members_in
from trimtab.training.rundir import GROUP, RunFolder, summary

Row = dict[str, Any]

# What concerns trackers has no part in the numbers, and a second run is none of their business.
_OF_TRACKERS = ("track", "metric_names", "track_project", "tags")


@dataclasses.dataclass(frozen=True)
class Reproduction:
    """What came of training a run, or all runs of a group, again."""

    run: Path
    updates: int  # that were compared, of each run
    evaluations: int  # likewise
    differences: Mapping[str, Difference]  # the first of each run, by its folder's name
    causes: Sequence[str]  # sentences, the likeliest first; none where nothing differs
    folder: Path | None  # of the second run, where it is kept

    @property
    def reproduced(self) -> bool:
        """Whether every number was the same."""
        return not self.differences


def reproduce(
    run: TrainedRun | Path | str,
    *,
    updates: int | None = None,
    run_dir: Path | str | None = None,
    env: Any = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Train a run or a group again, and compare every metric and evaluation bit for bit.

    Only the first ``updates`` are compared, if that is given. The second run is kept if ``run_dir``
    says where. ``env`` is needed where the run was given an object in place of an id.
    """
    path = run.path if isinstance(run, TrainedRun) else Path(run).expanduser()
    if updates is not None and updates < 1:
        raise SettingError(f"updates = {updates} is not valid: expected a number of at least 1.")
    if not is_group(path):
        RunFolder.open(path)
        if (path.absolute().parent / GROUP).is_file():
            raise RunFolderError(
                f"{path} is a run of a group, whose runs are computed together, in one program. "
                f"Reproduce the group: trimtab reproduce {path.parent}"
            )
    with contextlib.ExitStack() as stack:
        if run_dir is None:
            scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="trimtab-"))
            place = Path(scratch) / path.absolute().name
        else:
            place = Path(run_dir).expanduser()
        again = _group_again if is_group(path) else _run_again
        return again(path, place, updates, progress or Quiet(), env, kept=run_dir is not None)


def _run_again(
    path: Path, place: Path, updates: int | None, progress: Progress, env: Any, kept: bool
) -> Reproduction:
    first = RunFolder.open(path)
    rows = _rows_to_compare(first, updates)
    configuration, notes = stored_configuration(first), first.resumed
    devices = recorded_devices(first)
    begun, stages = _stages(_without_trackers(configuration), notes)
    session = open_session(begun, devices, env)
    training, outside = begun.training, session.template.lanes == ()
    batch, end = batch_size(training), rows[-1]["update"]
    second = RunFolder.create(place, begun.env_id, begun.algorithm_name, training.seed)
    ends = [min(end, steps // batch) for steps, _ in stages] + [end]
    with _ends_at_a_difference():
        watched = Comparing(progress, {second: rows})
        with second.lock():
            write_config(second, begun, devices)
            _train(session, second, watched, ends[0])
        for stop, (_, changed) in zip(ends[1:], stages, strict=True):
            if stop > watched.seen(second):
                resume(place, watched, env=env, stop_after=stop, **changed)
    return _compared(path, [(first, second)], end, outside, place if kept else None)


def _train(session: Any, folder: RunFolder, progress: Progress, stop_after: int) -> None:
    from trimtab.training.session import Manner, run_session

    run_session(session, folder, progress, Manner(stop_after=stop_after))


def _group_again(
    path: Path, place: Path, updates: int | None, progress: Progress, env: Any, kept: bool
) -> Reproduction:
    document = GroupFolder.open(path).read()
    members = members_in(document)
    firsts = [RunFolder.open(path / member.name) for member in members]
    rows = [_rows_to_compare(folder, updates) for folder in firsts]
    devices = {"devices": str(document.get("devices", "auto"))}
    configuration = _without_trackers(stored_configuration(firsts[0]))
    configuration = configuration.with_values(devices, "reproduce()")
    seconds = [RunFolder(place / member.name) for member in members]
    watched = Comparing(progress, dict(zip(seconds, rows, strict=True)))
    end = max(own[-1]["update"] for own in rows)
    with _ends_at_a_difference():
        name = env if env is not None else configuration.env_id
        train_members(configuration, members, name, place, watched, stop_after=end)
    return _compared(
        path, list(zip(firsts, seconds, strict=True)), end, False, place if kept else None
    )


def _rows_to_compare(folder: RunFolder, updates: int | None) -> list[Row]:
    rows = read_jsonl(folder.metrics_path) if folder.metrics_path.exists() else []
    if not rows:
        raise RunFolderError(f"{folder.path} has no metrics yet, so there is nothing to compare.")
    if rows[0]["update"] != 1:
        raise RunFolderError(
            f"{folder.path} begins with update {rows[0]['update']:,}: what it began with was not "
            "trained here, and cannot be trained again."
        )
    return rows if updates is None else rows[:updates]


def _without_trackers(configuration: Configuration) -> Configuration:
    plain = TrainSettings()
    training = dataclasses.replace(
        configuration.training, **{name: getattr(plain, name) for name in _OF_TRACKERS}
    )
    return dataclasses.replace(configuration, training=training)


def _stages(
    configuration: Configuration, notes: Sequence[Mapping[str, Any]]
) -> tuple[Configuration, list[tuple[int, dict[str, Any]]]]:
    """The configuration that a run began with, and (steps, settings) of each later change."""
    stages = []
    for note in reversed(notes):
        changed = note.get("changed")
        if changed:
            stages.append((int(note["steps"]), {name: new for name, (_, new) in changed.items()}))
            before = {name: old for name, (old, _) in changed.items()}
            configuration = configuration.with_values(before, "config.toml")
    return configuration.checked(), stages[::-1]


class _DiffersError(Exception):
    """Ends a training that need not go on."""


@contextlib.contextmanager
def _ends_at_a_difference() -> Iterator[None]:
    """Without an error where training ended because of a difference, or as the first did."""
    from trimtab.training.ledger import DivergedError

    with contextlib.suppress(_DiffersError, DivergedError, EnvironmentFaultError):
        yield


@final
class Comparing:
    """A progress that ends the second training at the first update that differs."""

    def __init__(self, progress: Progress, rows: Mapping[RunFolder, Sequence[Row]]):
        self._progress, self._rows = progress, rows
        self._seen = dict.fromkeys(rows, 0)  # rows that were compared
        self._offsets = dict.fromkeys(rows, 0)  # and where they end
        self.say = progress.say
        self.planned = progress.planned
        self.compiling = progress.compiling
        self.compiled = progress.compiled
        self.evaluated = progress.evaluated
        self.close = progress.close

    def seen(self, folder: RunFolder) -> int:
        """The updates that were found to be the same."""
        return self._seen[folder]

    def updated(self, status: Status) -> None:
        self._progress.updated(status)
        for folder, first in self._rows.items():
            done = self._seen[folder]
            rows, self._offsets[folder] = read_after(folder.metrics_path, self._offsets[folder])
            if first_difference((first[done : done + len(rows)], rows)):
                raise _DiffersError
            self._seen[folder] += len(rows)


def _compared(
    path: Path,
    pairs: Sequence[tuple[RunFolder, RunFolder]],
    end: int,
    outside: bool,
    kept: Path | None,
) -> Reproduction:
    differences: dict[str, Difference] = {}
    found: list[str] = []
    updates = evaluations = 0
    stopped = False
    for first, second in pairs:
        metrics = _rows(first, second, end)
        played = _evaluations(first, second)
        updates = max(updates, min(map(len, metrics)))
        evaluations = max(evaluations, len(played[0]))
        difference = first_difference(metrics, played)
        stopped |= len(metrics[1]) < len(metrics[0])
        if difference is not None:
            name = first.path.absolute().name
            differences[name] = difference
            configs = first.read_config(), second.read_config()
            steps = batch_size(stored_configuration(first).training) * difference.update
            found += [words for words in causes(*configs, steps, outside) if words not in found]
    if stopped and not differences:  # by a signal
        raise RunFolderError(
            f"The second run of {path} was stopped after {updates:,} updates, and both are the "
            "same up to there. To compare no more than those: --updates"
        )
    return Reproduction(path, updates, evaluations, differences, tuple(found), kept)


def _rows(first: RunFolder, second: RunFolder, end: int | None) -> tuple[list[Row], list[Row]]:
    ours, theirs = (
        read_jsonl(folder.metrics_path) if folder.metrics_path.exists() else []
        for folder in (first, second)
    )
    return ours[:end], theirs[:end]


def _evaluations(first: RunFolder, second: RunFolder) -> tuple[list[Row], list[Row]]:
    """The evaluations that both runs made, at the same updates."""
    rows = [
        read_jsonl(folder.evaluations_path) if folder.evaluations_path.exists() else []
        for folder in (first, second)
    ]
    ours, theirs = ({row["update"]: row for row in while_training(own)} for own in rows)
    common = [update for update in ours if update in theirs]
    last = [of_best(own) for own in rows]
    best = [[one] if one and all(last) else [] for one in last]
    pairs = ([ours[update] for update in common], [theirs[update] for update in common])
    return [*pairs[0], *best[0]], [*pairs[1], *best[1]]


@dataclasses.dataclass(frozen=True)
class RunDiff:
    """In what two runs differ; a pair has the first run's value and the second's."""

    settings: Pairs
    circumstances: Pairs  # versions, machine, devices, commit
    results: Pairs
    first_difference: Difference | None  # of their numbers; None where those are the same
    updates: int  # whose numbers were compared


def diff(first: TrainedRun | Path | str, second: TrainedRun | Path | str) -> RunDiff:
    """What two runs differ in: settings, versions, machines and results."""
    folders = [
        RunFolder.open(one.path if isinstance(one, TrainedRun) else one) for one in (first, second)
    ]
    ours, theirs = folders
    configs = ours.read_config(), theirs.read_config()
    metrics = _rows(ours, theirs, end=None)
    results = _results(ours), _results(theirs)
    return RunDiff(
        settings=settings_differences(*configs),
        circumstances=circumstances_differences(*configs),
        results={
            name: (results[0].get(name), results[1].get(name))
            for name in {**results[0], **results[1]}
        },
        first_difference=first_difference(metrics, _evaluations(ours, theirs)),
        updates=min(map(len, metrics)),
    )


def _results(folder: RunFolder) -> dict[str, Any]:
    told = summary(folder)
    rows = read_jsonl(folder.evaluations_path) if folder.evaluations_path.exists() else []
    final = of_best(rows) or {}
    return {
        "state": told.state,
        "steps": told.steps,
        "last return": told.last_return,
        "best evaluation": told.best_evaluation,
        "final evaluation": final.get("mean"),
        "its standard error": final.get("standard_error"),
    }
