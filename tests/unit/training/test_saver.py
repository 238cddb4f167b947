"""The thread that writes checkpoints: order, newest first to survive, errors, the end."""

import errno
import threading
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.training.leaves import snapshot as leaves_of
from trimtab.training.saver import Saver, Snapshot

A, B = Path("a"), Path("b")


def snapshot(folder: Path, update: int) -> Snapshot:
    return Snapshot(folder, [], {"update": update}, keep_previous=False)


class Disk:
    """What was written, by a disk that stands still while ``gate`` is closed."""

    def __init__(self):
        self.gate = threading.Event()
        self.gate.set()
        self.begun = threading.Event()
        self.written: list[tuple[Path, int]] = []
        self.fault: BaseException | None = None

    def write(self, snapshot: Snapshot) -> None:
        self.begun.set()
        assert self.gate.wait(10)
        if self.fault is not None:
            raise self.fault
        self.written.append((snapshot.folder, snapshot.manifest["update"]))


@pytest.fixture
def disk() -> Disk:
    return Disk()


def test_snapshots_are_written_in_order_and_waited_for(disk):
    with Saver(disk.write) as saver:
        for update in range(3):
            saver.submit(snapshot(A, update))
            saver.wait()
        saver.submit(snapshot(B, 3))
    assert disk.written == [(A, 0), (A, 1), (A, 2), (B, 3)]


def test_submitting_does_not_wait_and_the_newest_of_a_folder_replaces_what_waits(disk):
    disk.gate.clear()
    with Saver(disk.write) as saver:
        saver.submit(snapshot(A, 0))
        assert disk.begun.wait(10)
        for one in (snapshot(A, 1), snapshot(B, 2), snapshot(A, 3)):
            saver.submit(one)
        assert disk.written == []
        disk.gate.set()
    # What was submitted before (A, 3) is written before it.
    assert disk.written == [(A, 0), (B, 2), (A, 3)]


def test_a_refused_snapshot_is_told_once_and_tried_again_with_the_next(disk):
    with Saver(disk.write) as saver:
        disk.fault = OSError(errno.ENOSPC, "No space left on device")
        saver.submit(snapshot(A, 0))
        saver.submit(snapshot(B, 1))
        saver.wait()
        assert [failure.error.errno for failure in saver.failures()] == [errno.ENOSPC] * 2
        assert saver.failures() == []
        disk.fault = None
        saver.submit(snapshot(B, 2))  # takes the place of (B, 1)
    assert disk.written == [(A, 0), (B, 2)]


def test_a_bug_in_the_thread_comes_back_to_the_caller(disk):
    with Saver(disk.write) as saver:
        disk.fault = ZeroDivisionError("a bug")
        saver.submit(snapshot(A, 0))
        saver.wait()
        with pytest.raises(ZeroDivisionError, match="a bug"):
            saver.failures()


def test_an_interrupted_context_does_not_wait(disk):
    disk.gate.clear()
    saver = Saver(disk.write)
    saver.submit(snapshot(A, 0))
    saver.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert disk.written == []
    disk.gate.set()


def test_a_snapshot_does_not_change_with_what_it_was_taken_of():
    array = np.zeros(3)
    leaves = leaves_of({"host": array, "device": (device := jnp.zeros(3))})
    array += 1
    device.delete()
    assert [leaf.array.tolist() for leaf in leaves] == [[0.0] * 3] * 2
