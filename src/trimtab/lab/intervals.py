"""Estimates with 95% intervals, by leaving out one group of batches at a time."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

_NORMAL_QUANTILE = 1.959963984540054  # of 0.975


class Estimate(NamedTuple):
    """A figure and its 95% interval; an end that the data do not bound is infinite.

    What cannot be said at all, such as the variance between lanes of a single lane, is NaN.
    """

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> "Estimate":
        """The same in another unit; ``factor`` is positive."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def inverse(self) -> "Estimate":
        """1/x of a quantity that is positive in truth: where 0 is in the interval, no upper end."""
        if math.isnan(self.value):
            return self
        value = 1 / self.value if self.value > 0 else math.inf
        low = 1 / self.high if self.high > 0 else math.inf
        return Estimate(value, low, 1 / self.low if self.low > 0 else math.inf)


def jackknife(whole: float, *left_out: np.ndarray, positive: bool = False) -> Estimate:
    """An estimate θ̂ with an interval from those without each of J equal groups (Tukey 1958).

        s² = (J − 1)/J Σ_j (θ̂₋ⱼ − mean θ̂₋ⱼ)²,    θ̂ ± t₀.₉₇₅(J − 1) s

    Of an estimate from two independent samples the groups of each are left out in turn, and their
    s² are added; one that nothing is left out of is exact. For ``positive`` quantities the same is
    done with their logarithms, whose spread does not grow with their size.
    """
    samples = [values for values in left_out if len(values)]
    if not (math.isfinite(whole) and all(np.isfinite(values).all() for values in samples)):
        return Estimate(math.nan, math.nan, math.nan)
    if not samples:
        return Estimate(whole, whole, whole)
    logs = positive and whole > 0 and all((values > 0).all() for values in samples)
    forward, back = (math.log, math.exp) if logs else (float, float)
    scale: Callable[[np.ndarray], np.ndarray] = np.log if logs else np.asarray
    square = 0.0
    for groups, values in ((len(values), scale(values)) for values in samples):
        square += (groups - 1) / groups * float(((values - values.mean()) ** 2).sum())
    fewest = min(len(values) for values in samples)
    reach = student_quantile(fewest - 1) * math.sqrt(square)
    centre = forward(whole)
    return Estimate(float(whole), back(centre - reach), back(centre + reach))


def mean_interval(values: np.ndarray) -> Estimate:
    """The mean of independent values, with Student's interval."""
    values = np.asarray(values, np.float64)
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    reach = student_quantile(len(values) - 1) * error
    return Estimate(mean, mean - reach, mean + reach)


def student_quantile(freedom: int) -> float:
    """The 0.975 quantile of Student's t, by Fisher's expansion: right to 0.1% from 5 degrees on."""
    z, n = _NORMAL_QUANTILE, float(freedom)
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
        + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * n**4)
    )
