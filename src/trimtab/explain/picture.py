"""Rollout → minibatches → update, drawn with characters.

A rollout is a grid, a lane to a row and a step to a column. Each cell has the shade of the
minibatch that it is shuffled into, in the first epoch; minibatches that follow one another share
four shades.
"""

import random
from collections.abc import Sequence

from trimtab.explain.geometry import Geometry

MOST_LANES, MOST_STEPS, MOST_MINIBATCHES, MOST_EPOCHS = 8, 32, 8, 8
SHADES, PLAIN_SHADES = "░▒▓█", ".:+#"
GAP = 3


def assignment(rows: int, columns: int, minibatches: int) -> list[list[int]]:
    """The minibatch of each cell of a small rollout: shuffled, always alike, and in equal parts."""
    cells = [number % minibatches for number in range(rows * columns)]
    random.Random(0).shuffle(cells)
    return [cells[row * columns : (row + 1) * columns] for row in range(rows)]


def picture(shape: Geometry, *, plain: bool = False) -> list[str]:
    """Lines of text, 79 characters wide at the most; ``plain`` for terminals without blocks."""
    shades = PLAIN_SHADES if plain else SHADES
    dots, arrow, times = ("...", "->", "x") if plain else ("⋮", "→", "×")
    columns = [
        _rollout(shape, shades, dots, times),
        _minibatches(shape, shades, dots),
        _epochs(shape, shades, dots, times),
    ]
    height = max(len(column) for column in columns)
    middle = 1 + min(MOST_LANES, shape.num_envs) // 2
    lines = []
    for row in range(height):
        joint = f" {arrow} ".center(GAP + 2) if row == middle else " " * (GAP + 2)
        cells = [_cell(column, row) for column in columns]
        lines.append(joint.join(cells).rstrip())
    return lines


def _cell(column: Sequence[str], row: int) -> str:
    width = max(map(len, column))
    return (column[row] if row < len(column) else "").ljust(width)


def _rollout(shape: Geometry, shades: str, dots: str, times: str) -> list[str]:
    lanes, steps = min(shape.num_envs, MOST_LANES), min(shape.num_steps, MOST_STEPS)
    cut = len(str(shape.num_envs - 1))
    rows = assignment(lanes, steps, min(shape.minibatches, lanes * steps))
    drawn = ["".join(shades[cell % len(shades)] for cell in row) for row in rows]
    numbers = [str(number) for number in range(lanes)]
    if shape.num_envs > lanes:
        numbers[-2:] = [dots[0], str(shape.num_envs - 1)]
    more = dots[-1] * 2 if shape.num_steps > steps else ""
    title = f"rollout: N {times} T = {shape.num_envs} {times} {shape.num_steps}"
    total = f"= {shape.batch:,} transitions"
    body = [f"{name:>{cut}} {row}{more}" for name, row in zip(numbers, drawn, strict=True)]
    return [title, *body, total]


def _minibatches(shape: Geometry, shades: str, dots: str) -> list[str]:
    shown = min(shape.minibatches, MOST_MINIBATCHES)
    body = [f"{shades[number % len(shades)] * 8} step {number + 1}" for number in range(shown)]
    if shape.minibatches > shown:
        last = shape.minibatches
        body[-2:] = [dots[0], f"{shades[(last - 1) % len(shades)] * 8} step {last}"]
    words = "minibatch" if shape.minibatches == 1 else "minibatches"
    return [f"{shape.minibatches} {words} of {shape.minibatch:,g}", *body]


def _epochs(shape: Geometry, shades: str, dots: str, times: str) -> list[str]:
    shown = min(shape.epochs, MOST_EPOCHS)
    pass_ = "".join(shades[n % len(shades)] for n in range(min(shape.minibatches, 2 * len(shades))))
    body = [f"epoch {number + 1} {pass_}" for number in range(shown)]
    if shape.epochs > shown:
        body[-2:] = [dots[0], f"epoch {shape.epochs} {pass_}"]
    return [f"update, {times} {shape.updates:,}", *body, f"= {shape.gradient_steps} gradient steps"]
