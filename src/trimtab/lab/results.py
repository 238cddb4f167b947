"""What a measurement says, as plain data: the content of ``lab.json`` and of the page."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab.lab import directions
from trimtab.lab.bias import ExactBias
from trimtab.lab.distance import Truth, distances
from trimtab.lab.engine import FIRST_BATCHES, HeadMeasurement
from trimtab.lab.estimators import Figures, figures
from trimtab.lab.intervals import Estimate, mean_interval
from trimtab.lab.minibatches import sampling_variance
from trimtab.lab.reference import Reference

Record = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Known:
    """What is known of a head's true gradient, and from where: exactly, or from a reference."""

    truth: Truth
    exact: ExactBias | None = None
    starts: Mapping[str, float] | None = None  # what each way to start lanes adds, exactly
    reference: Reference | None = None


def head_record(
    measured: HeadMeasurement, first_batch: np.ndarray, known: Known | None, minibatches: int
) -> Record:
    """Everything about one head's gradient in one cell; ``zero`` where there is none."""
    moments = measured.moments
    if not moments.independent_variance.any() and not np.any(measured.means):
        return {"zero": True, "parameters": measured.parameters}
    found = figures(moments)
    record: Record = {
        "zero": False,
        "parameters": measured.parameters,
        "sketch_error": measured.storage.error,
        "figures": _figures_record(found),
        "lags": [list(one) for one in found.lag_correlations],
        "directions": _directions_record(measured, first_batch),
        "minibatches": [
            [size, list(sampling_variance(moments, size))]
            for size in _sizes(moments.samples, minibatches)
        ],
    }
    if known is not None:
        record["bias"] = _bias_record(measured, known)
    return record


def _figures_record(found: Figures) -> Record:
    names = [field.name for field in dataclasses.fields(found) if field.name != "lag_correlations"]
    return {name: list(getattr(found, name)) for name in names}


def _directions_record(measured: HeadMeasurement, first_batch: np.ndarray) -> Record:
    cosines, means = measured.cosines, measured.means
    own, null = np.asarray(cosines.mean), np.asarray(cosines.null_mean)
    known = np.isfinite(own) & np.isfinite(null)
    lane: Record = {
        "histogram": np.asarray(cosines.histogram).tolist(),
        "null_histogram": np.asarray(cosines.null_histogram).tolist(),
    }
    if known.sum() > 1:
        lane["mean"] = list(mean_interval(own[known]))
        lane["null_mean"] = list(mean_interval(null[known]))
        lane["difference"] = list(mean_interval(own[known] - null[known]))
    pairs = directions.pairwise_cosines(means)
    known_pairs = pairs[np.isfinite(pairs)]
    first = directions.first_batch_cosines(first_batch, means[:FIRST_BATCHES])
    return {
        "lane": lane,
        "pairs": {
            "histogram": _histogram(known_pairs),
            "mean": list(directions.mean_of_pairs(means, measured.moments.groups)),
        },
        "first_batch": [
            [float(q) for q in np.quantile(column[np.isfinite(column)], (0.1, 0.5, 0.9))]
            for column in first.T
            if np.isfinite(column).any()
        ],
    }


def _bias_record(measured: HeadMeasurement, known: Known) -> Record:
    truth = known.truth
    found = distances(measured.means, measured.moments.groups, truth)
    cosines = directions.cosines_with(measured.means, truth.gradient)
    record: Record = {
        "kind": "exact" if known.exact else "reference",
        "known": found.known,
        "truth_variance": truth.variance,
        **{field.name: list(getattr(found, field.name)) for field in dataclasses.fields(found)},
        "cosine_histogram": _histogram(cosines[np.isfinite(cosines)]),
    }
    if known.exact is not None:
        exact = known.exact
        record["exact_squared_bias"] = float(((exact.expected - exact.practice) ** 2).sum())
        record["sources"] = exact.shares()
        record["starts"] = dict(known.starts or {})
        record["forms_cosine"] = _cosine(exact.practice, exact.discounted)
        record["expected_cosine"] = _cosine(exact.expected, exact.practice)
    if known.reference is not None:
        record["reference_transitions"] = known.reference.transitions
        record["reference_horizon"] = known.reference.horizon
    return record


def _cosine(left: np.ndarray, right: np.ndarray) -> float:
    length = float(np.linalg.norm(left) * np.linalg.norm(right))
    return float(left @ right) / length if length > 0 else math.nan


def _histogram(cosines: np.ndarray) -> list[int]:
    counts, _ = np.histogram(cosines, directions.BINS, (-1, 1))
    return counts.tolist()


def _sizes(samples: int, minibatches: int) -> list[int]:
    """Minibatch sizes that divide the rollout, the algorithm's own among them."""
    sizes = {samples // minibatches}
    sizes |= {samples // 2**k for k in range(8) if samples % 2**k == 0}
    return sorted(size for size in sizes if size >= 1)


def estimate(record: Mapping[str, Any], *path: str) -> Estimate:
    """A figure of a record, as the estimate it was."""
    here: Any = record
    for name in path:
        here = here[name]
    return Estimate(*here)
