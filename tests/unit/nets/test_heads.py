"""Distributions against scipy, and sampling against what it should be distributed as."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from trimtab.errors import UnsupportedSpaceError
from trimtab.nets.heads import (
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
    SquashedGaussian,
    check_action_space,
    discrete_distribution,
    largest_entropy,
    num_outputs,
    sampling_noise,
)
from trimtab.spaces import (
    ACTION_MASK,
    Box,
    Dict,
    Discrete,
    EnvSpec,
    MultiBinary,
    MultiDiscrete,
)

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


SIZES = (2, 3, 1)
CHOICES = np.array([0.5, -0.5, 1.0, 2.0, -1.0, 4.0], np.float32)


def probabilities_of(logits):
    exact = np.exp(logits.astype(np.float64))
    return exact / exact.sum()


def test_multi_categorical_against_scipy():
    head = MultiCategorical.of(jnp.asarray(CHOICES), SIZES)
    parts = [probabilities_of(part) for part in np.split(CHOICES, [2, 5])]
    for action in itertools.product(range(2), range(3), range(1)):
        expected = sum(np.log(part[a]) for part, a in zip(parts, action, strict=True))
        np.testing.assert_allclose(head.log_prob(jnp.array(action)), expected, rtol=1e-5)
    np.testing.assert_allclose(head.entropy(), sum(map(stats.entropy, parts)), rtol=1e-5)
    np.testing.assert_array_equal(head.mode(), [0, 1, 0])


def test_multi_categorical_samples_follow_the_probabilities():
    space = MultiDiscrete(SIZES)
    head = MultiCategorical.of(jnp.asarray(CHOICES), SIZES)
    samples = np.asarray(jax.vmap(head.sample)(sampling_noise(space, jax.random.key(0), 10_000)))
    for column, part in enumerate(np.split(CHOICES, [2, 5])):
        counts = np.bincount(samples[:, column], minlength=len(part))
        assert len(counts) == len(part)
        if len(part) > 1:
            assert stats.chisquare(counts, 10_000 * probabilities_of(part)).pvalue > 1e-3


def test_bernoulli_against_scipy():
    head = Bernoulli(jnp.asarray(LOGITS))
    p = 1 / (1 + np.exp(-LOGITS.astype(np.float64)))
    action = np.array([1, 0, 1, 0], np.int8)
    expected = stats.bernoulli(p)
    np.testing.assert_allclose(
        head.log_prob(jnp.asarray(action)), expected.logpmf(action).sum(), rtol=1e-5
    )
    np.testing.assert_allclose(head.entropy(), expected.entropy().sum(), rtol=1e-5)
    np.testing.assert_array_equal(head.mode(), [1, 0, 1, 0])
    samples = jax.vmap(head.sample)(sampling_noise(MultiBinary(4), jax.random.key(0), 20_000))
    assert samples.dtype == np.int8
    deviation = np.sqrt(p * (1 - p) / 20_000)
    assert (np.abs(np.asarray(samples).mean(axis=0) - p) < 4 * deviation).all()


def test_squashed_gaussian_against_a_change_of_variables_and_monte_carlo():
    head = SquashedGaussian(DiagonalGaussian(jnp.asarray(MEAN), jnp.asarray(LOG_STD)))
    normal = stats.norm(MEAN.astype(np.float64), np.exp(LOG_STD.astype(np.float64)))
    action = np.array([0.3, -0.9])
    density = normal.pdf(np.arctanh(action)) / (1 - action**2)
    np.testing.assert_allclose(
        head.log_prob(jnp.asarray(action, jnp.float32)), np.log(density).sum(), rtol=1e-4
    )
    before = normal.rvs((200_000, 2), random_state=0)
    # −log p(a) averaged over actions
    slopes = np.log1p(-(np.tanh(before) ** 2))
    each = (-normal.logpdf(before) + slopes).sum(axis=1)
    error = each.std() / np.sqrt(len(each))
    assert abs(float(head.entropy()) - each.mean()) < 4 * error + 0.01
    np.testing.assert_allclose(head.mode(), np.tanh(MEAN), rtol=1e-5)


def test_squashed_samples_stay_inside_and_their_probability_is_finite():
    head = SquashedGaussian(DiagonalGaussian(jnp.array([20.0, -20.0]), jnp.zeros(2)))
    action = head.sample(jnp.zeros(2))
    assert (np.abs(action) < 1).all()
    assert np.isfinite(head.log_prob(action))
    assert np.isfinite(head.entropy())


def test_a_masked_action_has_no_probability_and_no_share_in_the_entropy():
    mask = jnp.array([1, 0, 1, 0], jnp.int8)
    head = discrete_distribution(Discrete(4), jnp.asarray(LOGITS), mask)
    noise = sampling_noise(Discrete(4), jax.random.key(0), 1000)
    assert set(np.asarray(jax.vmap(head.sample)(noise)).tolist()) == {0, 2}
    left = probabilities_of(LOGITS[[0, 2]])
    np.testing.assert_allclose(head.entropy(), stats.entropy(left), rtol=1e-5)
    np.testing.assert_allclose(head.log_prob(jnp.int32(0)), np.log(left[0]), rtol=1e-5)
    gradient = jax.grad(lambda logits: discrete_distribution(Discrete(4), logits, mask).entropy())(
        jnp.asarray(LOGITS)
    )
    np.testing.assert_array_equal(np.asarray(gradient)[[1, 3]], 0.0)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Discrete(4), np.log(4)),
        (MultiDiscrete((2, 3)), np.log(6)),
        (MultiBinary(3), 3 * np.log(2)),
        (Box((2,)), None),
        (Discrete(1), None),
    ],
)
def test_the_largest_entropy_is_that_of_equal_logits(space, expected):
    if expected is None:
        assert largest_entropy(space) is None
        return
    np.testing.assert_allclose(largest_entropy(space), expected)
    head = discrete_distribution(space, jnp.zeros(num_outputs(space)), None)
    np.testing.assert_allclose(head.entropy(), expected, rtol=1e-5)


def test_spaces_without_a_distribution_are_refused_by_name():
    odd = EnvSpec("Odd-v0", Box((2,)), Box((2,), dtype="uint8"))
    with pytest.raises(UnsupportedSpaceError, match=r"Odd-v0.*Discrete, MultiDiscrete"):
        check_action_space(odd)


def test_masks_that_do_not_fit_are_refused():
    seen = Dict.of({"seen": Box((2,)), ACTION_MASK: MultiBinary(3)})
    with pytest.raises(UnsupportedSpaceError, match="must have 2 elements"):
        check_action_space(EnvSpec("Odd-v0", seen, Discrete(2)))
    with pytest.raises(UnsupportedSpaceError, match="Discrete and MultiDiscrete actions only"):
        check_action_space(EnvSpec("Odd-v0", seen, Box((2,))))
    check_action_space(EnvSpec("Fits-v0", seen, MultiDiscrete((2, 1))))
