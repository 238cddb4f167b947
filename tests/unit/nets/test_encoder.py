"""Observations of every space as vectors."""

import jax
import jax.numpy as jnp
import numpy as np

from trimtab.nets.encoder import Encoder, features, num_features
from trimtab.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete


def test_features_of_each_space():
    np.testing.assert_array_equal(features(Discrete(3), jnp.int32(1)), [0.0, 1.0, 0.0])
    np.testing.assert_array_equal(features(Box((2, 2)), jnp.eye(2)), [1.0, 0.0, 0.0, 1.0])
    np.testing.assert_array_equal(
        features(MultiDiscrete((2, 3)), jnp.array([1, 0])), [0.0, 1.0, 1.0, 0.0, 0.0]
    )
    np.testing.assert_array_equal(features(MultiBinary(2), jnp.array([1, 0], jnp.int8)), [1.0, 0.0])
    for space in (Discrete(3), Box((2, 2)), MultiDiscrete((2, 3)), MultiBinary(2)):
        example = jnp.zeros(space.shape, jnp.int32)
        assert features(space, example).shape == (num_features(space),)


def test_nested_dictionaries_are_side_by_side_in_their_order():
    space = Dict.of({"b": Box((2,)), "a": Dict.of({"c": Discrete(2), "d": Box(())})})
    obs = {"a": {"d": jnp.float32(9.0), "c": jnp.int32(1)}, "b": jnp.array([3.0, 4.0]), "more": 0}
    encoder = Encoder.make(jax.random.key(0), space)
    np.testing.assert_array_equal(encoder(obs), [3.0, 4.0, 0.0, 1.0, 9.0])
    assert encoder.num_features == 5


def test_images_in_dictionaries_have_convolutions_of_their_own():
    image = Box.of(0, 255, (5, 5, 1), "uint8")
    encoder = Encoder.make(jax.random.key(0), Dict.of({"x": image, "y": image, "z": Box((2,))}))
    zeros = jnp.zeros((5, 5, 1), jnp.uint8)
    made = encoder({"x": zeros + 200, "y": zeros, "z": jnp.ones(2)})
    each = (encoder.num_features - 2) // 2
    assert each == 3 * 3 * 16
    assert np.abs(made[:each]).max() > 0
    np.testing.assert_array_equal(made[each:], [*np.zeros(each), 1.0, 1.0])
