"""What ``learning.py`` found, as tables in docs/learning.md and as a line in each preset's file.

A run of some tasks replaces their rows and lines, and leaves the others as they are.
"""

import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import harness

PAGE = harness.REPOSITORY / "docs" / "learning.md"
PRESETS = harness.SOURCES / "trimtab" / "presets"
TASK_HEADS = [
    "environment",
    "algorithm",
    "preset",
    "threshold",
    "N×T",
    "solved",
    "steps to solve: median (range)",
    "seconds",
    "final score: mean (lowest)",
    "trained for",
    "asked for",
]
PROBE_HEADS = [
    "probe",
    "greedy return",
    "worst error of a value",
    "seconds from start to trained",
    "asked for",
]
TABLES = {"own": TASK_HEADS, "general": TASK_HEADS, "probes": PROBE_HEADS}
RESULT = "# Result: "
NOT_YET = f"{RESULT}not measured yet"

Rows = list[list[str]]


def steps_words(steps: float) -> str:
    if math.isinf(steps):
        return "never"
    return f"{steps / 1e6:.2f}M" if steps >= 1e6 else f"{steps / 1e3:.0f}k"


def seconds_words(seconds: float) -> str:
    return "never" if math.isinf(seconds) else f"{seconds:.2f}"


def score_words(score: float) -> str:
    return f"{score:.3f}" if abs(score) < 2 else f"{score:.1f}"


def task_cells(figures: dict[str, Any]) -> list[str]:
    """One line of a table of tasks."""
    steps, scores, threshold = figures["steps_to_solve"], figures["scores"], figures["threshold"]
    of = f"of {figures['seeds']}"
    need = f"{figures['needed']} {of}"
    if figures["median_steps_at_most"]:
        need += f", median ≤ {steps_words(figures['median_steps_at_most'])}"
    marked = threshold is not None
    lowest, highest = steps_words(min(steps)), steps_words(max(steps))
    return [
        figures["environment"],
        figures["algorithm"],
        figures["preset"],
        f"{threshold:g}" if marked else "–",
        figures["shape"],
        f"{figures['solved']} {of}"
        if marked
        else f"– ({figures['seeds']} seed{'s' * (figures['seeds'] != 1)})",
        f"{steps_words(statistics.median(steps))} ({lowest}–{highest})" if marked else "–",
        seconds_words(statistics.median(figures["seconds_to_solve"])) if marked else "–",
        f"{score_words(statistics.fmean(scores))} ({score_words(min(scores))})",
        steps_words(figures["total_steps"]),
        f"{need}: {harness.verdict(figures['reached'])}" if marked else "–",
    ]


def probe_cells(figures: dict[str, Any]) -> list[str]:
    """One line of the table of probes."""
    threshold = figures["threshold"]
    return [
        figures["probe"],
        f"{figures['score']:.3f} (≥ {threshold:g})" if threshold else "chance",
        f"{figures['worst_value_error']:.3f}",
        f"{figures['seconds']:.1f}",
        f"< {figures['seconds_at_most']:.0f} s: {harness.verdict(figures['reached'])}",
    ]


def rows_of(tasks: Sequence[dict[str, Any]], probes: Sequence[dict[str, Any]]) -> dict[str, Rows]:
    """The rows of each table."""
    return {
        "own": [task_cells(one) for one in tasks if not one["general"]],
        "general": [task_cells(one) for one in tasks if one["general"]],
        "probes": [probe_cells(one) for one in probes],
    }


def report(tasks: Sequence[dict[str, Any]], probes: Sequence[dict[str, Any]]) -> str:
    """The tables that have rows, as Markdown."""
    rows = rows_of(tasks, probes)
    return "\n\n".join(harness.table(TABLES[name], rows[name]) for name in rows if rows[name])


# docs/learning.md


def write_page(tasks: Sequence[dict[str, Any]], probes: Sequence[dict[str, Any]]) -> None:
    """Put the rows into the tables of the page, each between its markers."""
    text = PAGE.read_text(encoding="utf-8")
    for name, fresh in rows_of(tasks, probes).items():
        begin, end = f"<!-- {name}: bench/learning.py -->\n", "<!-- end -->"
        before, found, rest = text.partition(begin)
        old, closed, after = rest.partition(end)
        if not found or not closed:
            harness.stop(f"{PAGE} has no {begin.strip()} … {end} around its table {name!r}.")
        rows = merged(rows_in(old), fresh, key=1 if name == "probes" else 3)
        text = f"{before}{begin}{harness.table(TABLES[name], rows)}\n{end}{after}"
    PAGE.write_text(text, encoding="utf-8")
    print(f"Written: {PAGE.relative_to(harness.REPOSITORY)}")


def rows_in(table: str) -> Rows:
    """The rows of a Markdown table, without its heading."""
    lines = [line for line in table.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[1:]]


def merged(old: Rows, fresh: Rows, key: int) -> Rows:
    """The old rows, with fresh ones in place of those with the same first cells, in their order."""
    by_key = {tuple(row[:key]): row for row in old}
    by_key |= {tuple(row[:key]): row for row in fresh}
    return [by_key[cells] for cells in sorted(by_key)]


# Presets


def result_line(figures: dict[str, Any]) -> str:
    """What a preset reached with an algorithm on an environment, as a comment."""
    scores, threshold = figures["scores"], figures["threshold"]
    line = (
        f"{RESULT}{figures['algorithm']} on {figures['environment']}, {figures['seeds']} seeds, "
        f"{steps_words(figures['total_steps'])} steps: mean return "
        f"{score_words(statistics.fmean(scores))}, lowest {score_words(min(scores))}"
    )
    if threshold is None:
        return line
    line += f"; {figures['solved']} reach {threshold:g}"
    steps = statistics.median(figures["steps_to_solve"])
    if math.isinf(steps):
        return line
    seconds = seconds_words(statistics.median(figures["seconds_to_solve"]))
    return f"{line}, at the median after {steps_words(steps)} steps, {seconds} s"


def with_result(text: str, line: str) -> str:
    """A preset's text with that line at the end of its first comment, in place of an older one."""
    subject = line.partition(",")[0]
    replaced = (subject, NOT_YET)
    kept = [other for other in text.splitlines() if other.partition(",")[0] not in replaced]
    end = next(number for number, other in enumerate(kept) if not other.startswith("#"))
    return "\n".join([*kept[:end], line, *kept[end:]]) + "\n"


def write_results(tasks: Sequence[dict[str, Any]]) -> None:
    for figures in tasks:
        file: Path = PRESETS / f"{figures['preset']}.toml"
        text = with_result(file.read_text(encoding="utf-8"), result_line(figures))
        file.write_text(re.sub(r"\n{3,}", "\n\n", text), encoding="utf-8")
        print(f"Written: {file.relative_to(harness.REPOSITORY)}")
