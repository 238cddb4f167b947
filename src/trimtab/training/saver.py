"""Checkpoints are written by a thread: training waits for the copy of its state to the host."""

import dataclasses
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, final

if TYPE_CHECKING:
    from trimtab.training.leaves import StoredLeaf


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A state on the host, on its way to a checkpoint's folder."""

    folder: Path
    leaves: "list[StoredLeaf]"
    manifest: Mapping[str, Any]
    keep_previous: bool


@dataclasses.dataclass(frozen=True)
class Failure:
    """A snapshot that the disk refused, and why."""

    snapshot: Snapshot
    error: OSError


@final
class Saver:
    """Writes snapshots in the order of their coming, in a context that ends when all are written.

    If the disk is slower than training, the newest snapshot of a folder takes the place of one that
    still waits. A snapshot that the disk refused is tried again with the next one.
    """

    def __init__(self, write: Callable[[Snapshot], None]):
        self._write = write
        self._waiting: dict[Path, Snapshot] = {}
        self._refused: dict[Path, Snapshot] = {}
        self._failures: list[Failure] = []
        self._bug: BaseException | None = None
        self._writing = False
        self._closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def submit(self, snapshot: Snapshot) -> None:
        """Have the snapshot written soon. Returns at once."""
        with self._changed:
            again, self._refused = self._refused, {}
            self._waiting = {**again, **self._waiting}
            # To the end: whatever was submitted before it is on the disk before it.
            self._waiting.pop(snapshot.folder, None)
            self._waiting[snapshot.folder] = snapshot
            self._changed.notify_all()
            if self._thread is None:
                # A daemon: a second Ctrl-C leaves at once, and a torn save is worthless anyway.
                self._thread = threading.Thread(target=self._work, name="saver", daemon=True)
                self._thread.start()

    def failures(self) -> list[Failure]:
        """What the disk has refused since the last call. Raises what else went wrong."""
        with self._changed:
            if self._bug is not None:
                raise self._bug
            failures, self._failures = self._failures, []
            return failures

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
            self._write(snapshot)
        except BaseException as caught:
            error = caught
        with self._changed:
            if isinstance(error, OSError):
                self._failures.append(Failure(snapshot, error))
                self._refused[snapshot.folder] = snapshot
            elif error is not None:
                self._bug = error
            self._writing = False
            self._changed.notify_all()
        return True
