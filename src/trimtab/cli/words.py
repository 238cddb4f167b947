"""The sentences that a run ends with, and the JSON that stands for them."""

import json
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trimtab.log.progress import duration_words, plus_minus
from trimtab.log.writer import to_json

Figures = Mapping[str, Any]  # of an evaluation: see ``training.evaluate.summary``


def is_solved(figures: Figures, solved_at: float | None) -> bool | None:
    """Whether the mean return reaches the environment's mark; None where there is no mark."""
    return None if solved_at is None else figures["mean"] >= solved_at


def verdict(figures: Figures, solved_at: float | None) -> str:
    """solved: mean return 500.0 ± 0.0 over 20 episodes"""
    mean = (
        f"mean return {plus_minus(figures['mean'], figures['standard_error'])} over "
        f"{episodes_words(figures['episodes'])}"
    )
    solved = is_solved(figures, solved_at)
    if solved is None:
        return mean
    return f"solved: {mean}" if solved else f"not solved: {mean} ({solved_at:g} counts as solved)"


def choice(best: Figures, evaluations: int) -> str:
    """chosen as the best of 5 evaluations while training, by 500.0 ± 0.0 after 61,440 steps"""
    of_how_many = "by its only evaluation while training"
    if evaluations > 1:
        of_how_many = f"as the best of {evaluations:,} evaluations while training"
    mean = plus_minus(best["mean"], best["standard_error"])
    return f"chosen {of_how_many}: {mean} after {best['steps']:,} steps"


def unfinished_words(figures: Figures) -> str:
    """A sentence on the episodes that had no end, or nothing."""
    count = figures.get("unfinished", 0)
    if not count:
        return ""
    return f"{episodes_words(count)} had no end and were given up."


def effort(steps: int, now: int, timing: Mapping[str, float]) -> str:
    """after 100,352 steps in 0.9 s (compiled in 2.1 s)"""
    part = "" if now == steps else f", {now:,} of them now,"
    return (
        f"after {steps:,} steps{part} in {duration_words(timing['train'])} "
        f"(compiled in {duration_words(timing['compile'])})"
    )


def first_solved(evaluations: Sequence[Figures], solved_at: float | None) -> int | None:
    """The steps at the first evaluation while training that reached the mark."""
    return next((e["steps"] for e in evaluations if is_solved(e, solved_at)), None)


def episodes_words(count: int) -> str:
    return f"{count:,} episode" + ("" if count == 1 else "s")


def shell(*words: str | Path) -> str:
    """A command to copy into a shell."""
    return shlex.join(map(str, words))


def json_line(record: Mapping[str, Any]) -> str:
    return json.dumps(to_json(record), ensure_ascii=False)


def signal_words(name: str) -> str:
    """Ctrl-C, or the name of another signal."""
    return "Ctrl-C" if name == "SIGINT" else name
