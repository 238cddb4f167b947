"""Distances from a truth: their expectation, and what their intervals cover."""

import math

import numpy as np
import pytest

from trimtab.lab.advice import advise
from trimtab.lab.directions import mean_of_pairs
from trimtab.lab.distance import Truth, distances
from trimtab.lab.intervals import jackknife

SIZE, BATCHES, GROUPS, REFERENCE = 12, 60, 20, 20
SPREAD, REFERENCE_SPREAD = 0.8, 0.5
GRADIENT = np.linspace(0.2, 0.9, SIZE)
BIAS = 0.3 * np.cos(np.arange(SIZE))


def batches(generator, count=BATCHES):
    """Mean gradients of batches, which expect a biased gradient."""
    return GRADIENT + BIAS + SPREAD * generator.standard_normal((count, SIZE))


def truth(generator, kind):
    noise = REFERENCE_SPREAD * generator.standard_normal((REFERENCE, SIZE))
    return Truth(GRADIENT) if kind == "exact" else Truth.measured(GRADIENT + noise)


def answers():
    """What the figures are in truth; the cosine by numpy from very many batches."""
    many = batches(np.random.default_rng(99), 200_000)
    cosines = many @ GRADIENT / np.linalg.norm(many, axis=1) / np.linalg.norm(GRADIENT)
    square, bias = GRADIENT @ GRADIENT, BIAS @ BIAS
    error = bias + SIZE * SPREAD**2
    return {
        "squared_bias": bias,
        "squared_error": error,
        "relative_bias": bias / square,
        "relative_error": error / square,
        "cosine": cosines.mean(),
    }


@pytest.mark.parametrize("kind", ["exact", "reference"])
def test_intervals_cover_the_truth(kind):
    """A reference's own noise is in the intervals: without it they would cover less."""
    generator, known = np.random.default_rng(3), answers()
    if kind == "reference":
        known["squared_truth"] = GRADIENT @ GRADIENT
    covered = dict.fromkeys(known, 0)
    for _ in range(200):
        found = distances(batches(generator), GROUPS, truth(generator, kind))
        for name, value in known.items():
            estimate = getattr(found, name)
            covered[name] += estimate.low <= value <= estimate.high
    shares = {name: count / 200 for name, count in covered.items()}
    assert all(0.9 <= share <= 0.99 for share in shares.values()), shares


@pytest.mark.parametrize("kind", ["exact", "reference"])
def test_estimates_are_unbiased(kind):
    generator = np.random.default_rng(4)
    every = [distances(batches(generator), GROUPS, truth(generator, kind)) for _ in range(300)]
    for name in ("squared_bias", "squared_error"):
        values = np.array([getattr(one, name).value for one in every])
        assert abs(values.mean() - answers()[name]) < 3 * values.std() / np.sqrt(len(values)), name


def test_the_squared_error_is_the_mean_distance_of_single_batches():
    means = batches(np.random.default_rng(5))
    found = distances(means, GROUPS, Truth(GRADIENT))
    assert found.squared_error.value == pytest.approx(((means - GRADIENT) ** 2).sum(axis=1).mean())
    assert found.squared_truth == pytest.approx([GRADIENT @ GRADIENT] * 3)


def test_a_reference_that_is_all_noise_gives_no_ratio_and_no_cosine():
    generator = np.random.default_rng(6)
    noise = generator.standard_normal((REFERENCE, SIZE))
    found = distances(batches(generator), GROUPS, Truth.measured(noise - noise.mean(axis=0)))
    assert not found.known
    assert math.isnan(found.cosine.value)
    assert math.isnan(found.relative_error.value)
    assert math.isfinite(found.squared_error.value)


def test_the_cosine_of_pairs_of_batches_is_covered():
    """Two independent unit vectors have the squared length of their mean as expected product."""
    many = batches(np.random.default_rng(98), 200_000)
    mean = (many / np.linalg.norm(many, axis=1, keepdims=True)).mean(axis=0)
    generator, covered = np.random.default_rng(7), 0
    for _ in range(200):
        found = mean_of_pairs(batches(generator), GROUPS)
        covered += found.low <= mean @ mean <= found.high
    assert 0.9 <= covered / 200 <= 0.99


def test_two_samples_add_their_squares():
    """The difference of two means has both their variances, with the fewer degrees of freedom."""
    left, right = np.array([1.0, 2.0, 4.0, 8.0, 3.0, 5.0]), np.array([2.0, 2.5, 1.0, 4.0, 9.0, 3.0])
    whole = left.mean() - right.mean()
    without_left = (left.sum() - left) / 5 - right.mean()
    without_right = left.mean() - (right.sum() - right) / 5
    found = jackknife(whole, without_left, without_right)
    error = np.sqrt(left.var(ddof=1) / 6 + right.var(ddof=1) / 6)
    assert found.high - whole == pytest.approx(2.5706 * error, rel=1e-3)  # t of 5 degrees


def test_equal_splits_are_seldom_told_apart():
    """A split is named without reason in 5% of surveys, about."""
    generator, named = np.random.default_rng(8), 0

    def cell(lanes):
        found = distances(batches(generator), GROUPS, Truth(GRADIENT))
        variance = found.squared_error.value - found.squared_bias.value
        figures = {"variance": [variance] * 3}
        bias = {"squared_error": list(found.squared_error)}
        head = {"zero": False, "figures": figures, "bias": bias}
        return {"lanes": lanes, "steps": 128 // lanes, "heads": {"actor": head}}

    for _ in range(200):
        named += advise([cell(4), cell(32)], BATCHES).split is not None
    assert 0.01 <= named / 200 <= 0.1
