"""Action distributions: what a policy's outputs mean.

Each distribution is of one action. ``sample`` takes noise, drawn ahead for a whole rollout in one
call, in place of a key: measured faster for few lanes, and the stream is then the same for every
collector.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.errors import UnsupportedSpaceError
from trimtab.spaces import Box, Discrete, EnvSpec, MultiBinary, MultiDiscrete, Space, mask_space

# The logit of an action that is not valid: its probability is exactly 0, and 0 · log 0 is 0.
IMPOSSIBLE = -1e9
# Standard deviations that a network chooses are kept between e⁻¹⁰ and e⁵.
LOG_STD_RANGE = (-10.0, 5.0)
# Squashed actions stay this far inside of ±1, where float32 can still tell them apart.
SQUASHED_MARGIN = 1e-6
# Gauss–Hermite quadrature: E[f(z)] of a standard normal z is Σ weight f(node).
_POINTS, _MASSES = np.polynomial.hermite.hermgauss(16)
NODES = (np.sqrt(2.0) * _POINTS).astype(np.float32)
WEIGHTS = (_MASSES / np.sqrt(np.pi)).astype(np.float32)


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


class MultiCategorical(NamedTuple):
    """Independent choices: a row of logits each, padded with impossible ones; [k, largest n]."""

    logits: Array

    @staticmethod
    def of(logits: Array, sizes: tuple[int, ...]) -> "MultiCategorical":
        """From the logits of all choices, one after another."""
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        columns = np.arange(max(sizes))
        inside = columns < np.asarray(sizes)[:, None]
        index = np.where(inside, starts[:, None] + columns, 0)
        return MultiCategorical(jnp.where(inside, logits[index], IMPOSSIBLE))

    def sample(self, noise: Array) -> Array:
        return jax.vmap(lambda row, one: Categorical(row).sample(one))(self.logits, noise)

    def mode(self) -> Array:
        return jnp.argmax(self.logits, axis=1).astype(jnp.int32)

    def log_prob(self, action: Array) -> Array:
        return jax.vmap(lambda row, one: Categorical(row).log_prob(one))(self.logits, action).sum()

    def entropy(self) -> Array:
        return jax.vmap(lambda row: Categorical(row).entropy())(self.logits).sum()


class Bernoulli(NamedTuple):
    """Independent bits: p(a_i = 1) = sigmoid(logits_i)."""

    logits: Array

    def sample(self, noise: Array) -> Array:
        return (noise < jax.nn.sigmoid(self.logits)).astype(jnp.int8)

    def mode(self) -> Array:
        return (self.logits > 0).astype(jnp.int8)

    def log_prob(self, action: Array) -> Array:
        """Σ a ℓ − log(1 + e^ℓ)"""
        return jnp.sum(action.astype(jnp.float32) * self.logits - jax.nn.softplus(self.logits))

    def entropy(self) -> Array:
        """Σ log(1 + e^ℓ) − ℓ sigmoid(ℓ)"""
        return jnp.sum(jax.nn.softplus(self.logits) - self.logits * jax.nn.sigmoid(self.logits))


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


class SquashedGaussian(NamedTuple):
    """a = tanh(u) for u of a normal distribution: every action is within (−1, 1)."""

    normal: DiagonalGaussian

    def sample(self, noise: Array) -> Array:
        return squashed(self.normal.sample(noise))

    def mode(self) -> Array:
        """The image of the normal's mean: its median, and where the policy acts without noise."""
        return squashed(self.normal.mean)

    def log_prob(self, action: Array) -> Array:
        """log p(u) − Σ log(1 − tanh² u),  u = artanh a"""
        before = jnp.arctanh(action)
        return self.normal.log_prob(before) - log_slope(before).sum()

    def entropy(self) -> Array:
        """H[u] + Σ E log(1 − tanh² u), the expectation by quadrature: it has no closed form."""
        nodes = NODES.reshape(-1, *[1] * self.normal.mean.ndim)
        slopes = log_slope(self.normal.mean + jnp.exp(self.normal.log_std) * nodes)
        return self.normal.entropy() + jnp.tensordot(WEIGHTS, slopes, axes=1).sum()


def squashed(before: Array) -> Array:
    return jnp.tanh(before).clip(-1.0 + SQUASHED_MARGIN, 1.0 - SQUASHED_MARGIN)


def log_slope(before: Array) -> Array:
    """log(1 − tanh² u) = 2 (log 2 − u − log(1 + e^(−2u))), which does not cancel."""
    return 2.0 * (math.log(2.0) - before - jax.nn.softplus(-2.0 * before))


Distribution = Categorical | MultiCategorical | Bernoulli | DiagonalGaussian | SquashedGaussian


def num_outputs(space: Space) -> int:
    """How many numbers a policy network gives for an action space; for a Box, the means."""
    if isinstance(space, Discrete | MultiBinary):
        return space.n
    if isinstance(space, MultiDiscrete):
        return sum(space.nvec)
    assert isinstance(space, Box)
    return space.size


def discrete_distribution(space: Space, outputs: Array, mask: Array | None) -> Distribution:
    """The distribution that outputs stand for; where a mask says 0, an action is impossible."""
    if isinstance(space, MultiBinary):
        return Bernoulli(outputs)
    if mask is not None:
        outputs = jnp.where(mask.reshape(outputs.shape) != 0, outputs, IMPOSSIBLE)
    if isinstance(space, MultiDiscrete):
        return MultiCategorical.of(outputs, space.nvec)
    return Categorical(outputs)


def continuous_distribution(mean: Array, log_std: Array, squashed: bool) -> Distribution:
    """The distribution of actions in a Box."""
    normal = DiagonalGaussian(mean, log_std)
    return SquashedGaussian(normal) if squashed else normal


def largest_entropy(space: Space) -> float | None:
    """The entropy of the most random policy; None where there is no largest, or it is 0."""
    if isinstance(space, Box):
        return None
    if isinstance(space, MultiBinary):
        return space.n * math.log(2.0)
    assert isinstance(space, Discrete | MultiDiscrete)
    sizes = space.nvec if isinstance(space, MultiDiscrete) else (space.n,)
    return math.fsum(math.log(n) for n in sizes) or None


def sampling_noise(space: Space, key: Array, num_steps: int) -> Array:
    """One lane's noise for a rollout: uniform [T, ...], or normal for a Box."""
    if isinstance(space, Box):
        return jax.random.normal(key, (num_steps, *space.shape))
    assert isinstance(space, Discrete | MultiDiscrete | MultiBinary)
    return jax.random.uniform(key, (num_steps, *space.shape))


def check_action_space(spec: EnvSpec) -> None:
    """Refuse action spaces that no distribution here covers, and masks that do not fit them."""
    space, mask = spec.action, mask_space(spec.observation)
    if not _covered(space):
        raise UnsupportedSpaceError(
            f"{spec.id}: the policy cannot act in {space}; it acts in Discrete, MultiDiscrete and "
            f"MultiBinary spaces and in Box spaces of float32. Wrap the environment so that it "
            f"takes one of these."
        )
    if mask is None:
        return
    if not isinstance(space, Discrete | MultiDiscrete):
        raise UnsupportedSpaceError(
            f"{spec.id} gives an action mask, which has a meaning for Discrete and MultiDiscrete "
            f"actions only; it takes {space}. Leave the mask out of its observations."
        )
    if not isinstance(mask, Box | MultiBinary) or math.prod(mask.shape) != num_outputs(space):
        raise UnsupportedSpaceError(
            f"{spec.id}: the action mask is {mask}; for {space} it must have {num_outputs(space)} "
            f"elements, one for each choice."
        )


def _covered(space: Space) -> bool:
    if isinstance(space, Discrete | MultiBinary):
        return space.n >= 1
    if isinstance(space, MultiDiscrete):
        return len(space.nvec) >= 1 and min(space.nvec) >= 1
    return isinstance(space, Box) and space.dtype == "float32" and space.size >= 1
