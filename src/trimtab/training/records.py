"""The files of a run's folder while it trains: metrics, evaluations and checkpoints.

What the disk refuses is kept in memory and tried again with the next, and training goes on.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, final

from trimtab.log.writer import JsonLines
from trimtab.training.leaves import snapshot
from trimtab.training.rundir import RunFolder
from trimtab.training.saver import Saver, Snapshot


@dataclasses.dataclass(frozen=True)
class Moment:
    """A run after an update, and how long its records were then: None if the disk lacked some."""

    run: Any
    update: int
    steps: int
    metrics_offset: int | None
    evaluations_offset: int | None


@final
class Rows:
    """A file of rows that a full disk delays and does not lose."""

    def __init__(self, path: Path, saver: Saver):
        self.file = JsonLines(path)
        self._saver = saver
        self._waiting: list[Mapping[str, Any]] = []

    def append(self, rows: Sequence[Mapping[str, Any]]) -> None:
        was_waiting = bool(self._waiting)
        self._waiting += rows
        try:
            self.file.append(self._waiting)
        except OSError as error:
            self._saver.note(self.file.path, error)
            return
        self._waiting.clear()
        if was_waiting:
            self._saver.note(self.file.path, None)

    @property
    def offset(self) -> int | None:
        return None if self._waiting else self.file.offset


@final
class Records:
    """Writes the files. ``alone`` gives the run itself, where the loop has it in another form."""

    def __init__(
        self,
        folder: RunFolder,
        saver: Saver,
        identity: Mapping[str, Any],
        alone: Callable[[Any], Any],
    ):
        self._folder = folder
        self._saver = saver
        self._identity = identity
        self.alone = alone
        self.metrics = Rows(folder.metrics_path, saver)
        self.evaluations = Rows(folder.evaluations_path, saver)

    def rewind(self, notes: Mapping[str, Any] | None) -> None:
        """Forget what was written after the checkpoint with these notes; all, if there is none."""
        self.metrics.file.truncate(notes["metrics_offset"] if notes else 0)
        self.evaluations.file.truncate(notes["evaluations_offset"] if notes else 0)

    def moment(self, run: Any, update: int, steps: int) -> Moment:
        """Now, when all rows of the ``run`` up to ``update`` have been appended."""
        return Moment(run, update, steps, self.metrics.offset, self.evaluations.offset)

    def save(self, name: str, moment: Moment, notes: Mapping[str, Any]) -> bool:
        """Have a checkpoint written; False if the disk lacks rows that it would count on."""
        if moment.metrics_offset is None or moment.evaluations_offset is None:
            return False
        state = Snapshot(
            folder=self._folder.checkpoints_path / name,
            leaves=snapshot(moment.run),
            manifest={
                **self._identity,
                **notes,
                "update": moment.update,
                "steps": moment.steps,
                "metrics_offset": moment.metrics_offset,
                "evaluations_offset": moment.evaluations_offset,
            },
            keep_previous=name == "latest",
            records=(self.metrics.file, self.evaluations.file),
        )
        self._saver.submit(state)
        return True
