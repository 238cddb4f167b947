"""How far batches' gradients are from the true one: bias², squared error and cosine.

A truth that was measured has an error of its own. It is taken off every figure, and the intervals
count it: besides groups of batches, each of the reference's batches is left out in turn.
"""

import dataclasses
import math
from collections.abc import Callable

import numpy as np

from trimtab.lab.directions import unit_rows
from trimtab.lab.intervals import Estimate, jackknife


@dataclasses.dataclass(frozen=True)
class Truth:
    """The gradient that bias is counted from: exact, or the mean of a reference's batches."""

    gradient: np.ndarray  # [P]
    rows: np.ndarray | None = None  # [R, P], of a reference

    @staticmethod
    def measured(rows: np.ndarray) -> "Truth":
        return Truth(rows.mean(axis=0), rows)

    @property
    def variance(self) -> float:
        """Of the reference's mean; 0 for an exact gradient."""
        if self.rows is None:
            return 0.0
        return float(self.rows.var(axis=0, ddof=1).sum()) / len(self.rows)

    @property
    def squared_length(self) -> float:
        """‖G‖², without what noise adds to it."""
        return float(self.gradient @ self.gradient) - self.variance

    def without_each(self) -> "list[Truth]":
        """The same without one of the reference's batches, for each of them."""
        if self.rows is None:
            return []
        return [Truth.measured(np.delete(self.rows, row, axis=0)) for row in range(len(self.rows))]


@dataclasses.dataclass(frozen=True)
class Distances:
    """Of a batch's gradient from the truth; bias² + variance is the squared error.

    What is relative is so to ‖G‖². Nothing is, and there is no cosine, where a reference is too
    short to tell the gradient from nothing.
    """

    squared_truth: Estimate
    squared_bias: Estimate
    squared_error: Estimate
    relative_bias: Estimate
    relative_error: Estimate
    cosine: Estimate

    @property
    def known(self) -> bool:
        return self.squared_truth.low > 0


@dataclasses.dataclass(frozen=True)
class _Batches:
    """What the figures need of some batches."""

    mean: np.ndarray
    variance: float
    count: int
    direction: np.ndarray  # the mean of unit vectors

    @staticmethod
    def of(means: np.ndarray) -> "_Batches":
        units = unit_rows(means)
        units = units[np.isfinite(units).all(axis=1)]
        direction = units.mean(axis=0) if len(units) else np.full(means.shape[1], math.nan)
        spread = float(means.var(axis=0, ddof=1).sum())
        return _Batches(means.mean(axis=0), spread, len(means), direction)

    def squared_bias(self, truth: Truth) -> float:
        """‖E ḡ − G‖²: that of the mean, less what the noise of both adds to it."""
        distance = float(((self.mean - truth.gradient) ** 2).sum())
        return distance - self.variance / self.count - truth.variance


def distances(means: np.ndarray, groups: int, truth: Truth) -> Distances:
    """From the mean gradients [M, P] of batches in equal groups."""
    means = np.asarray(means, np.float64)
    group = np.arange(len(means)) // (len(means) // groups)
    whole = _Batches.of(means)
    parts = [_Batches.of(means[group != one]) for one in range(groups)]
    others = truth.without_each()

    def of(figure: Callable[[_Batches, Truth], float], positive: bool = False) -> Estimate:
        return jackknife(
            figure(whole, truth),
            np.array([figure(part, truth) for part in parts]),
            np.array([figure(whole, other) for other in others]),
            positive=positive,
        )

    def error(batches: _Batches, truth: Truth) -> float:
        return batches.squared_bias(truth) + batches.variance

    def relative(figure: Callable[[_Batches, Truth], float]) -> Callable[..., float]:
        return lambda batches, truth: figure(batches, truth) / max(truth.squared_length, 1e-300)

    def cosine(batches: _Batches, truth: Truth) -> float:
        length = math.sqrt(max(truth.squared_length, 1e-300))
        return float(batches.direction @ truth.gradient) / length

    squared_truth = jackknife(
        truth.squared_length, np.array([other.squared_length for other in others])
    )
    unknown = Estimate(math.nan, math.nan, math.nan)
    known = squared_truth.low > 0
    return Distances(
        squared_truth,
        of(_Batches.squared_bias),
        of(error, positive=True),
        of(relative(_Batches.squared_bias)) if known else unknown,
        of(relative(error), positive=True) if known else unknown,
        of(cosine) if known else unknown,
    )
