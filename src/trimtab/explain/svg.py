"""Rollout → minibatches → update, and the run on a line, as an SVG picture."""

import math
from xml.sax.saxutils import escape

from trimtab.explain.geometry import Geometry
from trimtab.explain.picture import assignment

WIDTH, HEIGHT = 900, 430
INK, FAINT, LINE = "#1f2933", "#616e7c", "#9aa5b1"
TINTS = ("#1d4e89", "#3fa7d6", "#f79d5c", "#c44536", "#59c9a5", "#7d5ba6", "#e0b93b", "#6b7a8f")
TOP, GRID = 74, 190  # where grids begin, and how high they may be
MOST_LANES, MOST_STEPS, MOST_BARS = 16, 32, 16


def svg(shape: Geometry, title: str) -> str:
    """The whole picture; ``title`` names the environment and the algorithm."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'font-family="system-ui, sans-serif" font-size="13" fill="{INK}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        _text(24, 30, title, size=17, weight="bold"),
        *_rollout(shape),
        *_minibatches(shape),
        *_epochs(shape),
        _arrow(348, TOP + GRID / 2, 388),
        _arrow(600, TOP + GRID / 2, 640),
        *_run(shape),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _rollout(shape: Geometry) -> list[str]:
    lanes, steps = min(shape.num_envs, MOST_LANES), min(shape.num_steps, MOST_STEPS)
    cell = min(300 / steps, GRID / lanes, 24)
    rows = assignment(shape, lanes, steps)
    cells = [
        _box(24 + t * cell, TOP + n * cell, cell - 1, cell - 1, _tint(number))
        for n, row in enumerate(rows)
        for t, number in enumerate(row)
    ]
    shown = "" if (lanes, steps) == (shape.num_envs, shape.num_steps) else " (a part is drawn)"
    return [
        _text(24, TOP - 14, f"rollout: {shape.num_envs:,} lanes × {shape.num_steps:,} steps"),
        *cells,
        _text(24, TOP + GRID + 22, f"= {shape.batch:,} transitions{shown}", fill=FAINT),
        _text(24, TOP + GRID + 40, "colour: the minibatch it is shuffled into", fill=FAINT),
    ]


def _minibatches(shape: Geometry) -> list[str]:
    shown = min(shape.minibatches, MOST_BARS)
    height = min(GRID / shown, 30)
    bars = [
        _box(400, TOP + number * height, 180, height - 3, _tint(number)) for number in range(shown)
    ]
    words = "minibatch" if shape.minibatches == 1 else "minibatches"
    rest = shape.minibatches - shown
    note = f"{rest} more are not drawn" if rest else "each transition is in exactly one"
    return [
        _text(400, TOP - 14, f"{shape.minibatches} {words} of {shape.minibatch_words}"),
        *bars,
        _text(400, TOP + GRID + 22, note, fill=FAINT),
    ]


def _epochs(shape: Geometry) -> list[str]:
    shown = min(shape.epochs, MOST_BARS)
    bars = min(shape.minibatches, 32)
    height, width = min(GRID / shown, 30), 224 / bars
    cells = [
        _box(652 + step * width, TOP + epoch * height, max(width - 2, 1), height - 5, _tint(step))
        for epoch in range(shown)
        for step in range(bars)
    ]
    rest = shape.epochs - shown
    also = f" ({rest} epochs are not drawn)" if rest else ""
    epochs = f"{shape.epochs} epoch" + "s" * (shape.epochs > 1)
    return [
        _text(652, TOP - 14, f"update: {epochs}, shuffled anew"),
        *cells,
        _text(652, TOP + GRID + 22, f"= {shape.gradient_steps:,} gradient steps{also}", fill=FAINT),
        _text(652, TOP + GRID + 40, f"each transition is used {shape.epochs} ×", fill=FAINT),
    ]


def _run(shape: Geometry) -> list[str]:
    """The run as a line: its updates, and its evaluations above it."""
    left, right, y = 24, 876, 372
    parts = [f'<line x1="{left}" y1="{y}" x2="{right}" y2="{y}" stroke="{INK}" stroke-width="2"/>']
    for number in range(min(shape.updates, 200) + 1):
        x = left + (right - left) * number / min(shape.updates, 200)
        parts.append(_line(x, y, x, y + 7, LINE))
    for number in range(1, shape.evaluations + 1):
        x = left + (right - left) * min(1.0, number / shape.evaluations)
        parts.append(f'<circle cx="{x:.1f}" cy="{y - 12}" r="4" fill="{TINTS[3]}"/>')
    asked = f", {shape.excess:,} more than asked for" if shape.excess else ""
    words = f"{shape.updates:,} update" + "s" * (shape.updates != 1)
    evaluations = f"{shape.evaluations} evaluation" + "s" * (shape.evaluations != 1)
    horizon = "∞" if math.isinf(shape.horizon) else f"{shape.horizon:,.0f}"
    return [
        *parts,
        _text(left, y + 30, f"{words} = {shape.total_steps:,} steps{asked}"),
        _text(left, y - 28, f"● {evaluations} of {shape.eval_episodes} episodes", fill=TINTS[3]),
        _text(right, y + 30, f"horizon 1/(1 − γ) = {horizon} steps", anchor="end", fill=FAINT),
    ]


def _tint(number: int) -> str:
    return TINTS[number % len(TINTS)]


def _box(x: float, y: float, width: float, height: float, fill: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5" '
        f'fill="{fill}"/>'
    )


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}"/>'


def _arrow(x1: float, y: float, x2: float) -> str:
    head = f"M{x2 - 8:.0f} {y - 5:.0f} L{x2:.0f} {y:.0f} L{x2 - 8:.0f} {y + 5:.0f}"
    return (
        _line(x1, y, x2, y, FAINT) + f'<path d="{head}" fill="none" stroke="{FAINT}" '
        f'stroke-width="1.5"/>'
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    size: int = 13,
    fill: str = INK,
    anchor: str = "start",
    weight: str = "normal",
) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" fill="{fill}" '
        f'text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
    )
