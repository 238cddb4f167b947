"""Minibatches, epochs that stop early, and optimisers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.sgd import (
    FEWEST_ROWS,
    MOST_ROWS,
    Adam,
    Descent,
    RMSProp,
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


def adam(**changes):
    return Adam(Descent(0.1, 1.0)._replace(**changes), beta1=0.9, beta2=0.99, epsilon=1e-8)


def test_adam_by_hand():
    parameters = Flat(jnp.array([1.0, 2.0]), None)
    state = adam().init(parameters)
    # ‖(3, 4)‖ = 5 is shortened to 1: g = (0.6, 0.8). The first corrected step is α·sign(g).
    parameters, state, norm = adam().step(parameters, state, jnp.array([3.0, 4.0]))
    assert norm == 5.0
    np.testing.assert_allclose(parameters.vector, [0.9, 1.9], rtol=1e-5)
    # Second step, g = (−0.3, 0) is short enough to stay as it is.
    mean = 0.9 * 0.1 * np.array([0.6, 0.8]) + 0.1 * np.array([-0.3, 0.0])
    square = 0.99 * 0.01 * np.array([0.36, 0.64]) + 0.01 * np.array([0.09, 0.0])
    expected = np.array([0.9, 1.9]) - 0.1 * (mean / (1 - 0.9**2)) / np.sqrt(square / (1 - 0.99**2))
    parameters, state, norm = adam().step(parameters, state, jnp.array([-0.3, 0.0]))
    np.testing.assert_allclose(parameters.vector, expected, rtol=1e-4)
    assert state.count == 2


def test_a_zero_gradient_moves_nothing():
    parameters = Flat(jnp.ones(3), None)
    after, _, norm = adam().step(parameters, adam().init(parameters), jnp.zeros(3))
    np.testing.assert_array_equal(after.vector, parameters.vector)
    assert norm == 0


def test_rmsprop_by_hand():
    rmsprop = RMSProp(Descent(0.5), decay=0.9, epsilon=0.01)
    parameters = Flat(jnp.array([1.0, 1.0]), None)
    state = rmsprop.init(parameters)
    # v = 0.9·1 + 0.1·g² = (4.5, 0.9); θ = 1 − ½ g / √(v + 0.01)
    parameters, state, norm = rmsprop.step(parameters, state, jnp.array([6.0, 0.0]))
    assert norm == 6.0
    np.testing.assert_allclose(state.square, [4.5, 0.9], rtol=1e-6)
    np.testing.assert_allclose(parameters.vector, [1 - 3 / np.sqrt(4.51), 1.0], rtol=1e-6)


def test_weights_decay_and_biases_do_not():
    network = {"bias": jnp.full(2, 3.0), "weight": jnp.full((2, 2), 3.0)}
    parameters = Flat.of(network)
    decaying = adam(weight_decay=0.5)
    after, _, _ = decaying.step(parameters, decaying.init(parameters), jnp.zeros(6))
    # θ ← θ − α c θ = 3 − 0.1·0.5·3
    np.testing.assert_allclose(after.network()["weight"], 2.85, rtol=1e-6)
    np.testing.assert_array_equal(after.network()["bias"], 3.0)


def test_multiples_of_the_learning_rate():
    parameters = Flat(jnp.zeros(2), None)
    scaled = adam(multiples=jnp.array([1.0, 10.0]))
    after, _, _ = scaled.step(parameters, scaled.init(parameters), jnp.array([0.3, 0.3]))
    np.testing.assert_allclose(after.vector, [-0.1, -1.0], rtol=1e-5)


def test_without_a_limit_gradients_keep_their_length():
    rmsprop = RMSProp(Descent(1.0, max_norm=None), decay=0.0, epsilon=1e-12)
    parameters = Flat(jnp.zeros(1), None)
    _, state, norm = rmsprop.step(parameters, rmsprop.init(parameters), jnp.array([1e3]))
    assert norm == 1e3
    np.testing.assert_allclose(state.square, [1e6])


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
