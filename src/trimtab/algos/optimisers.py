"""How a gradient becomes a step: Adam and RMSProp, after the gradient's norm was clipped."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from trimtab.nets.flat import Flat

Number = Array | float


def shortened(gradient: Array, max_norm: Number | None) -> tuple[Array, Array]:
    """The gradient at a length of at most ``max_norm``, and its length before."""
    norm = jnp.linalg.norm(gradient)
    if max_norm is None:
        return gradient, norm
    return gradient * jnp.minimum(1.0, max_norm / jnp.maximum(norm, 1e-12)), norm


class Descent(NamedTuple):
    """How a direction becomes a step: θ ← θ − α ρ (direction + c θ), for every optimiser.

    ρ are multiples of the learning rate for each parameter. The decay c is that of Loshchilov &
    Hutter 2017: apart from the gradient, and of weights only.
    """

    learning_rate: Number
    max_norm: Number | None = None
    weight_decay: Number | None = None
    multiples: Array | None = None

    def step(self, parameters: Flat, direction: Array) -> Flat:
        if self.weight_decay is not None:
            weights = parameters.mask(lambda _, shape: len(shape) > 1)
            direction = direction + self.weight_decay * jnp.where(weights, parameters.vector, 0.0)
        if self.multiples is not None:
            direction = direction * self.multiples
        return Flat(parameters.vector - self.learning_rate * direction, parameters.structure)


class AdamState(NamedTuple):
    """Running means of the gradient and of its square, and how many were seen."""

    mean: Array
    square: Array
    count: Array


class Adam(NamedTuple):
    """Adam (Kingma & Ba 2014) after clipping the gradient's norm. Every number may be traced.

        m ← β₁ m + (1 − β₁) g,    v ← β₂ v + (1 − β₂) g²
        direction = (m / (1 − β₁ⁿ)) / (√(v / (1 − β₂ⁿ)) + ε)

    Written out, and not optax's: that one's ``β ** count`` is refused under strict dtype promotion
    when β is traced, and importing optax takes a tenth of a second.
    """

    descent: Descent
    beta1: Number
    beta2: Number
    epsilon: Number

    def init(self, parameters: Flat) -> AdamState:
        zeros = jnp.zeros_like(parameters.vector)
        return AdamState(zeros, zeros, jnp.int32(0))

    def step(
        self, parameters: Flat, state: AdamState, gradient: Array
    ) -> tuple[Flat, AdamState, Array]:
        """The next parameters and state, and the gradient's norm before clipping."""
        gradient, norm = shortened(gradient, self.descent.max_norm)
        mean = self.beta1 * state.mean + (1.0 - self.beta1) * gradient
        square = self.beta2 * state.square + (1.0 - self.beta2) * gradient**2
        count = state.count + 1
        seen = count.astype(jnp.float32)
        direction = (mean / (1.0 - self.beta1**seen)) / (
            jnp.sqrt(square / (1.0 - self.beta2**seen)) + self.epsilon
        )
        return self.descent.step(parameters, direction), AdamState(mean, square, count), norm


class RMSPropState(NamedTuple):
    """A running mean of the squared gradient."""

    square: Array


class RMSProp(NamedTuple):
    """RMSProp (Tieleman & Hinton 2012) after clipping the gradient's norm.

        v ← ρ v + (1 − ρ) g²,    direction = g / √(v + ε),    v₀ = 1

    With v₀ = 1 and ε under the root, as in the implementation that A2C was published with: the
    first steps are short, where v₀ = 0 would make them ten times too long.
    """

    descent: Descent
    decay: Number
    epsilon: Number

    def init(self, parameters: Flat) -> RMSPropState:
        return RMSPropState(jnp.ones_like(parameters.vector))

    def step(
        self, parameters: Flat, state: RMSPropState, gradient: Array
    ) -> tuple[Flat, RMSPropState, Array]:
        """The next parameters and state, and the gradient's norm before clipping."""
        gradient, norm = shortened(gradient, self.descent.max_norm)
        square = self.decay * state.square + (1.0 - self.decay) * gradient**2
        direction = gradient / jnp.sqrt(square + self.epsilon)
        return self.descent.step(parameters, direction), RMSPropState(square), norm
