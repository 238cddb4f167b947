"""What several numbers say together: middles, errors and intervals. NumPy alone."""

from collections.abc import Callable

import numpy as np

RESAMPLES = 10_000


def standard_error(values: np.ndarray) -> float:
    """Of the mean: s / √n with the unbiased s; 0 for one value, of which nothing is known."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else 0.0


def interquartile_mean(values: np.ndarray) -> float:
    """The mean of the middle half: a quarter of the values is cut off at each end."""
    ordered = np.sort(values)
    cut = len(ordered) // 4
    return float(ordered[cut : len(ordered) - cut].mean())


def bootstrap_interval(
    values: np.ndarray,
    statistic: Callable[[np.ndarray], float] = interquartile_mean,
    level: float = 0.95,
) -> tuple[float, float] | None:
    """The percentile bootstrap interval of a statistic; None for one value, which has none.

    Values are drawn again with replacement, as many as there are, and the statistic taken, 10,000
    times; the interval holds the middle ``level`` of the results. The same values always give the
    same interval.
    """
    if len(values) < 2:
        return None
    draws = np.random.default_rng(0).integers(len(values), size=(RESAMPLES, len(values)))
    results = [statistic(values[draw]) for draw in draws]
    tail = 50.0 * (1.0 - level)
    low, high = np.percentile(results, [tail, 100.0 - tail])
    return float(low), float(high)
