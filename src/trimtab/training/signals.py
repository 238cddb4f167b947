"""Ctrl-C and SIGTERM: the first asks the run to stop after its update, a second leaves at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopRequest:
    """A context in which a signal sets ``requested`` in place of raising."""

    def __init__(self) -> None:
        self.requested: signal.Signals | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> "StopRequest":
        # Only the main thread may set handlers; a run in another thread is stopped by its owner.
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.requested = signal.Signals(number)
        self._restore()

    def _restore(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()
