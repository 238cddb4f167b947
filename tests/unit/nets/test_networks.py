"""Networks: initialisation, features, and the flat vector."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.nets import networks
from trimtab.nets.actor_critic import ActorCritic, Design
from trimtab.nets.flat import Flat, joined
from trimtab.nets.networks import GRU, MLP, Convolution, Dense, ImageEncoder, normals
from trimtab.ops.running import Running
from trimtab.spaces import Box, Dict, Discrete, EnvSpec

SPEC = EnvSpec("Test-v0", Box((3,)), Box((2,), (-1.0,), (1.0,)))


@pytest.mark.parametrize(("inputs", "outputs"), [(4, 64), (64, 64), (64, 2)])
def test_orthogonal_initialisation(inputs, outputs):
    gain = 2**0.5
    layer = Dense.orthogonal(jax.random.key(0), inputs, outputs, gain)
    weight = np.asarray(layer.weight)
    smaller = weight @ weight.T if inputs <= outputs else weight.T @ weight
    np.testing.assert_allclose(smaller, gain**2 * np.eye(min(inputs, outputs)), atol=1e-5)
    np.testing.assert_array_equal(layer.bias, 0.0)


@pytest.mark.parametrize("together", [True, False])
def test_numbers_drawn_together_are_those_drawn_alone(monkeypatch, together):
    if not together:
        monkeypatch.setattr(networks, "MOST_DRAWN_TOGETHER", 0)
    keys = jax.random.split(jax.random.key(0), 3)
    for key, found, shape in zip(
        keys, normals(keys, [12, 20, 3]), [(3, 4), (5, 4), (3, 1)], strict=True
    ):
        np.testing.assert_array_equal(found.reshape(shape), jax.random.normal(key, shape))


def test_mlp_by_hand():
    first = Dense(jnp.array([[1.0, -1.0]]), jnp.array([0.5, 0.0]))
    second = Dense(jnp.array([[2.0], [3.0]]), jnp.array([1.0]))
    # relu([2.5, −2]) = [2.5, 0]; 2·2.5 + 1 = 6
    np.testing.assert_allclose(MLP((first, second), "relu")(jnp.array([2.0])), [6.0])


def test_gru_by_hand():
    # One unit; the gates r, z, n see the input times (0, 0, 1) and the state times (0, 0, 2).
    gru = GRU(
        Dense(jnp.array([[0.0, 0.0, 1.0]]), jnp.zeros(3)),
        Dense(jnp.array([[0.0, 0.0, 2.0]]), jnp.zeros(3)),
    )
    # r = z = ½; n = tanh(0.4 + ½·2·0.6); h' = ½ n + ½ 0.6
    after = gru(jnp.array([0.4]), jnp.array([0.6]))
    np.testing.assert_allclose(after, [0.5 * np.tanh(1.0) + 0.3], rtol=1e-6)


def test_convolution_by_hand():
    weight = jnp.arange(4.0).reshape(2, 2, 1, 1)
    image = jnp.arange(9.0).reshape(3, 3, 1)
    # The upper left patch is [[0, 1], [3, 4]]: 0·0 + 1·1 + 2·3 + 3·4 = 19, and 6 for each column.
    made = Convolution(weight, jnp.ones(1), 1)(image)
    np.testing.assert_array_equal(made[..., 0], [[20.0, 26.0], [38.0, 44.0]])


@pytest.mark.parametrize(
    ("shape", "size"),
    [((84, 84, 4), 7 * 7 * 64), ((4, 84, 84), 7 * 7 * 64), ((10, 10, 6), 8 * 8 * 16)],
)
def test_images_of_each_size_and_layout(shape, size):
    encoder = ImageEncoder.make(jax.random.key(0), shape)
    assert encoder.num_features(shape) == size
    bytes_ = jax.random.randint(jax.random.key(1), shape, 0, 256).astype(jnp.uint8)
    made = encoder(bytes_)
    assert made.shape == (size,)
    # A byte of 255 is a float of 1.
    np.testing.assert_allclose(made, encoder(bytes_.astype(jnp.float32) / 255), rtol=1e-5)
    if shape[0] == 4:
        np.testing.assert_array_equal(made, encoder(jnp.moveaxis(bytes_, 0, -1)))


def network(**design):
    chosen = {"hidden_sizes": (8, 8), "initial_log_std": -0.5} | design
    return ActorCritic.make(jax.random.key(0), SPEC, Design(**chosen))


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


def test_rescaling_keeps_what_the_critic_means():
    made = network()
    items = jnp.array([3.0, 5.0, 13.0])
    old = Running.zeros(()).merge(items[:2])  # mean 4, deviation 1
    new = old.merge(items[2:])  # mean 7, deviation √(56/3)
    obs = jnp.array([0.3, -1.0, 2.0])
    before = 4.0 + 1.0 * made.value(obs)
    after = 7.0 + np.sqrt(56 / 3) * made.rescaled(old, new).value(obs)
    np.testing.assert_allclose(after, before, rtol=1e-5)


def test_a_shared_trunk_is_one_and_a_separate_one_is_two():
    shared, separate = network(shared=True), network()
    assert "trunk/layers/0/weight" in Flat.of(shared).shapes()
    obs = jnp.ones(3)

    def moved(made):
        gradient = jax.grad(lambda net: net.value(obs))(made)
        return float(jnp.abs(joined((gradient.actor, gradient.trunk))).max())

    assert moved(separate) == 0.0
    assert moved(shared) > 0.0


def test_a_deviation_that_depends_on_the_observation_begins_where_it_was_asked_to():
    made = network(state_dependent_std=True)
    first, second = (made.policy(jnp.array(obs)).log_std for obs in ([1.0, 0, 0], [0, 5.0, 0]))
    np.testing.assert_allclose(first, -0.5, atol=0.05)
    assert not np.array_equal(first, second)
    assert made.log_std is None


def test_actor_and_critic_see_the_keys_that_are_theirs():
    space = Dict.of({"seen": Box((2,)), "hidden": Box((3,)), "both": Discrete(2)})
    spec = EnvSpec("Test-v0", space, Discrete(2))
    design = Design((8,), actor_keys=("seen", "both"), critic_keys=("hidden", "both"))
    made = ActorCritic.make(jax.random.key(0), spec, design)
    obs = {"seen": jnp.ones(2), "hidden": jnp.ones(3), "both": jnp.int32(1)}

    def seen_by(function):
        floats = {key: obs[key] for key in ("seen", "hidden")}
        gradient = jax.grad(lambda part: function(obs | part))(floats)
        return {key for key, part in gradient.items() if np.abs(part).max() > 0}

    assert seen_by(lambda o: made.policy(o).logits[0]) == {"seen"}
    assert seen_by(made.value) == {"hidden"}
