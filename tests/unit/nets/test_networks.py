"""Networks: initialisation, features, and the flat vector."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.nets.actor_critic import ActorCritic
from trimtab.nets.flat import Flat, joined
from trimtab.nets.networks import MLP, Dense, features, num_features
from trimtab.spaces import Box, Discrete, EnvSpec

SPEC = EnvSpec("Test-v0", Box((3,)), Box((2,), (-1.0,), (1.0,)))


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 64), (64, 64), (64, 2)])
def test_orthogonal_initialisation(inputs, outputs):
    gain = 2**0.5
    layer = Dense.orthogonal(jax.random.key(0), inputs, outputs, gain)
    weight = np.asarray(layer.weight)
    smaller = weight @ weight.T if inputs <= outputs else weight.T @ weight
    np.testing.assert_allclose(smaller, gain**2 * np.eye(min(inputs, outputs)), atol=1e-5)
    np.testing.assert_array_equal(layer.bias, 0.0)


def test_mlp_by_hand():
    first = Dense(jnp.array([[1.0, -1.0]]), jnp.array([0.5, 0.0]))
    second = Dense(jnp.array([[2.0], [3.0]]), jnp.array([1.0]))
    # relu([2.5, −2]) = [2.5, 0]; 2·2.5 + 1 = 6
    np.testing.assert_allclose(MLP((first, second), "relu")(jnp.array([2.0])), [6.0])


def test_features_of_each_space():
    np.testing.assert_array_equal(features(Discrete(3), jnp.int32(1)), [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(features(Box((2, 2)), jnp.eye(2)), [1.0, 0.0, 0.0, 1.0])
    assert num_features(Box((2, 2))) == 4


def network():
    return ActorCritic.make(jax.random.key(0), SPEC, (8, 8), "tanh", -0.5)


def test_flat_and_back_is_the_same_network():
    original = network()
    flat = Flat.of(original)
    back = flat.network()
    jax.tree.map(np.testing.assert_array_equal, original, back)
    np.testing.assert_array_equal(joined(back), flat.vector)
    assert back.policy(jnp.ones(3)).mode().shape == (2,)


def test_shapes_are_named_by_path():
    shapes = Flat.of(network()).shapes()
    assert shapes["actor/layers/0/weight"] == (3, 8)
    assert shapes["critic/layers/2/bias"] == (1,)
    assert shapes["log_std"] == (2,)
    assert sum(np.prod(shape) for shape in shapes.values()) == Flat.of(network()).vector.size


def test_the_first_policy_is_near_its_mean_and_the_critic_is_not_constant():
    made = network()
    observations = jax.random.normal(jax.random.key(1), (50, 3))
    means = jax.vmap(lambda obs: made.policy(obs).mode())(observations)
    values = jax.vmap(made.value)(observations)
    assert np.abs(means).max() < 0.1
    assert np.std(values) > 0.1
    np.testing.assert_allclose(made.policy(observations[0]).log_std, -0.5)
