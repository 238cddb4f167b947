"""Minibatches and Adam."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.sgd import Adam, minibatch_epochs
from trimtab.nets.flat import Flat


@pytest.mark.parametrize(("size", "minibatches"), [(512, 4), (60, 5), (96, 1), (7, 7)])
def test_each_sample_is_used_exactly_once_in_every_epoch(size, minibatches):
    def step(carry, minibatch):
        return carry + 1, minibatch

    steps, used = minibatch_epochs(
        step, 0, jnp.arange(size), jax.random.key(0), epochs=3, minibatches=minibatches
    )
    assert steps == 3 * minibatches
    assert used.shape == (3, minibatches, size // minibatches)
    for epoch in np.asarray(used).reshape(3, -1):
        np.testing.assert_array_equal(np.sort(epoch), np.arange(size))
    if size > 7:
        assert not np.array_equal(used[0], used[1])


def test_leaves_stay_together_and_arrange_sees_whole_minibatches():
    samples = {"index": jnp.arange(32), "double": jnp.arange(32) * 2}

    def centre(shuffled):
        assert shuffled["index"].shape == (4, 8)
        return shuffled | {"sum": shuffled["index"].sum(axis=1)}

    def step(carry, minibatch):
        return carry, minibatch

    _, used = minibatch_epochs(
        step, None, samples, jax.random.key(0), epochs=1, minibatches=4, arrange=centre
    )
    np.testing.assert_array_equal(used["double"], 2 * used["index"])
    np.testing.assert_array_equal(used["sum"][0], used["index"][0].sum(axis=1))


def test_adam_by_hand():
    adam = Adam(learning_rate=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, max_norm=1.0)
    parameters = Flat(jnp.array([1.0, 2.0]), None)
    state = adam.init(parameters)
    # ‖(3, 4)‖ = 5 is shortened to 1: g = (0.6, 0.8). The first corrected step is α·sign(g).
    parameters, state, norm = adam.step(parameters, state, jnp.array([3.0, 4.0]))
    assert norm == 5.0
    np.testing.assert_allclose(parameters.vector, [0.9, 1.9], rtol=1e-5)
    # Second step, g = (−0.3, 0) is short enough to stay as it is.
    mean = 0.9 * 0.1 * np.array([0.6, 0.8]) + 0.1 * np.array([-0.3, 0.0])
    square = 0.99 * 0.01 * np.array([0.36, 0.64]) + 0.01 * np.array([0.09, 0.0])
    expected = np.array([0.9, 1.9]) - 0.1 * (mean / (1 - 0.9**2)) / np.sqrt(square / (1 - 0.99**2))
    parameters, state, norm = adam.step(parameters, state, jnp.array([-0.3, 0.0]))
    np.testing.assert_allclose(parameters.vector, expected, rtol=1e-4)
    assert state.count == 2


def test_a_zero_gradient_moves_nothing():
    adam = Adam(0.1, 0.9, 0.99, 1e-8, 0.5)
    parameters = Flat(jnp.ones(3), None)
    after, _, norm = adam.step(parameters, adam.init(parameters), jnp.zeros(3))
    np.testing.assert_array_equal(after.vector, parameters.vector)
    assert norm == 0
