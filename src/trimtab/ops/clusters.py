"""The variance of a batch's mean gradient, from that one batch.

Samples of one lane follow each other in time and may be alike; lanes are independent. So the
lanes' means say how the batch's mean varies, and comparing that with what independent samples
would give says how many independent samples the batch is worth.
"""

import jax.numpy as jnp
from jax import Array


def cluster_variance(lane_means: Array) -> Array:
    """V_cl = Σ_n ‖ḡ_n − ḡ‖² / (N (N − 1)) for means [N, P]: unbiased for independent lanes."""
    lanes = lane_means.shape[0]
    spread = ((lane_means - lane_means.mean(axis=0)) ** 2).sum()
    return spread / jnp.float32(lanes * (lanes - 1))


def independent_variance(square_mean: Array, mean_square: Array, samples: int) -> Array:
    """V_iid = Σ_i ‖g_i − ḡ‖² / (B (B − 1)), from the mean of ‖g_i‖² and from ‖ḡ‖².

    What the variance of the mean would be if all B samples were independent.
    """
    return jnp.maximum(square_mean - mean_square, 0.0) / jnp.float32(samples - 1)
