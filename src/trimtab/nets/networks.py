"""Networks, written for one observation; callers ``vmap``."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.nets.module import module, static
from trimtab.spaces import Box, Discrete, Space

ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "elu": jax.nn.elu,
    "silu": jax.nn.silu,
}


@module
class Dense:
    """``x W + b``, with W stored [in, out].

    ``eqx.nn.Linear`` stores [out, in]. For the narrow batches of a rollout on a CPU, and for the
    gradient, the layout used here is 1.2 to 2 times as fast (bench/layers.py).
    """

    weight: Array
    bias: Array

    @staticmethod
    def orthogonal(key: Array, inputs: int, outputs: int, gain: float) -> "Dense":
        """Orthogonal weights scaled by ``gain`` (Saxe et al. 2013), zero bias."""
        return Dense(gain * random_orthogonal(key, inputs, outputs), jnp.zeros(outputs))

    def __call__(self, x: Array) -> Array:
        return x @ self.weight + self.bias


def random_orthogonal(key: Array, rows: int, columns: int) -> Array:
    """A uniformly random matrix with orthonormal columns, or rows if there are fewer of those.

    The polar factor of a normal matrix, by Newton's iteration X ← X (3 − XᵀX) / 2, which takes
    every singular value in (0, √3) to 1. Matrix products only: a QR decomposition would load
    scipy's linear algebra, and several of them mapped over seeds may wait for each other for ever.
    """
    normal = jax.random.normal(key, (max(rows, columns), min(rows, columns)))

    def newton(_: Array, x: Array) -> Array:
        return 1.5 * x - 0.5 * x @ (x.T @ x)

    # Singular values grow by half in each step until they are near 1: sixty steps lift 1e-9.
    tall = jax.lax.fori_loop(0, 60, newton, normal / jnp.linalg.norm(normal))
    return tall if rows >= columns else tall.T


@module
class MLP:
    """Dense layers with a nonlinearity between them."""

    layers: tuple[Dense, ...]
    activation: str = static()

    @staticmethod
    def make(key: Array, sizes: Sequence[int], activation: str, last_gain: float) -> "MLP":
        """Gain √2 for hidden layers, ``last_gain`` for the last."""
        keys = jax.random.split(key, len(sizes) - 1)
        gains = [2**0.5] * (len(sizes) - 2) + [last_gain]
        layers = [
            Dense.orthogonal(k, i, o, g)
            for k, i, o, g in zip(keys, sizes[:-1], sizes[1:], gains, strict=True)
        ]
        return MLP(tuple(layers), activation)

    def __call__(self, x: Array) -> Array:
        for layer in self.layers[:-1]:
            x = ACTIVATIONS[self.activation](layer(x))
        return self.layers[-1](x)


def num_features(space: Space) -> int:
    """Length of the vector that ``features`` makes."""
    assert isinstance(space, Discrete | Box)
    return space.n if isinstance(space, Discrete) else space.size


def features(space: Space, obs: Array) -> Array:
    """One observation as a float vector: Discrete becomes one-hot, Box is flattened."""
    if isinstance(space, Discrete):
        return jax.nn.one_hot(obs, space.n, dtype=jnp.float32)
    return obs.astype(jnp.float32).reshape(-1)
