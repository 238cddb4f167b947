"""What is worth watching in an update, beside its losses. See docs/metrics.md for what is healthy.

Everything here is a handful of reductions over arrays that the update has anyway.
"""

from typing import Any

import jax.numpy as jnp
from jax import Array

from trimtab.algos.observations import LIMIT, normalised_parts
from trimtab.algos.onpolicy import Learner, Sample
from trimtab.algos.sgd import mean_of_made
from trimtab.nets.heads import largest_entropy
from trimtab.ops.across import ALONE, Across
from trimtab.spaces import Box, Discrete
from trimtab.types import Metrics


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
    moved = after.parameters.vector - before.parameters.vector
    critic = {}
    if before.parameters.network().critic is not None:
        critic = {
            **spread("train/value", restore(values), across),
            "train/explained_variance": explained_variance(values, samples.target, across),
        }
    return {
        **spread("train/advantage", samples.advantage, across),
        **spread("train/return", restore(samples.target), across),
        **critic,
        "train/parameter_norm": jnp.linalg.norm(after.parameters.vector),
        "train/update_norm": jnp.linalg.norm(moved),
        "train/learning_rate": jnp.float32(algorithm.learning_rate),
        **of_actions(before, samples.action, across),
        **of_observations(before, samples, across),
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


def spread(name: str, numbers: Array, across: Across = ALONE) -> Metrics:
    """Mean, standard deviation, smallest and largest over all devices."""
    mean = across.mean(numbers.mean())
    variance = across.mean(((numbers - mean) ** 2).mean())
    return {
        f"{name}_mean": mean,
        f"{name}_std": jnp.sqrt(variance),
        f"{name}_min": across.min(numbers.min()),
        f"{name}_max": across.max(numbers.max()),
    }


def of_actions(learner: Learner, actions: Array, across: Across = ALONE) -> Metrics:
    """Discrete: the share of the action most often chosen. Box: where actions lie.

    ``action_outside`` is the share of components at or past the bounds of the policy's range
    [−1, 1]; of a component without bounds it says nothing.
    """
    network = learner.parameters.network()
    if isinstance(network.action_space, Discrete):
        each = jnp.arange(network.action_space.n, dtype=actions.dtype)
        shares = (actions.reshape(-1, 1) == each).mean(axis=0)
        return {"train/action_top_share": across.mean(shares).max()}
    if not isinstance(network.action_space, Box):
        return {}
    mean = across.mean(actions.mean())
    summary = {
        "train/action_mean": mean,
        "train/action_std": jnp.sqrt(across.mean(((actions - mean) ** 2).mean())),
    }
    if network.action_space.bounded:
        outside = (jnp.abs(actions) >= 1.0).mean()
        summary["train/action_outside"] = across.mean(outside)
    if network.log_std is not None:
        summary["train/policy_std"] = jnp.exp(network.log_std).mean()
    return summary


def of_observations(learner: Learner, samples: Sample, across: Across = ALONE) -> Metrics:
    """The extremes of the normaliser: its deviations, and the share of features that it clipped."""
    parts = normalised_parts(learner.observations, samples.obs)
    if not parts:
        return {}
    clipped = jnp.stack([(jnp.abs(part) >= LIMIT).mean() for _, part in parts])
    deviations = jnp.concatenate([statistics.deviation.ravel() for statistics, _ in parts])
    return {
        "train/obs_clipped": across.mean(clipped.mean()),
        "train/obs_std_min": deviations.min(),
        "train/obs_std_max": deviations.max(),
    }


def explained_variance(values: Array, targets: Array, across: Across = ALONE) -> Array:
    """1 − Var(target − value) / Var(target): 1 is a perfect critic, 0 is one that knows nothing."""
    errors = targets - values
    means = across.mean(jnp.stack([errors.mean(), targets.mean()]))
    squares = jnp.stack([((errors - means[0]) ** 2).mean(), ((targets - means[1]) ** 2).mean()])
    error_variance, variance = across.mean(squares)
    return jnp.where(variance > 0, 1.0 - error_variance / jnp.maximum(variance, 1e-12), 0.0)
