"""Action distributions: what a policy's outputs mean.

Each distribution is of one action. ``sample`` takes noise, drawn ahead for a whole rollout in one
call, in place of a key: measured faster for few lanes, and the stream is then the same for every
collector.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.errors import UnsupportedSpaceError
from trimtab.spaces import Box, Discrete, Space


class Categorical(NamedTuple):
    """p(a) = softmax(logits)_a over n actions."""

    logits: Array

    def sample(self, noise: Array) -> Array:
        """The inverse of the cumulative distribution at one uniform number."""
        cumulative = jnp.cumsum(jax.nn.softmax(self.logits))
        return jnp.sum(noise >= cumulative[:-1], dtype=jnp.int32)

    def mode(self) -> Array:
        return jnp.argmax(self.logits).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        # A product with a one-hot vector: its gradient needs no scatter, which is slow on CPUs.
        chosen = jax.nn.one_hot(action, self.logits.shape[0], dtype=self.logits.dtype)
        return jnp.sum(chosen * jax.nn.log_softmax(self.logits))

    def entropy(self) -> Array:
        log_probs = jax.nn.log_softmax(self.logits)
        return -jnp.sum(jnp.exp(log_probs) * log_probs)


class DiagonalGaussian(NamedTuple):
    """Independent normal components, with a mean and a log standard deviation each."""

    mean: Array
    log_std: Array

    def sample(self, noise: Array) -> Array:
        return self.mean + jnp.exp(self.log_std) * noise

    def mode(self) -> Array:
        return self.mean

    def log_prob(self, action: Array) -> Array:
        """−½ Σ [((a − μ)/σ)² + log 2π] − Σ log σ"""
        scaled = (action - self.mean) * jnp.exp(-self.log_std)
        return jnp.sum(-0.5 * (scaled**2 + jnp.log(2 * jnp.pi)) - self.log_std)

    def entropy(self) -> Array:
        """Σ [½ log(2πe) + log σ]"""
        return jnp.sum(0.5 * jnp.log(2 * jnp.pi * jnp.e) + self.log_std)


Distribution = Categorical | DiagonalGaussian


def num_outputs(space: Space) -> int:
    """How many numbers a policy network gives for an action space."""
    assert isinstance(space, Discrete | Box)
    return space.n if isinstance(space, Discrete) else space.size


def distribution(space: Space, outputs: Array, log_std: Array | None) -> Distribution:
    """The action distribution that a policy network's outputs stand for."""
    if isinstance(space, Discrete):
        return Categorical(outputs)
    assert log_std is not None
    assert isinstance(space, Box)
    return DiagonalGaussian(outputs.reshape(space.shape), log_std)


def largest_entropy(space: Space) -> float | None:
    """The entropy of the most random policy; None where there is no largest."""
    return math.log(space.n) if isinstance(space, Discrete) and space.n > 1 else None


def sampling_noise(space: Space, key: Array, num_steps: int) -> Array:
    """One lane's noise for a rollout: uniform [T] for Discrete, normal [T, ...] for Box."""
    if isinstance(space, Discrete):
        return jax.random.uniform(key, (num_steps,))
    assert isinstance(space, Box)
    return jax.random.normal(key, (num_steps, *space.shape))


def check_action_space(space: Space, env_id: str) -> None:
    """Refuse action spaces that no distribution here covers."""
    if isinstance(space, Discrete) and space.n >= 1:
        return
    if isinstance(space, Box) and space.dtype == "float32" and space.size >= 1:
        return
    raise UnsupportedSpaceError(
        f"{env_id}: the policy cannot act in {space}; it acts in Discrete spaces and in Box spaces "
        f"of float32. Wrap the environment so that it takes one of these."
    )
