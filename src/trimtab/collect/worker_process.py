"""One worker as the trainer sees it: started, ordered, awaited until a deadline, and ended."""

import contextlib
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, final

from trimtab.collect import worker_entry
from trimtab.collect.worker_entry import FAILED, MENDED
from trimtab.faults import LaneFault

# Linux ends a worker when the thread that started it ends, so one thread starts them all and
# lives as long as the process.
_STARTER = ThreadPoolExecutor(1, thread_name_prefix="trimtab-workers")
# While waiting for an answer, how often to look whether the process is alive. Its end is noticed
# at once where nobody else holds its end of the pipe; an environment's own children may.
_LOOK_SECONDS = 0.5
_ONE_CORE = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerLostError(Exception):
    """The worker died, or gave no answer before its deadline."""

    def __init__(self, hung: bool, words: str):
        super().__init__(words)
        self.hung = hung


class WorkerFailedError(Exception):
    """The worker said what went wrong, and ended."""

    def __init__(self, meant: bool, line: str, text: str):
        super().__init__(line)
        self.meant = meant  # for people, as it is
        self.text = text


@final
class WorkerProcess:
    """A process that serves ``worker_entry``. Every wait has a deadline."""

    def __init__(self, number: int, assignment: bytes, memory: int):
        self.number = number
        their_orders, self.orders = os.pipe()
        self.answers, their_answers = os.pipe()
        passed = (their_orders, their_answers, memory)
        # Without the trainer's main module: it may be a script that trains when it is imported.
        program = (
            f"import sys; sys.path[:] = {sys.path!r}; "
            f"from {worker_entry.__name__} import main; main({', '.join(map(str, passed))}, "
            f"{os.getpid()})"
        )
        environment = dict.fromkeys(_ONE_CORE, "1") | {"JAX_PLATFORMS": "cpu"} | os.environ
        self.process = _STARTER.submit(
            subprocess.Popen,
            [sys.executable, "-c", program],
            pass_fds=passed,
            stdin=subprocess.DEVNULL,
            env=environment,
            # A group of its own: Ctrl-C on the terminal does not reach it, and what an
            # environment started ends with it.
            process_group=0,
        ).result()
        os.close(their_orders)
        os.close(their_answers)
        self._outbox = Connection(self.orders, readable=False)
        self._inbox = Connection(self.answers, writable=False)
        self._poll = select.poll()
        self._poll.register(self.answers, select.POLLIN)
        self._ordered_at = time.monotonic()  # to construct its environments
        with contextlib.suppress(OSError):  # it died already: whoever waits for it will notice
            self._outbox.send_bytes(assignment)

    def order(self, order: bytes, message: Any = None) -> None:
        """Send an order. A worker that has died is noticed when its answer is awaited."""
        if self._outbox.closed:
            return
        self._ordered_at = time.monotonic()
        with contextlib.suppress(BrokenPipeError):
            os.write(self.orders, order)
            if message is not None:
                self._outbox.send_bytes(pickle.dumps(message))

    def overdue(self, seconds: float) -> bool:
        """Whether the last order was sent longer ago than that."""
        return time.monotonic() - self._ordered_at >= seconds

    def answer(self, seconds: float) -> list[LaneFault]:
        """Wait for the last order to be done, until that long after it was sent.

        Returns the faults that were mended meanwhile.
        """
        self._wait(seconds)
        byte = os.read(self.answers, 1)
        if byte == worker_entry.DONE:
            return []
        if byte == MENDED:
            return self.message()
        if byte == FAILED:
            raise WorkerFailedError(*self.message())
        raise self._lost()

    def message(self) -> Any:
        """What follows an answer."""
        try:
            return pickle.loads(self._inbox.recv_bytes())
        except (EOFError, OSError):
            raise self._lost() from None

    def end(self) -> None:
        """Kill the process and what it started, and forget it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._outbox.close()
        self._inbox.close()

    def close(self, seconds: float) -> None:
        """Once told to close, let it close its environments; kill it if that takes longer."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)
        self.end()

    def _wait(self, seconds: float) -> None:
        """Until there is an answer; raises if the deadline passes or the process is gone."""
        while True:
            left = self._ordered_at + seconds - time.monotonic()
            if self._poll.poll(1000 * min(_LOOK_SECONDS, max(left, 0))):
                return
            if self.process.poll() is not None:
                raise self._lost()
            if left <= 0:
                raise WorkerLostError(True, f"gave no answer within {seconds:g} s")

    def _lost(self) -> WorkerLostError:
        try:
            code = self.process.wait(_LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            return WorkerLostError(False, "closed its pipe")
        if code < 0:
            return WorkerLostError(False, f"was ended by {signal.Signals(-code).name}")
        return WorkerLostError(False, f"exited with code {code}")
