"""Adam and RMSProp by hand."""

import jax.numpy as jnp
import numpy as np

from trimtab.algos.optimisers import Adam, Descent, RMSProp
from trimtab.nets.flat import Flat


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
