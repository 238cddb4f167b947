"""Checkpoints are written by a thread: training waits for the copy of its state to the host."""

import dataclasses
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

from trimtab.log.writer import JsonLines
from trimtab.training import checkpoint

if TYPE_CHECKING:
    from trimtab.training.leaves import StoredLeaf


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A state on the host, on its way to a checkpoint's folder."""

    folder: Path
    leaves: "list[StoredLeaf]"
    manifest: Mapping[str, Any]
    keep_previous: bool
    records: tuple[JsonLines, ...] = ()  # the manifest notes their lengths: they go first

    def write(self) -> None:
        for file in self.records:
            file.sync()
        checkpoint.write(self.folder, self.leaves, self.manifest, keep_previous=self.keep_previous)


@final
class Saver:
    """Writes snapshots in the order of their coming, in a context that ends when all are written.

    If the disk is slower than training, the newest snapshot of a folder takes the place of one that
    still waits. What the disk refused is tried again with the next snapshot.
    """

    def __init__(self) -> None:
        self._waiting: dict[Path, Snapshot] = {}
        self._again: dict[Path, Snapshot] = {}
        self._refused: dict[Path, OSError] = {}
        self._untold: dict[Path, OSError] = {}
        self._bug: BaseException | None = None
        self._writing = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, snapshot: Snapshot) -> None:
        """Have the snapshot written soon. Returns at once."""
        with self._changed:
            self._waiting = {**self._again, **self._waiting}
            self._again.clear()
            # To the end: whatever was submitted before it is on the disk before it.
            self._waiting.pop(snapshot.folder, None)
            self._waiting[snapshot.folder] = snapshot
            self._changed.notify_all()
            if self._thread is None:
                # A daemon: a second Ctrl-C leaves at once, and a torn save is worthless anyway.
                self._thread = threading.Thread(target=self._work, name="saver", daemon=True)
                self._thread.start()

    def note(self, path: Path, error: OSError | None) -> None:
        """Say how a write of the caller's own went, so that all is known in one place."""
        with self._changed:
            if error is None:
                self._refused.pop(path, None)
            else:
                if path not in self._refused:
                    self._untold[path] = error
                self._refused[path] = error

    @property
    def refused(self) -> dict[Path, OSError]:
        """What is not on the disk, because of what the disk last said."""
        with self._changed:
            return dict(self._refused)

    def news(self) -> dict[Path, OSError]:
        """What the disk has begun to refuse since the last call. Raises what else went wrong."""
        with self._changed:
            if self._bug is not None:
                raise self._bug
            untold, self._untold = self._untold, {}
            return untold

    def wait(self) -> None:
        """Until everything that was submitted is on the disk, or was refused."""
        with self._changed:
            self._changed.wait_for(lambda: not (self._waiting or self._writing))

    def __enter__(self) -> "Saver":
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(error, KeyboardInterrupt):
            self.wait()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _work(self) -> None:
        while self._write_next():
            pass

    def _write_next(self) -> bool:
        """Whether there was another; its memory is free when this returns."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return False
            snapshot = self._waiting.pop(next(iter(self._waiting)))
            self._writing = True
        error: BaseException | None = None
        try:
            snapshot.write()
        except BaseException as caught:
            error = caught
        if error is None or isinstance(error, OSError):
            self.note(snapshot.folder, error)
        with self._changed:
            if isinstance(error, OSError):
                self._again[snapshot.folder] = snapshot
            elif error is not None:
                self._bug = error
            self._writing = False
            self._changed.notify_all()
        return True
