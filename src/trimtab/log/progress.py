"""What a person sees while a run trains."""

import dataclasses
import math
import time
from typing import Protocol, TextIO


@dataclasses.dataclass(frozen=True)
class Status:
    """Where a run stands."""

    update: int
    updates: int
    steps: int
    total_steps: int
    steps_per_second: float
    recent_return: float  # mean over the episodes that ended lately; NaN before the first

    @property
    def seconds_left(self) -> float:
        left = self.total_steps - self.steps
        return left / self.steps_per_second if self.steps_per_second > 0 else math.inf


class Progress(Protocol):
    """What the training loop tells whoever watches."""

    def say(self, sentence: str) -> None: ...
    def compiling(self) -> None: ...
    def compiled(self, seconds: float) -> None: ...
    def updated(self, status: Status) -> None: ...
    def evaluated(self, steps: int, mean: float, standard_error: float) -> None: ...
    def close(self) -> None: ...


class Quiet:
    """Says nothing."""

    def say(self, sentence: str) -> None: ...
    def compiling(self) -> None: ...
    def compiled(self, seconds: float) -> None: ...
    def updated(self, status: Status) -> None: ...
    def evaluated(self, steps: int, mean: float, standard_error: float) -> None: ...
    def close(self) -> None: ...


class Live:
    """One line that is rewritten in place, for a terminal."""

    def __init__(self, stream: TextIO, refresh_seconds: float = 0.1):
        self._stream = stream
        self._refresh = refresh_seconds
        self._next = 0.0
        self._evaluation = ""
        self._open = False

    def say(self, sentence: str) -> None:
        self._clear()
        print(sentence, file=self._stream, flush=True)

    def compiling(self) -> None:
        self._show("compiling the update (once; kept for the next run) …")

    def compiled(self, seconds: float) -> None:
        self.say(f"compiled in {seconds:.1f} s")

    def updated(self, status: Status) -> None:
        now = time.monotonic()
        if now < self._next and status.update < status.updates:
            return
        self._next = now + self._refresh
        self._show(progress_line(status) + self._evaluation)

    def evaluated(self, steps: int, mean: float, standard_error: float) -> None:
        self._evaluation = f" · evaluated {mean:.1f} ± {standard_error:.1f}"

    def close(self) -> None:
        if self._open:
            print(file=self._stream, flush=True)
            self._open = False

    def _show(self, line: str) -> None:
        self._clear()
        self._stream.write(line)
        self._stream.flush()
        self._open = True

    def _clear(self) -> None:
        if self._open:
            self._stream.write("\r\x1b[2K")
            self._open = False


def progress_line(status: Status) -> str:
    """update 12/98 · 12,288/100,352 steps [███░░░] · 512k steps/s · return 143.2 · 0.2 s left"""
    share = status.steps / max(status.total_steps, 1)
    filled = round(12 * min(share, 1.0))
    bar = "█" * filled + "░" * (12 - filled)
    returns = "–" if math.isnan(status.recent_return) else f"{status.recent_return:.1f}"
    return (
        f"{bar} update {status.update:,}/{status.updates:,} · "
        f"{status.steps:,}/{status.total_steps:,} steps · "
        f"{rate_words(status.steps_per_second)} steps/s · return {returns} · "
        f"{duration_words(status.seconds_left)} left"
    )


def rate_words(rate: float) -> str:
    if rate >= 1e6:
        return f"{rate / 1e6:.2f}M"
    return f"{rate / 1e3:.0f}k" if rate >= 1e4 else f"{rate:.0f}"


def duration_words(seconds: float) -> str:
    """3.2 s, 4 min 10 s, 2 h 5 min."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
