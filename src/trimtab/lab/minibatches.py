"""What minibatches and epochs do to a gradient: sub-sampling noise, and drift.

Sub-sampling: m of a rollout's B samples, drawn without putting back, have a mean gradient with

    Var(ḡ_m | rollout) = (1/m − 1/B) S²,    S² = Σ_i ‖g_i − ḡ‖² / (B − 1)

Drift: the samples were collected by the policy before the update. While minibatches move it, the
gradient of those that are left turns, ratios spread, and some are clipped.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.algos import onpolicy
from trimtab.lab.estimators import Moments
from trimtab.lab.intervals import Estimate, mean_interval
from trimtab.ops.across import ALONE
from trimtab.ops.shuffle import permutation


def sampling_variance(moments: Moments, size: int) -> Estimate:
    """The variance that a minibatch of ``size`` samples adds to that of the rollout."""
    samples = moments.samples
    # V_iid = S² / B
    spread = moments.independent_variance * samples
    return mean_interval(spread * (1 / size - 1 / samples))


class Drift(NamedTuple):
    """After each gradient step; [epochs × minibatches]."""

    cosine: Array  # of the gradient of what is left of the epoch: now, and before the update
    ratio_spread: Array  # standard deviation of the log-ratio over the rollout
    clip_fraction: Array


def drift(algorithm: Any, learner: Any, samples: Any, key: Array) -> Drift:
    """One update's gradient steps on samples [B, ...], watched.

    Steps normalise advantages as the algorithm does; what is watched does not. After the last
    minibatch of an epoch all samples are left for the next.
    """
    count = jax.tree.leaves(samples)[0].shape[0]
    minibatches = getattr(algorithm, "minibatches", 1)
    size = count // minibatches
    normalise = algorithm.advantage_normalization == "minibatch"
    stepped = samples
    if algorithm.advantage_normalization == "batch":
        stepped = onpolicy.shifted_and_scaled(samples, (0,), ALONE)
    optimiser = algorithm.optimiser_of(learner.parameters)
    before = learner.parameters.network()

    def policy_loss(network: Any, left: Array) -> Array:
        terms = jax.vmap(algorithm.terms, (None, 0))(network, samples)
        return (terms.policy * left).sum() / left.sum()

    def direction(network: Any, left: Array) -> Array:
        leaves = jax.tree.leaves(jax.grad(policy_loss)(network, left))
        return jnp.concatenate([leaf.ravel() for leaf in leaves])

    def one_step(carry: Any, now: tuple[Array, Array]) -> tuple[Any, Drift]:
        parameters, moments = carry
        order, place = now
        minibatch = jax.tree.map(
            lambda leaf: leaf[jax.lax.dynamic_slice_in_dim(order, place * size, size)], stepped
        )
        if normalise:
            minibatch = onpolicy.shifted_and_scaled(minibatch, (0,), ALONE)
        gradient, _ = algorithm.gradient(parameters, minibatch)
        parameters, moments, _ = optimiser.step(parameters, moments, gradient)
        network = parameters.network()
        rank = jnp.zeros(count, jnp.int32).at[order].set(jnp.arange(count, dtype=jnp.int32))
        done = ((place + 1) % minibatches) * size
        left = (rank >= done).astype(jnp.float32)
        then, here = direction(before, left), direction(network, left)
        length = jnp.linalg.norm(then) * jnp.linalg.norm(here)
        log_ratio = jax.vmap(lambda one: onpolicy.log_ratio(network.policy(one.obs), one))(samples)
        limit = getattr(algorithm, "clip_range", jnp.inf)
        clipped = jnp.abs(jnp.exp(log_ratio) - 1.0) > limit
        return (parameters, moments), Drift(
            (then @ here) / jnp.maximum(length, 1e-12), log_ratio.std(), clipped.mean()
        )

    places = jnp.arange(minibatches, dtype=jnp.int32)
    orders = jnp.stack([permutation(one, count) for one in jax.random.split(key, algorithm.epochs)])
    each = (
        jnp.repeat(orders, minibatches, axis=0),
        jnp.tile(places, algorithm.epochs),
    )
    return jax.lax.scan(one_step, (learner.parameters, learner.optimiser), each)[1]


def drift_intervals(found: Drift) -> dict[str, list[Estimate]]:
    """Means with intervals over batches, of leaves [batches, steps]."""
    return {
        name: [mean_interval(column) for column in np.asarray(values, np.float64).T]
        for name, values in found._asdict().items()
    }
