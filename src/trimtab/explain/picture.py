"""Rollout → minibatches → update, drawn with characters.

A rollout is a grid, a lane to a row and a step to a column. Each cell has the shade of the
minibatch that it is shuffled into, in the first epoch; minibatches that follow one another share
four shades. A recurrent policy's lanes stay whole.
"""

import dataclasses
import itertools
import random
from collections.abc import Sequence

from trimtab.explain.geometry import Geometry

MOST_LANES, MOST_STEPS, MOST_MINIBATCHES, MOST_EPOCHS = 8, 26, 8, 8
BAR = 8  # the width of a minibatch


@dataclasses.dataclass(frozen=True)
class Ink:
    """The characters to draw with."""

    shades: str
    corners: str  # of a frame: ┌ ┐ └ ┘ ─ │
    more: str  # of rows, and of columns
    arrow: str
    times: str


BOXES = Ink("░▒▓█", "┌┐└┘─│", "⋮⋯", "→", "×")
ASCII = Ink(".:+#", "++++-|", ":~", ">", "x")


def assignment(shape: Geometry, rows: int, columns: int) -> list[list[int]]:
    """The minibatch of each cell that is drawn: shuffled, always alike, and in equal parts."""
    width = 1 if shape.recurrent else columns
    minibatches = min(shape.minibatches, rows * width)
    cells = [number % minibatches for number in range(rows * width)]
    random.Random(0).shuffle(cells)
    lines = [cells[row * width : (row + 1) * width] for row in range(rows)]
    return [line * (columns // width) for line in lines]


def picture(shape: Geometry, ink: Ink = BOXES) -> list[str]:
    """Lines of text, 79 characters wide at the most."""
    columns = [_rollout(shape, ink), _minibatches(shape, ink), _update(shape, ink)]
    height = max(map(len, columns))
    drawn = min(MOST_LANES, shape.num_envs, shape.minibatches, shape.epochs)
    middle = 3 + drawn // 2
    joints = [f" {ink.arrow} " if row == middle else "   " for row in range(height)]
    padded = [_padded(column, height) for column in columns]
    first, second, third = padded
    return [
        "".join(part for part in parts).rstrip()
        for parts in zip(first, joints, second, joints, third, strict=True)
    ]


def _padded(column: Sequence[str], height: int) -> list[str]:
    width = max(map(len, column))
    return [line.ljust(width) for line in itertools.chain(column, [""] * (height - len(column)))]


def _framed(lines: Sequence[str], ink: Ink) -> list[str]:
    left_top, right_top, left_bottom, right_bottom, bar, side = ink.corners
    rule = bar * max(map(len, lines))
    return [
        left_top + rule + right_top,
        *(side + line.ljust(len(rule)) + side for line in lines),
        left_bottom + rule + right_bottom,
    ]


def _rollout(shape: Geometry, ink: Ink) -> list[str]:
    lanes, steps = min(shape.num_envs, MOST_LANES), min(shape.num_steps, MOST_STEPS)
    rows = assignment(shape, lanes, steps)
    drawn = ["".join(_shade(cell, ink) for cell in row) for row in rows]
    names = [str(number) for number in range(lanes)]
    if shape.num_envs > lanes:
        names[-2:] = [ink.more[0], str(shape.num_envs - 1)]
    if shape.num_steps > steps:
        drawn = [row[:-3] + ink.more[1] + row[-2:] for row in drawn]
    of_lanes = "lane" if shape.num_envs == 1 else "lanes"
    of_steps = "step" if shape.num_steps == 1 else "steps"
    width = max(map(len, names))
    margins = ["", *names, ""]
    framed = _framed(drawn, ink)
    return [
        f"{'':{width}}  rollout",
        f"{'':{width}}  {shape.num_envs:,} {of_lanes} {ink.times} {shape.num_steps:,} {of_steps}",
        *(f"{name:>{width}} {line}" for name, line in zip(margins, framed, strict=True)),
        f"{'':{width}}  = {shape.batch:,} transitions",
    ]


def _minibatches(shape: Geometry, ink: Ink) -> list[str]:
    shown = min(shape.minibatches, MOST_MINIBATCHES)
    bars = [_shade(number, ink) * BAR for number in range(shown)]
    if shape.minibatches > shown:
        bars[-2:] = [ink.more[0].center(BAR), _shade(shape.minibatches - 1, ink) * BAR]
    words = "minibatch" if shape.minibatches == 1 else "minibatches"
    return [words, f"{shape.minibatches:,} of {shape.minibatch_words}", *_framed(bars, ink)]


def _update(shape: Geometry, ink: Ink) -> list[str]:
    shown = min(shape.epochs, MOST_EPOCHS)
    names = [f"epoch {number + 1}" for number in range(shown)]
    if shape.epochs > shown:
        names[-2:] = [ink.more[0], f"epoch {shape.epochs}"]
    row = "".join(_shade(number, ink) for number in range(min(shape.minibatches, BAR)))
    if shape.minibatches > BAR:
        row = row[:-2] + ink.more[1] + _shade(shape.minibatches - 1, ink)
    framed = _framed([row] * shown, ink)
    steps = "gradient step" + "s" * (shape.gradient_steps != 1)
    return [
        "update",
        f"1 of {shape.updates:,}",
        *(f"{line} {name}".rstrip() for line, name in zip(framed, ["", *names, ""], strict=True)),
        f"= {shape.gradient_steps:,}",
        steps,
    ]


def _shade(number: int, ink: Ink) -> str:
    return ink.shades[number % len(ink.shades)]
