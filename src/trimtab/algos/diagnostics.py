"""What is worth watching in an update, beside its losses. See docs/metrics.md for what is healthy.

Everything here is a handful of reductions over arrays that the update has anyway.
"""

from collections.abc import Mapping
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
        return self.means(numbers[None])[0]

    def means(self, rows: Array) -> Array:
        """Of each of the rows [K, T, N, ...]."""
        axes = tuple(range(1, rows.ndim))
        if self.counted is None:
            return self.across.mean(rows.mean(axis=axes))
        each = rows.size // (rows.shape[0] * self.counted.size)  # numbers of a sample
        count = self.across.sum(self.counted.sum().astype(jnp.float32)) * jnp.float32(each)
        total = self.across.sum(self._kept(rows, 0.0).sum(axis=axes))
        return total / jnp.maximum(count, 1.0)

    def extremes(self, rows: Array) -> tuple[Array, Array]:
        """The smallest and the largest of each of the rows [K, T, N]; 0 where none counts."""
        low, high = rows, rows
        if self.counted is not None:
            low, high = self._kept(rows, jnp.inf), self._kept(rows, -jnp.inf)
        both = jnp.concatenate([-low.min(axis=(1, 2)), high.max(axis=(1, 2))])
        least, most = jnp.split(self.across.max(both), 2)
        known = -least <= most
        return jnp.where(known, -least, 0.0), jnp.where(known, most, 0.0)

    def _kept(self, rows: Array, otherwise: float) -> Array:
        assert self.counted is not None
        counted = self.counted.reshape(*self.counted.shape, *[1] * (rows.ndim - 3))
        return jnp.where(counted, rows.astype(jnp.float32), otherwise)


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
    seen = {"train/advantage": samples.advantage, "train/return": restore(samples.target)}
    if before.parameters.network().critic is not None:
        seen["train/value"] = restore(values)
    figures = spreads(seen, over)
    if "train/value" in seen:
        error = seen["train/return"] - seen["train/value"]
        unexplained, variance = variance_of(error, over), figures["train/return_std"] ** 2
        figures["train/explained_variance"] = explained(unexplained, variance)
    return {
        **figures,
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


def spreads(numbers: Mapping[str, Array], over: Over = ALL) -> Metrics:
    """Mean, standard deviation, smallest and largest of each.

    They are reduced together: many small reductions would be a percent of an update's time.
    """
    rows = jnp.stack(list(numbers.values()))
    mean = over.means(rows)
    variance = over.means((rows - mean[:, None, None]) ** 2)
    least, most = over.extremes(rows)
    figures = {"mean": mean, "std": jnp.sqrt(variance), "min": least, "max": most}
    return {
        f"{name}_{figure}": values[row]
        for row, name in enumerate(numbers)
        for figure, values in figures.items()
    }


def variance_of(numbers: Array, over: Over = ALL) -> Array:
    return over.mean((numbers - over.mean(numbers)) ** 2)


def of_actions(learner: Learner, actions: Array, over: Over) -> Metrics:
    """Discrete: the share of the action most often chosen. Box: where actions lie.

    ``action_outside`` is the share of components at or past the bounds of the policy's range
    [−1, 1]; of a component without bounds it says nothing.
    """
    network = learner.parameters.network()
    if isinstance(network.action_space, Discrete):
        each = jnp.arange(network.action_space.n, dtype=actions.dtype)
        return {"train/action_top_share": over.means(actions == each[:, None, None]).max()}
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


def explained(error_variance: Array, variance: Array) -> Array:
    """1 − Var(target − value) / Var(target): 1 is a perfect critic, 0 is one that knows nothing."""
    return jnp.where(variance > 0, 1.0 - error_variance / jnp.maximum(variance, 1e-12), 0.0)
