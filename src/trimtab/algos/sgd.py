"""Stochastic gradient descent over a rollout: epochs of shuffled minibatches, and gradients."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.nets.flat import Flat, joined
from trimtab.ops.shuffle import permutation

Carry = TypeVar("Carry")
Samples = TypeVar("Samples")
Terms = TypeVar("Terms")
Result = TypeVar("Result")

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
    """The mean of results [epochs, minibatches, ...] over the epochs made; None: all were."""
    if made is None:
        return results.mean(axis=(0, 1))
    of_epochs = results.mean(axis=1)
    made = made.reshape(-1, *[1] * (of_epochs.ndim - 1))
    return jnp.where(made, of_epochs, 0.0).sum(axis=0) / made.sum().astype(jnp.float32)


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
