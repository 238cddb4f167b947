"""Minibatches, epochs that stop early, and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.sgd import (
    FEWEST_ROWS,
    MOST_ROWS,
    epoch,
    mean_gradient,
    mean_of_made,
    part_size,
    scan_until,
)
from trimtab.nets.flat import Flat


@pytest.mark.parametrize(("size", "minibatches"), [(512, 4), (60, 5), (96, 1), (7, 7)])
def test_each_sample_is_used_exactly_once_in_an_epoch(size, minibatches):
    def step(carry, minibatch):
        return carry + 1, minibatch

    def use(key):
        return epoch(step, 0, jnp.arange(size), key, minibatches=minibatches)

    steps, used = use(jax.random.key(0))
    assert steps == minibatches
    assert used.shape == (minibatches, size // minibatches)
    np.testing.assert_array_equal(np.sort(np.asarray(used).ravel()), np.arange(size))
    if size > 7:
        assert not np.array_equal(used, use(jax.random.key(1))[1])


def test_leaves_stay_together_and_arrange_sees_whole_minibatches():
    samples = {"index": jnp.arange(32), "double": jnp.arange(32) * 2}

    def centre(shuffled):
        assert shuffled["index"].shape == (4, 8)
        return shuffled | {"sum": shuffled["index"].sum(axis=1)}

    def step(carry, minibatch):
        return carry, minibatch

    _, used = epoch(step, None, samples, jax.random.key(0), minibatches=4, arrange=centre)
    np.testing.assert_array_equal(used["double"], 2 * used["index"])
    np.testing.assert_array_equal(used["sum"][0], used["index"][0].sum())


def test_a_scan_stops_once_a_result_is_enough():
    def body(total, key):
        return total + 1.0, total + 1.0

    keys = jax.random.split(jax.random.key(0), 5)
    total, results, made = scan_until(body, jnp.float32(0), keys, lambda result: result >= 2.0)
    assert total == 2.0
    np.testing.assert_array_equal(results, [1.0, 2.0, 0.0, 0.0, 0.0])
    np.testing.assert_array_equal(made, [True, True, False, False, False])
    assert mean_of_made(results[:, None], made) == 1.5


@pytest.mark.parametrize(
    ("size", "part"), [(4096, 256), (600, 200), (257, 257), (512, 256), (9, 9)]
)
def test_parts_of_a_minibatch_divide_it_and_fit_a_cache(size, part):
    assert part_size(size) == part
    assert size % part == 0
    assert part == size or FEWEST_ROWS <= part <= MOST_ROWS


@pytest.mark.parametrize("size", [1024, 251])
def test_the_gradient_of_a_minibatch_is_that_of_least_squares(size):
    """Loss ½ (xᵀw − y)²: the mean gradient is Xᵀ(Xw − y) / n, in parts or not."""
    rng = np.random.default_rng(0)
    x, y, w = rng.normal(size=(size, 3)), rng.normal(size=size), rng.normal(size=3)

    def terms(network, row):
        error = row[0] @ network["w"] - row[1]
        return {"half_square": 0.5 * error**2, "largest": jnp.abs(error)}

    def mean(each):
        return {"half_square": each["half_square"].mean(), "largest": each["largest"].max()}

    gradient, means = mean_gradient(
        terms,
        lambda terms: terms["half_square"],
        Flat.of({"w": jnp.asarray(w, jnp.float32)}),
        (jnp.asarray(x, jnp.float32), jnp.asarray(y, jnp.float32)),
        mean,
    )
    error = x @ w - y
    np.testing.assert_allclose(gradient, x.T @ error / size, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(means["half_square"], 0.5 * (error**2).mean(), rtol=1e-4)
    np.testing.assert_allclose(means["largest"], np.abs(error).max(), rtol=1e-4)
