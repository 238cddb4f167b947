"""Stochastic gradient descent over a rollout: epochs of shuffled minibatches, Adam and RMSProp."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.nets.flat import Flat, joined
from trimtab.ops.shuffle import permutation

Carry = TypeVar("Carry")
Samples = TypeVar("Samples")
Terms = TypeVar("Terms")
Result = TypeVar("Result")
Number = Array | float

# Of a part of a minibatch, where it is differentiated in parts.
MOST_ROWS, FEWEST_ROWS = 256, 64


def epoch(
    step: Callable[[Carry, Samples], tuple[Carry, Result]],
    carry: Carry,
    samples: Samples,
    key: Array,
    *,
    minibatches: int,
    arrange: Callable[[Samples], Samples] = lambda shuffled: shuffled,
) -> tuple[Carry, Result]:
    """Take ``step`` on every minibatch of one epoch; results are [minibatches, ...].

    ``samples`` has leaves [B, ...]. They are shuffled and cut into equal minibatches, so that an
    epoch uses each sample exactly once. ``arrange`` may then change the shuffled leaves
    [minibatches, B / minibatches, ...], to normalise within minibatches.
    """
    size = jax.tree.leaves(samples)[0].shape[0]
    order = permutation(key, size)

    def take(leaf: Array) -> Array:
        return leaf[order].reshape(minibatches, size // minibatches, *leaf.shape[1:])

    return lax.scan(step, carry, arrange(jax.tree.map(take, samples)))


def scan_until(
    body: Callable[[Carry, Array], tuple[Carry, Result]],
    carry: Carry,
    keys: Array,
    enough: Callable[[Result], Array],
) -> tuple[Carry, Result, Array]:
    """``lax.scan`` over keys, which does nothing more once ``enough`` holds of a result.

    Also which steps were made, [keys]; the results of the others are zeros.
    """
    shapes = jax.eval_shape(body, carry, keys[0])[1]

    def skip(carry: Carry, _: Array) -> tuple[Carry, Result]:
        return carry, jax.tree.map(lambda one: jnp.zeros(one.shape, one.dtype), shapes)

    def guarded(state: tuple[Carry, Array], key: Array) -> tuple[tuple[Carry, Array], Any]:
        carry, going = state
        carry, result = lax.cond(going, body, skip, carry, key)
        return (carry, going & ~enough(result)), (result, going)

    (carry, _), (results, made) = lax.scan(guarded, (carry, jnp.bool_(True)), keys)
    return carry, results, made


def mean_of_made(results: Array, made: Array | None) -> Array:
    """The mean of results [epochs, minibatches] over the epochs that were made; None: all were."""
    if made is None:
        return results.mean()
    return jnp.where(made, results.mean(axis=1), 0.0).sum() / made.sum().astype(jnp.float32)


def mean_gradient(
    terms: Callable[[Any, Samples], Terms],
    weighed: Callable[[Terms], Array],
    parameters: Flat,
    minibatch: Samples,
    mean: Callable[[Terms], Terms],
) -> tuple[Array, Terms]:
    """The flat gradient of a minibatch's mean loss, and the means of its terms.

    ``mean`` gives the means over rows, and of means over equal parts those of the whole.
    """

    def of_rows(rows: Samples) -> tuple[Array, Terms]:
        def mean_loss(network: Any) -> tuple[Array, Terms]:
            means = mean(jax.vmap(terms, in_axes=(None, 0))(network, rows))
            return weighed(means), means

        # By array and then joined: differentiating through the flat vector itself would pad
        # and add a whole vector for each array of the network.
        gradient, means = jax.grad(mean_loss, has_aux=True)(parameters.network())
        return joined(gradient), means

    size = jax.tree.leaves(minibatch)[0].shape[0]
    part = part_size(size)
    if part == size:
        return of_rows(minibatch)

    def add(total: Array, rows: Samples) -> tuple[Array, Terms]:
        gradient, means = of_rows(rows)
        return total + gradient, means

    parts = jax.tree.map(lambda leaf: leaf.reshape(-1, part, *leaf.shape[1:]), minibatch)
    total, means = lax.scan(add, jnp.zeros_like(parameters.vector), parts)
    return total / jnp.float32(size // part), mean(means)


def part_size(size: int) -> int:
    """How many rows of a minibatch to differentiate at once.

    On a CPU what a few hundred rows leave in the layers of a network stays in the core's cache: a
    64×64 actor and critic take four fifths of the time (bench/parts.py). Other devices want it all.
    """
    if jax.default_backend() != "cpu":
        return size
    part = next(d for d in range(min(size, MOST_ROWS), 0, -1) if size % d == 0)
    return part if part >= FEWEST_ROWS else size


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
