"""What is worth watching in an update, beside its losses. See docs/metrics.md for what is healthy.

Everything here is a handful of reductions over arrays that the update has anyway.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import Array

from trimtab.algos.observations import LIMIT, normalised_parts
from trimtab.algos.onpolicy import Learner, Sample
from trimtab.algos.sgd import mean_of_made
from trimtab.nets.heads import largest_entropy
from trimtab.ops.across import ALONE, Across
from trimtab.spaces import Box, Discrete
from trimtab.types import Metrics


class Over(NamedTuple):
    """Means and extremes of what samples [T, N] have, over those that count; None: all do."""

    counted: Array | None = None
    across: Across = ALONE

    def mean(self, numbers: Array) -> Array:
        if self.counted is None:
            return self.across.mean(numbers.mean())
        return self.means(numbers).mean()

    def means(self, numbers: Array) -> Array:
        """Of each of the numbers [T, N, ...] of a sample."""
        if self.counted is None:
            return self.across.mean(numbers.mean(axis=(0, 1)))
        count = self.across.sum(self.counted.sum().astype(jnp.float32))
        total = self.across.sum(self._kept(numbers, 0.0).sum(axis=(0, 1)))
        return total / jnp.maximum(count, 1.0)

    def extremes(self, numbers: Array) -> tuple[Array, Array]:
        """The smallest and the largest; 0 where none counts."""
        if self.counted is None:
            return self.across.min(numbers.min()), self.across.max(numbers.max())
        smallest = self.across.min(self._kept(numbers, jnp.inf).min())
        largest = self.across.max(self._kept(numbers, -jnp.inf).max())
        known = smallest <= largest
        return jnp.where(known, smallest, 0.0), jnp.where(known, largest, 0.0)

    def _kept(self, numbers: Array, otherwise: float) -> Array:
        assert self.counted is not None
        counted = self.counted.reshape(*self.counted.shape, *[1] * (numbers.ndim - 2))
        return jnp.where(counted, numbers.astype(jnp.float32), otherwise)


ALL = Over()


def of_update(
    algorithm: Any,
    before: Learner,
    after: Learner,
    samples: Sample,
    values: Array,
    across: Across = ALONE,
) -> Metrics:
    """What an update saw and how far it moved, for every algorithm.

    ``values`` and the targets of ``samples`` are in the critic's units; what is reported is in
    those of the rewards.
    """
    restore = (lambda one: one) if before.targets is None else before.targets.restored
    over = Over(samples.counted, across)
    moved = after.parameters.vector - before.parameters.vector
    critic = {}
    if before.parameters.network().critic is not None:
        critic = {
            **spread("train/value", restore(values), over),
            "train/explained_variance": explained_variance(values, samples.target, over),
        }
    return {
        **spread("train/advantage", samples.advantage, over),
        **spread("train/return", restore(samples.target), over),
        **critic,
        "train/parameter_norm": jnp.linalg.norm(after.parameters.vector),
        "train/update_norm": jnp.linalg.norm(moved),
        "train/learning_rate": jnp.float32(algorithm.learning_rate),
        **of_actions(before, samples.action, over),
        **of_observations(before, samples, over),
    }


def of_entropy(algorithm: Any, learner: Learner, entropy: Array) -> Metrics:
    """The entropy, its share of the largest there is, and its coefficient where that changes."""
    metrics = {"train/entropy": entropy}
    largest = largest_entropy(learner.parameters.network().action_space)
    if largest is not None:
        metrics["train/relative_entropy"] = entropy / jnp.float32(largest)
    if algorithm.entropy_schedule != "constant" or algorithm.entropy_warmup is not None:
        metrics["train/entropy_coefficient"] = jnp.float32(algorithm.entropy_coefficient)
    return metrics


def of_gradients(algorithm: Any, norms: Array, made: Array | None = None) -> Metrics:
    """The mean length of gradients [epochs, minibatches], before and after they were clipped."""
    limit = algorithm.max_grad_norm
    clipped = norms if limit is None else jnp.minimum(norms, limit)
    return {
        "train/grad_norm": mean_of_made(norms, made),
        "train/grad_norm_clipped": mean_of_made(clipped, made),
    }


def spread(name: str, numbers: Array, over: Over) -> Metrics:
    """Mean, standard deviation, smallest and largest."""
    mean = over.mean(numbers)
    variance = over.mean((numbers - mean) ** 2)
    smallest, largest = over.extremes(numbers)
    return {
        f"{name}_mean": mean,
        f"{name}_std": jnp.sqrt(variance),
        f"{name}_min": smallest,
        f"{name}_max": largest,
    }


def of_actions(learner: Learner, actions: Array, over: Over) -> Metrics:
    """Discrete: the share of the action most often chosen. Box: where actions lie.

    ``action_outside`` is the share of components at or past the bounds of the policy's range
    [−1, 1]; of a component without bounds it says nothing.
    """
    network = learner.parameters.network()
    if isinstance(network.action_space, Discrete):
        each = jnp.arange(network.action_space.n, dtype=actions.dtype)
        return {"train/action_top_share": over.means(actions[..., None] == each).max()}
    if not isinstance(network.action_space, Box):
        return {}
    mean = over.mean(actions)
    summary = {
        "train/action_mean": mean,
        "train/action_std": jnp.sqrt(over.mean((actions - mean) ** 2)),
    }
    if network.action_space.bounded:
        summary["train/action_outside"] = over.mean(jnp.abs(actions) >= 1.0)
    if network.log_std is not None:
        summary["train/policy_std"] = jnp.exp(network.log_std).mean()
    return summary


def of_observations(learner: Learner, samples: Sample, over: Over) -> Metrics:
    """The extremes of the normaliser: its deviations, and the share of features that it clipped."""
    parts = normalised_parts(learner.observations, samples.obs)
    if not parts:
        return {}
    clipped = jnp.stack([over.mean(jnp.abs(part) >= LIMIT) for _, part in parts])
    deviations = jnp.concatenate([statistics.deviation.ravel() for statistics, _ in parts])
    return {
        "train/obs_clipped": clipped.mean(),
        "train/obs_std_min": deviations.min(),
        "train/obs_std_max": deviations.max(),
    }


def explained_variance(values: Array, targets: Array, over: Over = ALL) -> Array:
    """1 − Var(target − value) / Var(target): 1 is a perfect critic, 0 is one that knows nothing."""
    errors = targets - values
    error_variance = over.mean((errors - over.mean(errors)) ** 2)
    variance = over.mean((targets - over.mean(targets)) ** 2)
    return jnp.where(variance > 0, 1.0 - error_variance / jnp.maximum(variance, 1e-12), 0.0)
