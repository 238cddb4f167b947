"""An algorithm that measures the noise of its own gradient while it learns.

``Watched`` wraps a policy-gradient algorithm: it acts and learns as before, and every so many
updates it adds metrics of the rollout's gradient. Collectors, loops and devices need not know.
"""

import dataclasses
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import Array, lax

from trimtab.algos.gradients import HEADS, Gradient, head_loss
from trimtab.ops.across import ALONE, Across
from trimtab.types import Metrics, Rollout

# The variance of independent samples is taken from this many of them, in chunks that bound memory.
SAMPLES = 256
CHUNK = 16


@final
@dataclasses.dataclass(frozen=True)
class Watched:
    """``algorithm``, and figures of its gradient in every ``every``-th update, NaN in the others.

    Of each head: ``cluster_variance`` V_cl of the mean gradient ḡ, from the lanes' means;
    ``signal`` ‖ḡ‖² − V_cl, unbiased for |G|²; ``noise_scale`` B V_cl / |G|², NaN where the signal
    is lost in the noise; ``effective_samples`` B V_iid / V_cl.
    """

    algorithm: Any
    every: int

    def __getattr__(self, name: str) -> Any:
        # While unpickled or copied there is no algorithm yet: asking it would never end.
        if name.startswith("__") or "algorithm" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.algorithm, name)

    def update(
        self, learner: Any, rollout: Rollout, key: Array, across: Across = ALONE
    ) -> tuple[Any, Metrics]:
        """The algorithm's update, with the measurement beside it."""
        after, metrics = self.algorithm.update(learner, rollout, key, across)
        now = self.algorithm.at(learner.updates)

        def measured() -> Metrics:
            return gradient_noise(now, learner, rollout, across)

        shapes = jax.eval_shape(lambda: gradient_noise(now, learner, rollout, ALONE))

        def left_out() -> Metrics:
            return jax.tree.map(lambda one: jnp.full(one.shape, jnp.nan, one.dtype), shapes)

        due = learner.updates % jnp.int32(self.every) == 0
        return after, metrics | lax.cond(due, measured, left_out)


jax.tree_util.register_dataclass(Watched, data_fields=["algorithm"], meta_fields=["every"])


def gradient_noise(algorithm: Any, learner: Any, rollout: Rollout, across: Across) -> Metrics:
    """The figures of each head; of a head whose gradient is zero, NaN."""
    samples, _ = algorithm.prepare(learner, rollout, across)
    network = learner.parameters.network()
    one = jax.tree.map(lambda leaf: leaf[0, 0], samples)
    metrics: Metrics = {}
    for head in HEADS:
        gradient = Gradient.of(head_loss(algorithm, head), network, one)
        if not any(gradient.used):
            continue  # of an algorithm without a critic
        found = _noise(gradient, network, samples, across)
        metrics |= {f"lab/{head}/{name}": value for name, value in found.items()}
    return metrics


def _noise(gradient: Gradient, network: Any, samples: Any, across: Across) -> Metrics:
    steps, lanes = jax.tree.leaves(samples)[0].shape[:2]
    total_lanes = jnp.float32(lanes * across.devices)
    count, share = jnp.float32(steps * lanes * across.devices), jnp.float32(1.0)
    if samples.counted is not None:
        share = across.mean(samples.counted.mean())
        count = count * share

    def lane_mean(lane: Any) -> Array:
        return gradient.mean(network, jax.tree.map(lambda leaf: leaf[:, None], lane))

    means = jax.vmap(lane_mean, in_axes=1)(samples)
    mean = across.mean(means.mean(axis=0))
    spread = across.sum(((means - mean) ** 2).sum())
    cluster = spread / (total_lanes * (total_lanes - 1.0))
    square = (mean**2).sum()
    # Weights are 1 / share: what their squares are too large by is the share, over all rows.
    of_squares = share * _square_mean(gradient, network, samples, across)
    independent = (of_squares - square) / jnp.maximum(count - 1.0, 1.0)
    signal = square - cluster
    known = cluster > 0
    over = jnp.where(known, cluster, 1.0)
    return {
        "cluster_variance": cluster,
        "signal": signal,
        "noise_scale": jnp.where(signal > 0, count * cluster / jnp.maximum(signal, 1e-30), jnp.nan),
        "effective_samples": jnp.where(known, count * independent / over, jnp.nan),
    }


def _square_mean(gradient: Gradient, network: Any, samples: Any, across: Across) -> Array:
    """The mean of ‖g_i‖² over evenly chosen samples."""
    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
    size = jax.tree.leaves(rows)[0].shape[0]
    wanted = min(SAMPLES, size) // CHUNK * CHUNK or 1
    chosen = jnp.arange(wanted, dtype=jnp.int32) * jnp.int32(size // wanted)
    chunk = min(CHUNK, wanted)
    parts = jax.tree.map(lambda leaf: leaf[chosen].reshape(-1, chunk, 1, *leaf.shape[1:]), rows)

    def squares(part: Any) -> Array:
        return (gradient.per_sample(network, part) ** 2).sum(axis=2).mean()

    return across.mean(lax.map(squares, parts).mean())
