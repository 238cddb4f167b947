"""A deadline for what environments do in the trainer's own process."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from trimtab.errors import EnvironmentFaultError

_AGAIN_SECONDS = 0.5


@contextlib.contextmanager
def at_most(seconds: float, what: str) -> Iterator[None]:
    """Raise an error that says ``what`` if the block takes longer than that.

    It needs the main thread and a system with interval timers; elsewhere there is no deadline. Code
    that never comes back to Python is not interrupted: that takes a worker process.
    """
    main = threading.current_thread() is threading.main_thread()
    if not (main and hasattr(signal, "setitimer")):
        yield
        return

    def too_late(number: int, frame: Any) -> None:
        raise EnvironmentFaultError(f"{what} took longer than {seconds:g} s.")

    previous = signal.signal(signal.SIGALRM, too_late)
    # Again and again: whoever meets exceptions of an environment may have met this one.
    signal.setitimer(signal.ITIMER_REAL, seconds, min(seconds, _AGAIN_SECONDS))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
