"""Distributions against scipy, and sampling against what it should be distributed as."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from trimtab.errors import UnsupportedSpaceError
from trimtab.nets.heads import (
    Categorical,
    DiagonalGaussian,
    check_action_space,
    sampling_noise,
)
from trimtab.spaces import Box, Discrete

LOGITS = np.array([0.3, -1.2, 2.0, 0.0], np.float32)
MEAN, LOG_STD = np.array([0.5, -2.0], np.float32), np.array([-1.0, 0.7], np.float32)


def test_categorical_against_scipy():
    head = Categorical(jnp.asarray(LOGITS))
    probabilities = np.exp(LOGITS) / np.exp(LOGITS).sum()
    for action in range(4):
        np.testing.assert_allclose(
            head.log_prob(jnp.int32(action)), np.log(probabilities[action]), rtol=1e-5
        )
    np.testing.assert_allclose(head.entropy(), stats.entropy(probabilities), rtol=1e-5)
    assert head.mode() == 2


def test_gaussian_against_scipy():
    head = DiagonalGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
    normal = stats.norm(MEAN, np.exp(LOG_STD))
    action = np.array([0.1, 1.5], np.float32)
    np.testing.assert_allclose(
        head.log_prob(jnp.asarray(action)), normal.logpdf(action).sum(), rtol=1e-5
    )
    np.testing.assert_allclose(head.entropy(), normal.entropy().sum(), rtol=1e-5)
    np.testing.assert_array_equal(head.mode(), MEAN)


def test_categorical_samples_follow_the_probabilities():
    head = Categorical(jnp.asarray(LOGITS))
    noise = sampling_noise(Discrete(4), jax.random.key(0), 20_000)
    counts = np.bincount(jax.vmap(head.sample)(noise), minlength=4)
    exact = np.exp(LOGITS.astype(np.float64))
    expected = 20_000 * exact / exact.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-3


def test_gaussian_samples_follow_the_normal():
    head = DiagonalGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD))
    noise = sampling_noise(Box((2,)), jax.random.key(0), 5_000)
    samples = np.asarray(jax.vmap(head.sample)(noise))
    for dimension in range(2):
        normal = stats.norm(MEAN[dimension], np.exp(LOG_STD[dimension]))
        assert stats.kstest(samples[:, dimension], normal.cdf).pvalue > 1e-3


def test_extreme_logits_stay_finite():
    head = Categorical(jnp.array([1e4, -1e4, 0.0]))
    assert head.sample(jnp.float32(0.999999)) == 0
    assert np.isfinite(head.entropy())
    assert np.isfinite(jax.grad(lambda x: Categorical(x).entropy())(head.logits)).all()


@pytest.mark.parametrize("noise", [0.0, 0.999999940395])
def test_the_ends_of_the_uniform_range_are_actions(noise):
    assert 0 <= Categorical(jnp.zeros(3)).sample(jnp.float32(noise)) <= 2


def test_spaces_without_a_distribution_are_refused_by_name():
    with pytest.raises(UnsupportedSpaceError, match=r"Odd-v0.*Discrete spaces and in Box"):
        check_action_space(Box((2,), dtype="uint8"), "Odd-v0")
