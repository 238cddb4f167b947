"""Estimators against gradients whose covariance is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from trimtab.lab.estimators import Moments, figures, split, two_batch_estimates
from trimtab.lab.intervals import jackknife, mean_interval, student_quantile
from trimtab.lab.moments import batch_moments, by_lag, lag_products

LANES, STEPS, SIZE = 4, 6, 12


def lanes_of_ar1(generator, batches, correlation, mean):
    """Gradients [M, T, N, P]: a mean plus stationary AR(1) noise of variance 1 in each lane."""
    noise = generator.standard_normal((batches, STEPS, LANES, SIZE))
    walk = [noise[:, 0]]
    for t in range(1, STEPS):
        walk.append(correlation * walk[-1] + np.sqrt(1 - correlation**2) * noise[:, t])
    return (mean + np.stack(walk, axis=1)).astype(np.float32)


measure = jax.jit(jax.vmap(batch_moments))


def moments_of(gradients, groups):
    batches, _, lanes, _ = gradients.shape
    every = measure(jnp.asarray(gradients))
    size = batches // groups
    parts = []
    for group in range(groups):
        part = jax.tree.map(lambda leaf, g=group: leaf[g * size : (g + 1) * size], every)
        parts.append(part._replace(step_means=part.step_means.sum(axis=0)))
    return Moments.joined(lanes, parts)


def ar1_variance(correlation):
    """Individual and covariance terms of Var(ḡ), by hand."""
    lags = np.arange(1, STEPS)
    scale = SIZE / (LANES * STEPS**2)
    return scale * STEPS, scale * 2 * ((STEPS - lags) * correlation**lags).sum()


def test_sums_of_diagonals():
    matrix = np.arange(9.0).reshape(3, 3)
    assert by_lag(matrix, 3).tolist() == [0 + 4 + 8, 1 + 5, 2]
    assert by_lag(matrix[:2], 2).tolist() == [0 + 4, 1 + 5]
    np.testing.assert_array_equal(by_lag(jnp.asarray(matrix), 3), by_lag(matrix, 3))


@pytest.mark.parametrize("steps", [1, 2, 64, 65, 128, 129, 191, 192, 200, 256])
def test_products_of_rows_by_lag(steps):
    """Of long rows too, whose products are made in blocks; expected ones are summed one by one."""
    rows = np.random.default_rng(0).standard_normal((steps, 3))
    lags = range(min(steps - 1, 64) + 1)
    expected = [sum(rows[t] @ rows[t + lag] for t in range(steps - lag)) for lag in lags]
    np.testing.assert_allclose(lag_products(rows), expected, atol=1e-9)
    np.testing.assert_allclose(lag_products(jnp.asarray(rows, jnp.float32)), expected, atol=1e-3)


def test_long_lanes_have_the_split_that_algebra_gives():
    """Of 150 steps the covariance is of all lags, those that are told one by one or not."""
    generator, correlation, steps, lanes, size = np.random.default_rng(9), 0.9, 150, 2, 3
    walk = [generator.standard_normal((1000, lanes, size))]
    for _ in range(1, steps):
        noise = generator.standard_normal((1000, lanes, size))
        walk.append(correlation * walk[-1] + np.sqrt(1 - correlation**2) * noise)
    found = figures(moments_of(np.stack(walk, axis=1).astype(np.float32), 20))
    lags = np.arange(1, steps)
    scale = size / (lanes * steps**2)
    covariance = scale * 2 * ((steps - lags) * correlation**lags).sum()
    assert found.individual.value == pytest.approx(scale * steps, rel=0.02)
    assert found.covariance.low < covariance < found.covariance.high
    assert found.covariance.value == pytest.approx(covariance, rel=0.06)
    assert len(found.lag_correlations) == 65
    assert found.lag_correlations[10].value == pytest.approx(correlation**10, abs=0.03)


@given(
    seed=st.integers(0, 2**31), correlation=st.floats(-0.8, 0.9), groups=st.sampled_from([5, 20])
)
def test_the_parts_sum_to_the_variance_measured_directly(seed, correlation, groups):
    generator = np.random.default_rng(seed)
    gradients = lanes_of_ar1(generator, 20, correlation, generator.standard_normal(SIZE))
    parts = split(moments_of(gradients, groups))
    means = gradients.astype(np.float64).mean(axis=(1, 2))
    direct = means.var(axis=0, ddof=1).sum()
    np.testing.assert_allclose(parts.variance, direct, rtol=1e-3)
    summed = parts.individual + parts.covariance + parts.between_lanes
    np.testing.assert_allclose(summed, direct, rtol=1e-3)


@pytest.mark.parametrize("correlation", [0.0, 0.6, -0.4])
def test_ar1_lanes_have_the_split_that_algebra_gives(correlation):
    generator = np.random.default_rng(1)
    found = figures(moments_of(lanes_of_ar1(generator, 4000, correlation, 0.5), 20))
    individual, covariance = ar1_variance(correlation)
    total = individual + covariance
    assert found.individual.value == pytest.approx(individual, rel=0.02)
    assert found.covariance.value == pytest.approx(covariance, abs=0.03 * total)
    assert found.variance.value == pytest.approx(total, rel=0.03)
    assert found.between_lanes.value == pytest.approx(0, abs=0.04 * total)
    assert found.cluster_variance.value == pytest.approx(total, rel=0.03)
    assert found.design_effect.value == pytest.approx(total / individual, rel=0.03)
    assert found.effective_samples.value == pytest.approx(24 * individual / total, rel=0.03)
    signal = SIZE * 0.25
    assert found.signal.value == pytest.approx(signal, rel=0.03)
    assert found.noise_scale.value == pytest.approx(24 * total / signal, rel=0.05)
    assert found.cluster_noise_scale.value == pytest.approx(24 * total / signal, rel=0.05)
    lags = [estimate.value for estimate in found.lag_correlations]
    np.testing.assert_allclose(lags, correlation ** np.arange(STEPS), atol=0.02)


def test_means_that_differ_from_step_to_step_are_not_taken_for_variance():
    generator = np.random.default_rng(2)
    gradients = lanes_of_ar1(generator, 2000, 0.0, 0.0)
    gradients += 3 * np.arange(STEPS, dtype=np.float32)[:, None, None]
    found = figures(moments_of(gradients, 20))
    assert found.individual.value == pytest.approx(SIZE / (LANES * STEPS), rel=0.02)
    assert found.covariance.value == pytest.approx(0, abs=0.02)
    # What a single batch knows takes the trend for noise of samples, though not of lanes.
    assert found.cluster_variance.value == pytest.approx(SIZE / (LANES * STEPS), rel=0.03)
    assert found.cluster_design_effect.value < 0.1


def test_identical_samples_in_a_lane_are_worth_one():
    generator = np.random.default_rng(3)
    one = generator.standard_normal((4000, 1, LANES, SIZE)).astype(np.float32)
    found = figures(moments_of(np.repeat(one, STEPS, axis=1), 20))
    assert found.design_effect.value == pytest.approx(STEPS, rel=0.02)
    assert found.effective_samples.value == pytest.approx(LANES, rel=0.02)


def test_lanes_that_are_alike_show_between_lanes_and_deceive_the_cluster_variance():
    generator = np.random.default_rng(4)
    one = generator.standard_normal((4000, STEPS, 1, SIZE)).astype(np.float32)
    found = figures(moments_of(np.repeat(one, LANES, axis=2), 20))
    assert found.variance.value == pytest.approx(SIZE / STEPS, rel=0.03)
    assert found.between_lanes.value == pytest.approx(SIZE / STEPS * (1 - 1 / LANES), rel=0.03)
    assert found.cluster_variance.value == pytest.approx(0, abs=1e-5)


def test_the_cluster_variance_expects_the_variance_of_many_batches():
    generator = np.random.default_rng(5)
    found = figures(moments_of(lanes_of_ar1(generator, 1000, 0.7, 1.0), 20))
    assert found.cluster_variance.low < found.variance.high
    assert found.variance.low < found.cluster_variance.high


def test_intervals_cover_the_truth():
    """Each printed interval, over 200 repetitions of an experiment with a known answer."""
    generator = np.random.default_rng(6)
    correlation, mean = 0.5, 0.3
    individual, covariance = ar1_variance(correlation)
    total, signal = individual + covariance, SIZE * mean**2
    samples = LANES * STEPS
    truth = {
        "variance": total,
        "individual": individual,
        "covariance": covariance,
        "between_lanes": 0.0,
        "cluster_variance": total,
        "design_effect": total / individual,
        "effective_samples": samples * individual / total,
        "signal": signal,
        "signal_to_noise": signal / total,
        "noise_scale": samples * total / signal,
        "cluster_noise_scale": samples * total / signal,
    }
    covered = dict.fromkeys([*truth, "lag 1", "lag 5"], 0)
    for _ in range(200):
        found = figures(moments_of(lanes_of_ar1(generator, 60, correlation, mean), 20))
        for name, value in truth.items():
            estimate = getattr(found, name)
            covered[name] += estimate.low <= value <= estimate.high
        for lag in (1, 5):
            estimate = found.lag_correlations[lag]
            covered[f"lag {lag}"] += estimate.low <= correlation**lag <= estimate.high
    shares = {name: count / 200 for name, count in covered.items()}
    assert all(0.9 <= share <= 0.99 for share in shares.values()), shares


def test_two_batch_noise_scale_is_unbiased_on_a_quadratic():
    """Loss ½ Σ h (θ − x)² with x normal: the gradient h (θ − x) has mean hθ and variance h²."""
    generator = np.random.default_rng(7)
    curvature, position = np.array([1.0, 2.0, 0.5]), np.array([0.4, -0.2, 1.0])
    signal, noise = ((curvature * position) ** 2).sum(), (curvature**2).sum()
    signals, noises = [], []
    for _ in range(20_000):
        gradients = curvature * (position - generator.standard_normal((8, 3)))
        small, big = gradients[:2].mean(axis=0), gradients.mean(axis=0)
        estimate = two_batch_estimates((small**2).sum(), (big**2).sum(), 2, 8)
        signals.append(estimate[0])
        noises.append(estimate[1])
    for values, truth in ((signals, signal), (noises, noise)):
        error = np.std(values) / np.sqrt(len(values))
        assert abs(np.mean(values) - truth) < 3 * error


def test_whole_lanes_as_the_small_batch_give_the_cluster_estimates():
    generator = np.random.default_rng(8)
    lane_means = generator.standard_normal((LANES, SIZE))
    mean = lane_means.mean(axis=0)
    cluster = ((lane_means - mean) ** 2).sum() / (LANES * (LANES - 1))
    samples = LANES * STEPS
    small_square = (lane_means**2).sum(axis=1).mean()
    signal, noise = two_batch_estimates(small_square, (mean**2).sum(), STEPS, samples)
    assert signal == pytest.approx((mean**2).sum() - cluster)
    assert noise == pytest.approx(samples * cluster)


@pytest.mark.parametrize("freedom", [5, 9, 19, 199])
def test_student_quantile(freedom):
    expected = scipy.stats.t.ppf(0.975, freedom)
    assert student_quantile(freedom) == pytest.approx(expected, rel=1e-3)


def test_jackknife_of_a_mean_is_students_interval():
    values = np.array([1.0, 2.0, 4.0, 8.0, 3.0, 5.0])
    left_out = (values.sum() - values) / (len(values) - 1)
    expected = mean_interval(values)
    found = jackknife(values.mean(), left_out)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_a_ratio_whose_denominator_may_be_zero_has_no_upper_end():
    from trimtab.lab.intervals import Estimate

    assert Estimate(2.0, 1.0, 4.0).inverse() == (0.5, 0.25, 1.0)
    assert Estimate(2.0, -1.0, 4.0).inverse() == (0.5, 0.25, float("inf"))
