"""Stochastic gradient descent over a rollout: epochs of shuffled minibatches, and Adam."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.nets.flat import Flat
from trimtab.ops.shuffle import permutation

Carry = TypeVar("Carry")
Samples = TypeVar("Samples")
Result = TypeVar("Result")


def minibatch_epochs(
    step: Callable[[Carry, Samples], tuple[Carry, Result]],
    carry: Carry,
    samples: Samples,
    key: Array,
    *,
    epochs: int,
    minibatches: int,
    arrange: Callable[[Samples], Samples] = lambda shuffled: shuffled,
) -> tuple[Carry, Result]:
    """Take ``step`` on every minibatch of every epoch; results are [epochs, minibatches, ...].

    ``samples`` has leaves [B, ...]. Each epoch shuffles them anew and cuts them into equal
    minibatches, so that an epoch uses each sample exactly once. ``arrange`` may then change the
    shuffled leaves [minibatches, B / minibatches, ...], to normalise within minibatches.
    """
    size = jax.tree.leaves(samples)[0].shape[0]

    def shuffled(order: Array) -> Samples:
        def take(leaf: Array) -> Array:
            return leaf[order].reshape(minibatches, size // minibatches, *leaf.shape[1:])

        return jax.tree.map(take, samples)

    def one_epoch(carry: Carry, epoch_key: Array) -> tuple[Carry, Result]:
        return lax.scan(step, carry, arrange(shuffled(permutation(epoch_key, size))))

    return lax.scan(one_epoch, carry, jax.random.split(key, epochs))


class AdamState(NamedTuple):
    """Running means of the gradient and of its square, and how many were seen."""

    mean: Array
    square: Array
    count: Array


class Adam(NamedTuple):
    """Adam (Kingma & Ba 2014) after clipping the gradient's norm. Every number may be traced.

        m ← β₁ m + (1 − β₁) g,    v ← β₂ v + (1 − β₂) g²
        θ ← θ − α · (m / (1 − β₁ⁿ)) / (√(v / (1 − β₂ⁿ)) + ε)

    Written out, and not optax's: that one's ``β ** count`` is refused under strict dtype promotion
    when β is traced, and importing optax takes a tenth of a second.
    """

    learning_rate: Array | float
    beta1: Array | float
    beta2: Array | float
    epsilon: Array | float
    max_norm: Array | float

    def init(self, parameters: Flat) -> AdamState:
        zeros = jnp.zeros_like(parameters.vector)
        return AdamState(zeros, zeros, jnp.int32(0))

    def step(
        self, parameters: Flat, state: AdamState, gradient: Array
    ) -> tuple[Flat, AdamState, Array]:
        """The next parameters and state, and the gradient's norm before clipping."""
        norm = jnp.linalg.norm(gradient)
        shortened = gradient * jnp.minimum(1.0, self.max_norm / jnp.maximum(norm, 1e-12))
        mean = self.beta1 * state.mean + (1.0 - self.beta1) * shortened
        square = self.beta2 * state.square + (1.0 - self.beta2) * shortened**2
        count = state.count + 1
        seen = count.astype(jnp.float32)
        direction = (mean / (1.0 - self.beta1**seen)) / (
            jnp.sqrt(square / (1.0 - self.beta2**seen)) + self.epsilon
        )
        vector = parameters.vector - self.learning_rate * direction
        return Flat(vector, parameters.structure), AdamState(mean, square, count), norm
