"""What ``evaluations.jsonl`` holds: evaluations made while training, and the last word on the best.

The checkpoint ``best`` is the maximum of several noisy figures, which flatters. So when a run is
done, its best is evaluated again, on seeds that did not choose it. No JAX here.
"""

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

OF_BEST = {"checkpoint": "best"}  # marks the evaluation of the best on fresh seeds


def while_training(rows: Sequence[Row]) -> list[Row]:
    """The evaluations that were made on the way, of the policy of that moment."""
    return [row for row in rows if "checkpoint" not in row]


def of_best(rows: Sequence[Row]) -> Row | None:
    """The best on fresh seeds; None while the run is not done, or has been made longer since."""
    return rows[-1] if rows and "checkpoint" in rows[-1] else None
