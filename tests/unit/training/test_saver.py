"""The thread that writes checkpoints: order, newest first to survive, errors, the end."""

import dataclasses
import errno
import threading
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.training.leaves import snapshot as leaves_of
from trimtab.training.saver import Saver

A, B = Path("a"), Path("b")


class Disk:
    """What was written, by a disk that stands still while ``gate`` is closed."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.written: list[tuple[Path, int]] = []
        self.fault: BaseException | None = None

    def snapshot(self, folder: Path, update: int) -> Any:
        return Written(self, folder, update)


@dataclasses.dataclass(frozen=True)
class Written:
    """Stands for a snapshot."""

    disk: Disk
    folder: Path
    update: int

    def write(self) -> None:
        self.disk.begun.set()
        assert self.disk.gate.wait(10)
        if self.disk.fault is not None:
            raise self.disk.fault
        self.disk.written.append((self.folder, self.update))


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_snapshots_are_written_in_order_and_waited_for(disk):
    with Saver() as saver:
        for update in range(3):
            saver.submit(disk.snapshot(A, update))
            saver.wait()
        saver.submit(disk.snapshot(B, 3))
    assert disk.written == [(A, 0), (A, 1), (A, 2), (B, 3)]


def test_submitting_does_not_wait_and_the_newest_of_a_folder_replaces_what_waits(disk):
    disk.gate.clear()
    with Saver() as saver:
        saver.submit(disk.snapshot(A, 0))
        assert disk.begun.wait(10)
        for one in (disk.snapshot(A, 1), disk.snapshot(B, 2), disk.snapshot(A, 3)):
            saver.submit(one)
        assert disk.written == []
        disk.gate.set()
    # What was submitted before (A, 3) is written before it.
    assert disk.written == [(A, 0), (B, 2), (A, 3)]


def test_a_refused_snapshot_is_told_once_and_tried_again_with_the_next(disk):
    with Saver() as saver:
        disk.fault = OSError(errno.ENOSPC, "No space left on device")
        saver.submit(disk.snapshot(A, 0))
        saver.submit(disk.snapshot(B, 1))
        saver.wait()
        assert [error.errno for error in saver.news().values()] == [errno.ENOSPC] * 2
        assert saver.news() == {}
        assert set(saver.refused) == {A, B}
        disk.fault = None
        saver.submit(disk.snapshot(B, 2))  # takes the place of (B, 1)
        saver.wait()
        assert saver.refused == {}
    assert disk.written == [(A, 0), (B, 2)]


def test_a_bug_in_the_thread_comes_back_to_the_caller(disk):
    with Saver() as saver:
        disk.fault = ZeroDivisionError("a bug")
        saver.submit(disk.snapshot(A, 0))
        saver.wait()
        with pytest.raises(ZeroDivisionError, match="a bug"):
            saver.news()


def test_an_interrupted_context_does_not_wait(disk):
    disk.gate.clear()
    saver = Saver()
    saver.submit(disk.snapshot(A, 0))
    saver.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert disk.written == []
    disk.gate.set()


def test_a_snapshot_does_not_change_with_what_it_was_taken_of():
    array = np.zeros(3)
    leaves = leaves_of({"host": array, "device": (device := jnp.zeros(3))})
    array += 1
    device.delete()
    assert [leaf.array.tolist() for leaf in leaves] == [[0.0] * 3] * 2
