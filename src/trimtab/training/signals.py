"""Ctrl-C, SIGTERM and SIGUSR1: the first asks the run to stop after its update, and to be saved.

A process that was stopped so ends with 128 + the signal's number, as shells have it: 130 for
Ctrl-C, 143 for SIGTERM, 138 for SIGUSR1. One that had to be left ends with ``FORCED_EXIT``.
"""

import contextlib
import os
import select
import signal
import socket
import threading
import time
from types import FrameType, TracebackType
from typing import Any, final

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)
FORCED_EXIT = 124  # as timeout(1) ends when it had to end something


@final
class StopRequest:
    """A context in which a signal sets ``requested`` in place of raising or killing.

    Without ``grace``, as in a notebook, a second Ctrl-C raises KeyboardInterrupt. With it, this is
    a process of its own: it ends at a second Ctrl-C, or ``grace`` seconds after the first signal,
    whatever it does. Other signals may come twice, since schedulers repeat them.
    """

    def __init__(self, grace: float | None = None) -> None:
        self.requested: signal.Signals | None = None
        self._previous: dict[int, Any] = {}
        self._watch = Watch(grace) if grace is not None else None

    def __enter__(self) -> "StopRequest":
        # Only the main thread may set handlers; a run in another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            for number in STOPPING:
                self._previous[number] = signal.signal(number, self._handle)
            if self._watch is not None:
                self._watch.start()
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._watch is not None:
            self._watch.stop()
        for number in list(self._previous):
            self._restore(number)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested is None:
            self.requested = signal.Signals(number)
        if self._watch is None:
            self._restore(signal.SIGINT)

    def _restore(self, number: int) -> None:
        if number in self._previous:
            signal.signal(number, self._previous.pop(number))


@final
class Watch:
    """A thread that ends the process when it is asked to again, or does not end in time.

    Python runs its signal handlers between two instructions of the main thread, and one call of a
    compiled program may take minutes. So the thread is woken by what the system's own handler
    writes (``signal.set_wakeup_fd``).
    """

    def __init__(self, grace: float):
        self._grace = grace
        self._sockets: tuple[socket.socket, socket.socket] | None = None
        self._previous_descriptor = -1

    def start(self) -> None:
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        self._sockets = reader, writer
        self._previous_descriptor = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        threading.Thread(target=self._work, args=(reader,), name="watch", daemon=True).start()

    def stop(self) -> None:
        if self._sockets is None:
            return
        signal.set_wakeup_fd(self._previous_descriptor)
        self._sockets[1].close()  # the thread reads the end, and closes its own
        self._sockets = None

    def _work(self, reader: socket.socket) -> None:
        deadline: float | None = None
        interrupts = 0
        with reader:
            while True:
                left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                if not select.select([reader], [], [], left)[0]:
                    _leave(f"not done {self._grace:g} s after the signal", FORCED_EXIT)
                numbers = reader.recv(64)
                if not numbers:
                    return
                interrupts += numbers.count(signal.SIGINT)
                if interrupts > 1:
                    _leave("interrupted again", 128 + signal.SIGINT)
                if deadline is None and any(number in STOPPING for number in numbers):
                    deadline = time.monotonic() + self._grace


def _leave(reason: str, code: int) -> None:
    """End the process now. Whatever is half written is ignored by the next that reads it."""
    with contextlib.suppress(OSError):
        os.write(2, f"\ntrimtab: {reason}: left at once, without a last checkpoint.\n".encode())
    os._exit(code)
