"""What is shown while a run trains."""

import io
import json
import math
import os
import pty
import re
import termios

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.log.progress import (
    Events,
    Live,
    Part,
    Status,
    Terse,
    duration_words,
    fitted,
    number,
    plus_minus,
    progress_parts,
    rate_words,
)

STATUS = Status(49, 98, 50_176, 100_352, 512_345.0, 143.21)
LAST_STEPS = "100,352/100,352 steps"
LAST = Status(98, 98, 100_352, 100_352, 512_345.0, 500.0)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.04, "0.0 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (250.4, "4 min 10 s"),
        (3599.7, "1 h 0 min"),
        (7500, "2 h 5 min"),
        (math.inf, "–"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert duration_words(seconds) == words


@pytest.mark.parametrize(
    ("rate", "words"),
    [(870.4, "870"), (9_999, "9999"), (10_000, "10k"), (999_400, "999k"), (1.25e6, "1.25M")],
)
def test_rates(rate: float, words: str) -> None:
    assert rate_words(rate) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(475.28, "475.3"), (0.742, "0.742"), (-9.3, "-9.300"), (0, "0.000"), (math.nan, "–")],
)
def test_numbers(value: float, words: str) -> None:
    assert number(value) == words


def test_an_error_has_the_decimals_of_its_mean() -> None:
    assert plus_minus(500, 0) == "500.0 ± 0.0"
    assert plus_minus(0.74, 0.021) == "0.740 ± 0.021"


def test_the_line() -> None:
    assert fitted(progress_parts(STATUS), 200) == (
        "█████░░░░░░░ · 50,176/100,352 steps · return 143.2 · 512k steps/s · 0.1 s left · "
        "update 49/98"
    ).replace("█████░", "██████")


@given(width=st.integers(0, 150))
def test_a_narrow_terminal_gets_the_most_important_parts(width: int) -> None:
    line = fitted(progress_parts(STATUS), width)
    assert len(line) <= width
    assert "50,176/100,352 steps".startswith(line[:20]) or "50,176/100,352 steps" in line
    if width >= 36:
        assert "return 143.2" in line


def test_parts_without_text_are_not_shown() -> None:
    assert fitted([Part("a"), Part(""), Part("b")], 80) == "a · b"


def _watched(progress: Live | Terse | Events) -> None:
    progress.compiling()
    progress.compiled(2.1)
    progress.updated(STATUS)
    progress.evaluated(50_176, 143.2, 3.4)
    progress.say("Mind the step.")
    progress.updated(LAST)
    progress.close()


def test_a_live_line_is_rewritten_in_place() -> None:
    stream = io.StringIO()
    _watched(Live(stream))
    text = stream.getvalue()
    assert "compiling" in text
    assert "compiled in 2.1 s" in text
    shown = [line.rpartition("\x1b[2K")[2] for line in text.rstrip("\n").split("\n")]
    assert shown[0] == "Mind the step."
    assert re.match(r"█{12} · 100,352/100,352 steps", shown[1])
    assert text.endswith("\n")
    assert len(shown) == 2


def test_a_live_line_fits_the_terminal_however_narrow() -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 30))
    with open(theirs, "w", encoding="utf-8") as stream:
        _watched(Live(stream))
        text = ""
        while LAST_STEPS not in text:
            text += os.read(ours, 65536).decode()
    os.close(ours)
    lines = re.split(r"\r\x1b\[2K|\r\n", text)
    assert any(LAST_STEPS in line for line in lines)
    assert max(map(len, lines)) < 30


def test_a_terminal_without_unicode_gets_plain_characters() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii")
    _watched(Live(stream))
    text = raw.getvalue().decode()
    assert "######...... | 50,176/100,352 steps" in text


def test_events_are_json_lines() -> None:
    stream = io.StringIO()
    _watched(Events(stream))
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    kinds = ["compiling", "compiled", "progress", "evaluated", "message", "progress"]
    assert [event["event"] for event in events] == kinds
    assert events[-1]["steps"] == 100_352
    assert events[-1]["seconds_left"] == 0


def test_unknown_numbers_are_valid_json_too() -> None:
    stream = io.StringIO()
    Events(stream).updated(Status(0, 1, 0, 1, 0.0, math.nan))
    event = json.loads(stream.getvalue(), parse_constant=pytest.fail)
    assert event["recent_return"] == "NaN"


def test_where_nobody_watches_only_what_must_not_be_missed() -> None:
    stream = io.StringIO()
    _watched(Terse(stream))
    assert stream.getvalue() == "Mind the step.\n"


class _Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("kind", [Live, Terse, Events])
def test_training_goes_on_without_an_audience(kind) -> None:
    _watched(kind(_Closed()))


def test_the_display_is_not_refreshed_more_often_than_can_be_read() -> None:
    stream = io.StringIO()
    live = Live(stream, refresh_seconds=60)
    for _ in range(1000):
        live.updated(STATUS)
    assert stream.getvalue().count("steps/s") == 1
