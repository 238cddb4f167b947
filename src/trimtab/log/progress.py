"""What a person sees while a run trains."""

import dataclasses
import json
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TextIO, final

from trimtab.log.writer import to_json


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
    def planned(self, lines: Sequence[str], data: Mapping[str, Any]) -> None: ...
    def compiling(self) -> None: ...
    def compiled(self, seconds: float) -> None: ...
    def updated(self, status: Status) -> None: ...
    def evaluated(self, steps: int, mean: float, standard_error: float) -> None: ...
    def close(self) -> None: ...


@final
class Quiet:
    """Says nothing."""

    def say(self, sentence: str) -> None: ...
    def planned(self, lines: Sequence[str], data: Mapping[str, Any]) -> None: ...
    def compiling(self) -> None: ...
    def compiled(self, seconds: float) -> None: ...
    def updated(self, status: Status) -> None: ...
    def evaluated(self, steps: int, mean: float, standard_error: float) -> None: ...
    def close(self) -> None: ...


@final
class Terse:
    """Says only what must not be missed, where nobody watches; and the plan, unless quiet."""

    def __init__(self, stream: TextIO, quiet: bool = False):
        self._out = Output(stream)
        self._quiet = quiet

    def say(self, sentence: str) -> None:
        self._out.write(sentence + "\n")

    def planned(self, lines: Sequence[str], data: Mapping[str, Any]) -> None:
        if not self._quiet:
            self._out.write("".join(line + "\n" for line in lines))

    def compiling(self) -> None: ...
    def compiled(self, seconds: float) -> None: ...
    def updated(self, status: Status) -> None: ...
    def evaluated(self, steps: int, mean: float, standard_error: float) -> None: ...
    def close(self) -> None: ...


@final
class Events:
    """One JSON object a line, for programs: ``event`` says of what kind it is."""

    def __init__(self, stream: TextIO, refresh_seconds: float = 1.0):
        self._out = Output(stream)
        self._clock = Clock(refresh_seconds)

    def say(self, sentence: str) -> None:
        self._write("message", text=sentence)

    def planned(self, lines: Sequence[str], data: Mapping[str, Any]) -> None:
        self._write("planned", lines=list(lines), **data)

    def compiling(self) -> None:
        self._write("compiling")

    def compiled(self, seconds: float) -> None:
        self._write("compiled", seconds=seconds)

    def updated(self, status: Status) -> None:
        if self._clock.due() or status.update == status.updates:
            self._write("progress", **dataclasses.asdict(status), seconds_left=status.seconds_left)

    def evaluated(self, steps: int, mean: float, standard_error: float) -> None:
        self._write("evaluated", steps=steps, mean=mean, standard_error=standard_error)

    def close(self) -> None: ...

    def _write(self, event: str, **fields: Any) -> None:
        self._out.write(json.dumps(to_json({"event": event, **fields})) + "\n")


@dataclasses.dataclass(frozen=True)
class Part:
    """A part of the live line; of the highest ranks a narrow terminal shows the fewest."""

    text: str
    rank: int = 0


@final
class Live:
    """One line that is rewritten in place, for a terminal."""

    def __init__(self, stream: TextIO, refresh_seconds: float = 0.1):
        self._stream = stream
        self._out = Output(stream)
        self._clock = Clock(refresh_seconds)
        self._compiled = Part("")
        self._evaluation = Part("")
        self._open = False

    def say(self, sentence: str) -> None:
        self._out.write(self._erased() + sentence + "\n")

    def planned(self, lines: Sequence[str], data: Mapping[str, Any]) -> None:
        self._out.write(self._erased() + "".join(line + "\n" for line in lines))

    def compiling(self) -> None:
        self._show([Part("compiling the programs (their result is kept for the next run) …")])

    def compiled(self, seconds: float) -> None:
        self._compiled = Part(f"compiled in {duration_words(seconds)}", rank=7)
        self._show([self._compiled])

    def updated(self, status: Status) -> None:
        if self._clock.due() or status.update == status.updates:
            self._show([*progress_parts(status), self._evaluation, self._compiled])

    def evaluated(self, steps: int, mean: float, standard_error: float) -> None:
        self._evaluation = Part(f"evaluated {plus_minus(mean, standard_error)}", rank=5)

    def close(self) -> None:
        """Leave the last line as it stands and go to the next."""
        if self._open:
            self._out.write("\n")
            self._open = False

    def _show(self, parts: Sequence[Part]) -> None:
        self._out.write(self._erased() + fitted(parts, columns(self._stream) - 1))
        self._open = True

    def _erased(self) -> str:
        was_open, self._open = self._open, False
        return "\r\x1b[2K" if was_open else ""


@final
class Output:
    """A stream that may close at any time: training goes on without an audience."""

    def __init__(self, stream: TextIO):
        self._stream: TextIO | None = stream
        encoding = (getattr(stream, "encoding", None) or "utf-8").lower()
        self._table = {} if encoding.startswith("utf") else str.maketrans(_PLAIN)

    def write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text.translate(self._table))
            self._stream.flush()
        except (OSError, ValueError):  # a closed pipe, a terminal that is gone, a closed file
            self._stream = None


_PLAIN = {
    "█": "#",
    "░": ".",
    "·": "|",
    "±": "+-",
    "–": "-",
    "…": "...",
    "×": "x",
    "γ": "gamma",
    "λ": "lambda",
}


@final
class Clock:
    """Whether it is time again."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._next = 0.0

    def due(self) -> bool:
        now = time.monotonic()
        if now < self._next:
            return False
        self._next = now + self._seconds
        return True


def columns(stream: TextIO) -> int:
    """The width of a terminal; 80 where it has none."""
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def fitted(parts: Sequence[Part], width: int) -> str:
    """One line of parts: where it would be too wide, those of the highest ranks are left out.

    A line that is wider than the terminal would wrap, and then not be rewritten in place.
    """
    shown = [part for part in parts if part.text]
    while True:
        line = " · ".join(part.text for part in shown)
        if len(line) <= width or len(shown) == 1:
            return line[: max(width, 0)]
        shown.remove(max(shown, key=lambda part: part.rank))


def progress_parts(status: Status) -> list[Part]:
    """██████░░░░░░ · 50,176/100,352 steps · return 143.2 · 512k steps/s · 0.2 s left · update 49"""
    share = status.steps / max(status.total_steps, 1)
    filled = int(12 * min(share, 1.0))
    return [
        Part("█" * filled + "░" * (12 - filled), rank=4),
        Part(f"{status.steps:,}/{status.total_steps:,} steps", rank=0),
        Part(f"return {number(status.recent_return)}", rank=1),
        Part(f"{rate_words(status.steps_per_second)} steps/s", rank=3),
        Part(f"{duration_words(status.seconds_left)} left", rank=2),
        Part(f"update {status.update:,}/{status.updates:,}", rank=6),
    ]


def number(value: float, scale: float | None = None) -> str:
    """475.3, 0.742, -9.300, –: three decimals where the value (or the scale) is small."""
    decimals = 1 if abs(value if scale is None else scale) >= 10 else 3
    return f"{value:.{decimals}f}" if math.isfinite(value) else "–"


def plus_minus(mean: float, standard_error: float) -> str:
    """475.3 ± 4.2, with as many decimals on the right as on the left."""
    return f"{number(mean)} ± {number(standard_error, scale=mean)}"


def rate_words(rate: float) -> str:
    """870, 12k, 1.25M."""
    if rate >= 999_500:
        return f"{rate / 1e6:.2f}M"
    return f"{rate / 1e3:.0f}k" if rate >= 9_999.5 else f"{rate:.0f}"


def duration_words(seconds: float) -> str:
    """3.2 s, 4 min 10 s, 2 h 5 min."""
    if not math.isfinite(seconds):
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"
