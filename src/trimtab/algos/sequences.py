"""Recurrent policies: hidden states along a rollout, and gradients through them.

A transition's hidden state is the one before its step. In ``prepare`` it is computed with the
parameters that acted, so a single transition can be looked at by itself. A gradient step takes
whole sequences, a lane's rollout each, and computes hidden states anew from the first: gradients
then flow through time as far back as the rollout reaches, and no further than an episode's start.
"""

from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.algos.sgd import mean_gradient
from trimtab.nets.actor_critic import ActorCritic
from trimtab.nets.flat import Flat
from trimtab.types import Observation

Tree = TypeVar("Tree")


def unrolled(
    network: ActorCritic, obs: Observation, first: Array, starts: Array
) -> tuple[Array, Array]:
    """The hidden states before and after each step of one lane; [T, units] both.

    ``first`` is the one before the first step; where ``starts`` says that an episode begins, a new
    one of zeros takes its place.
    """

    def forwards(hidden: Array, now: tuple[Observation, Array]) -> tuple[Array, Any]:
        seen, start = now
        before = jnp.where(start, 0.0, hidden)
        after = network.remember(seen, before)
        return after, (before, after)

    return lax.scan(forwards, first, (obs, starts))[1]


def starts_of(ended: Array) -> Array:
    """Where an episode begins after one that ended within the rollout; [T, ...]."""
    return jnp.concatenate([jnp.zeros_like(ended[:1]), ended[:-1]])


def units(tree: Tree, recurrent: bool) -> Tree:
    """What is shuffled and cut into minibatches: transitions [T·N, ...], or lanes [N, T, ...]."""
    if recurrent:
        return jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), tree)
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), tree)


def gradient_of(algorithm: Any, parameters: Flat, minibatch: Any, mean: Any) -> tuple[Array, Any]:
    """The flat gradient of the mean loss of transitions, or of sequences; and the mean terms."""

    def of_sequence(network: ActorCritic, sequence: Any) -> Any:
        hidden, _ = unrolled(network, sequence.obs, sequence.hidden[0], sequence.starts)
        return jax.vmap(algorithm.terms, in_axes=(None, 0))(
            network, sequence._replace(hidden=hidden)
        )

    in_sequences = minibatch.hidden is not None and minibatch.hidden.ndim == 3
    terms = of_sequence if in_sequences else algorithm.terms
    return mean_gradient(terms, algorithm.weighed, parameters, minibatch, mean)
