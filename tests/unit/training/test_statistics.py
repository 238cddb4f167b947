"""Middles and intervals, against scipy and by hand."""

import numpy as np
import pytest
import scipy.stats

from trimtab.training.statistics import bootstrap_interval, interquartile_mean, standard_error

SCORES = np.random.default_rng(1).normal(5.0, 2.0, size=12)


@pytest.mark.parametrize("count", [4, 8, 9, 12])
def test_interquartile_mean_is_scipys_trimmed_mean(count):
    assert interquartile_mean(SCORES[:count]) == pytest.approx(
        scipy.stats.trim_mean(SCORES[:count], 0.25)
    )


def test_few_values_are_all_in_the_middle():
    assert interquartile_mean(np.array([1.0, 2.0, 6.0])) == pytest.approx(3.0)


def test_standard_error():
    assert standard_error(SCORES) == pytest.approx(scipy.stats.sem(SCORES))
    assert standard_error(SCORES[:1]) == 0.0


def test_the_interval_is_the_percentile_bootstrap():
    found = bootstrap_interval(SCORES)
    expected = scipy.stats.bootstrap(
        (SCORES,), interquartile_mean, vectorized=False, method="percentile", rng=7
    ).confidence_interval
    # Two bootstraps of 10,000 draws differ by chance: by about a hundredth of a deviation.
    assert found == pytest.approx((expected.low, expected.high), abs=0.1)
    assert bootstrap_interval(SCORES) == found


def test_one_value_has_no_interval():
    assert bootstrap_interval(SCORES[:1]) is None
