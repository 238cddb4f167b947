"""What is worth watching in an update, beside its losses. See docs/metrics.md for what is healthy.

Everything here is a handful of reductions over arrays that the update has anyway.
"""

from collections.abc import Mapping
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
    seen = {"train/advantage": samples.advantage, "train/return": restore(samples.target)}
    if before.parameters.network().critic is not None:
        seen["train/value"] = restore(values)
    figures = spreads(seen, across)
    if "train/value" in seen:
        error = seen["train/return"] - seen["train/value"]
        unexplained, variance = variance_of(error, across), figures["train/return_std"] ** 2
        figures["train/explained_variance"] = explained(unexplained, variance)
    return {
        **figures,
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


def spreads(numbers: Mapping[str, Array], across: Across = ALONE) -> Metrics:
    """Mean, standard deviation, smallest and largest of each, over all devices.

    They are reduced together: many small reductions would be a percent of an update's time.
    """
    rows = jnp.stack([each.reshape(-1) for each in numbers.values()])
    mean = across.mean(rows.mean(axis=1))
    variance = across.mean(((rows - mean[:, None]) ** 2).mean(axis=1))
    extremes = across.max(jnp.concatenate([-rows.min(axis=1), rows.max(axis=1)]))
    least, most = jnp.split(extremes, 2)
    figures = {"mean": mean, "std": jnp.sqrt(variance), "min": -least, "max": most}
    return {
        f"{name}_{figure}": values[row]
        for row, name in enumerate(numbers)
        for figure, values in figures.items()
    }


def variance_of(numbers: Array, across: Across = ALONE) -> Array:
    """The variance over all devices."""
    mean = across.mean(numbers.mean())
    return across.mean(((numbers - mean) ** 2).mean())


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


def explained(error_variance: Array, variance: Array) -> Array:
    """1 − Var(target − value) / Var(target): 1 is a perfect critic, 0 is one that knows nothing."""
    return jnp.where(variance > 0, 1.0 - error_variance / jnp.maximum(variance, 1e-12), 0.0)
