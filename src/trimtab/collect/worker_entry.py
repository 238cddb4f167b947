"""What a worker process runs: a group of lanes, stepped on demand.

Nothing here imports JAX, so that a worker is small and starts quickly. Orders and answers are one
byte each over pipes; observations, rewards and actions are in memory that is shared with the
trainer. A message follows an answer only when something was wrong.
"""

import ctypes
import mmap
import os
import pickle
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from trimtab.envs.lane_group import LaneBuffers, LaneGroup
from trimtab.envs.state import UnsavableError
from trimtab.errors import EnvironmentFaultError
from trimtab.spaces import EnvSpec

# Orders.
ATTACH, RESET, STEP, SAVE, LOAD, CLOSE = b"a", b"r", b"s", b"v", b"l", b"c"
# Answers: done; done, and a list of mended faults follows; not done, and the error's text follows.
DONE, MENDED, FAILED = b"d", b"m", b"f"

_PR_SET_PDEATHSIG = 1


class SharedLanes:
    """The memory that all processes see: the buffers, and which lane each worker is stepping."""

    def __init__(self, memory: int, spec: EnvSpec, num_envs: int, num_workers: int):
        first = -(-LaneBuffers.size(spec, num_envs) // 64) * 64
        # A cache line for each worker: none waits for another's.
        size = first + 64 * num_workers
        if os.fstat(memory).st_size < size:
            os.ftruncate(memory, size)
        mapped = mmap.mmap(memory, size)
        self.buffers = LaneBuffers.of(spec, num_envs, mapped)
        self.at = np.ndarray((num_workers, 16), np.int32, mapped, first)


def main(orders: int, answers: int, memory: int, trainer: int) -> None:
    """Serve until told to close, or until the trainer is gone. The numbers are file descriptors."""
    die_with(trainer)
    # Ctrl-C is for the trainer, which decides what becomes of its workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    inbox, outbox = Connection(orders, writable=False), Connection(answers, readable=False)
    try:
        make_env, number, lanes, policy = pickle.loads(inbox.recv_bytes())
        group = LaneGroup(make_env, lanes, policy)
    except EOFError:
        return
    except Exception as error:
        _fail(outbox, error)
        return
    os.write(answers, DONE)
    outbox.send_bytes(pickle.dumps(group.spec))
    try:
        if os.read(orders, 1) != ATTACH:
            return
        num_envs, num_workers = pickle.loads(inbox.recv_bytes())
        shared = SharedLanes(memory, group.spec, num_envs, num_workers)
        group.attach(shared.buffers, shared.at[number])
        _serve(group, inbox, outbox)
    finally:
        group.close()


def _serve(group: LaneGroup, inbox: Connection, outbox: Connection) -> None:
    orders, answers = inbox.fileno(), outbox.fileno()
    while True:
        order = os.read(orders, 1)
        try:
            if order == STEP:
                group.step()
            elif order == RESET:
                group.reset()
            elif order == SAVE:
                saved = pickle.dumps(_saved(group))
                os.write(answers, DONE)
                outbox.send_bytes(saved)
                continue
            elif order == LOAD:
                group.load(*pickle.loads(inbox.recv_bytes()))
            else:  # told to close, or the trainer is gone
                return
        except Exception as error:
            _fail(outbox, error)
            return
        if faults := group.take_faults():
            os.write(answers, MENDED)
            outbox.send_bytes(pickle.dumps(faults))
        else:
            os.write(answers, DONE)


def _saved(group: LaneGroup) -> Any:
    """What the group saves, or why it cannot."""
    try:
        return group.save()
    except UnsavableError as error:
        return str(error)


def _fail(outbox: Connection, error: Exception) -> None:
    """Tell what ended this worker. An error that is meant for people goes without a traceback."""
    meant = isinstance(error, EnvironmentFaultError)
    text = str(error) if meant else "".join(traceback.format_exception(error))
    os.write(outbox.fileno(), FAILED)
    outbox.send_bytes(pickle.dumps((meant, _first_line(error), text)))


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def die_with(trainer: int) -> None:
    """Ask the kernel to end this process with its parent, even while an environment hangs."""
    if sys.platform == "linux":
        library: Any = ctypes.CDLL(None, use_errno=True)
        library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != trainer:  # it ended before it could be asked
        os._exit(1)
