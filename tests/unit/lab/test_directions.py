"""Cosines and sketches against numpy."""

import jax
import jax.numpy as jnp
import numpy as np

from trimtab.lab import directions
from trimtab.lab.moments import batch_moments
from trimtab.lab.sketch import Sketch


def cosine(left, right):
    return left @ right / np.linalg.norm(left) / np.linalg.norm(right)


def test_leave_one_out_leaves_itself_out():
    gradients = np.random.default_rng(0).normal(size=(5, 3, 4)).astype(np.float32)
    found = directions.leave_one_out(jnp.asarray(gradients))
    rest = np.delete(gradients[:, 1], 2, axis=0).mean(axis=0)
    np.testing.assert_allclose(found[2, 1], cosine(gradients[2, 1], rest), rtol=1e-5)


def test_pure_noise_is_at_its_null_and_not_above_zero():
    gradients = jax.random.normal(jax.random.key(0), (16, 64, 50))
    found = directions.lane_cosines(gradients, jax.random.key(1))
    assert abs(float(found.mean)) < 0.02
    assert abs(float(found.null_mean)) < 0.02
    assert found.histogram.sum() == found.null_histogram.sum() == 16 * 64


def test_lanes_of_their_own_direction_stand_out_from_the_null():
    lanes = jax.random.normal(jax.random.key(0), (1, 64, 50))
    gradients = lanes + 0.5 * jax.random.normal(jax.random.key(1), (16, 64, 50))
    found = directions.lane_cosines(gradients, jax.random.key(2))
    assert float(found.mean) > 0.8
    assert abs(float(found.null_mean)) < 0.1


def test_gradients_that_are_zero_have_no_direction():
    found = directions.lane_cosines(jnp.zeros((4, 2, 3)), jax.random.key(0))
    assert np.isnan(found.mean)
    assert found.histogram.sum() == 0


def test_cosines_with_batches_and_truth():
    generator = np.random.default_rng(1)
    first, means = generator.normal(size=(6, 4)), generator.normal(size=(3, 4))
    found = directions.first_batch_cosines(first, means)
    np.testing.assert_allclose(found[2, 1], cosine(first[2], means[1]))
    np.testing.assert_allclose(found[2, 0], cosine(first[2], np.delete(first, 2, 0).sum(0)))
    pairs = directions.pairwise_cosines(means)
    np.testing.assert_allclose(pairs[0], cosine(means[0], means[1]))
    assert len(pairs) == 3
    many = generator.normal(0.4, 1.0, size=(40, 4))
    estimate = directions.mean_of_pairs(many, 20)
    np.testing.assert_allclose(estimate.value, directions.pairwise_cosines(many).mean())
    assert estimate.low < estimate.value < estimate.high
    np.testing.assert_allclose(
        directions.cosines_with(means, first[0])[1], cosine(means[1], first[0])
    )


def test_sketches_keep_inner_products_on_the_average_and_within_their_error():
    generator = np.random.default_rng(2)
    left, right = generator.normal(size=(2, 1000)).astype(np.float32)
    right += 0.3 * left
    keys = jax.random.split(jax.random.key(0), 400)
    products = jax.vmap(lambda key: Sketch(key, 251)(left) @ Sketch(key, 251)(right))(keys)
    relative = np.asarray(products - left @ right) / np.linalg.norm(left) / np.linalg.norm(right)
    assert abs(relative.mean()) < 3 * relative.std() / 20
    assert relative.std() < Sketch(keys[0], 251).error


def test_what_follows_from_lengths_alone_is_exact_though_gradients_are_sketched():
    gradients = jax.random.normal(jax.random.key(0), (3, 4, 5000))
    sketches = Sketch(jax.random.key(1), 251)(gradients)
    exact, found = batch_moments(gradients), batch_moments(sketches, (gradients**2).sum(axis=2))
    np.testing.assert_allclose(found.lane_products[0], exact.lane_products[0], rtol=1e-4)
    np.testing.assert_allclose(found.independent_variance, exact.independent_variance, rtol=0.05)
    assert found.lane_products[1] != exact.lane_products[1]
