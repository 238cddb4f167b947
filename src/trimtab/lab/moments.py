"""What a batch of per-sample gradients comes to, before the gradients are forgotten.

Two hundred batches of per-sample gradients are gigabytes. What every estimate needs of them are
inner products, and sums over batches: those are kept.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.ops.clusters import cluster_variance, independent_variance


class BatchMoments(NamedTuple):
    """Moments of one batch of gradients g [T, N, P]; s_t is the mean over lanes at step t."""

    lane_products: Array  # [T] by lag ℓ: (1/N) Σ_n Σ_t ⟨g_{t,n}, g_{t+ℓ,n}⟩
    step_products: Array  # [T] by lag ℓ: Σ_t ⟨s_t, s_{t+ℓ}⟩
    cluster_variance: Array  # [] of the batch's mean, from its lanes alone
    independent_variance: Array  # [] the same, were samples independent
    step_means: Array  # [T, P] s


def batch_moments(gradients: Array, squares: Array | None = None) -> BatchMoments:
    """The moments of per-sample gradients [T, N, P].

    Of gradients that are sketches, ``squares`` [T, N] are the squared lengths of the gradients
    themselves: what follows from each alone is then exact.
    """
    steps, lanes, size = gradients.shape
    step_means = gradients.mean(axis=1)
    # Each lane's Gram matrix over time, summed over lanes, is one product of long rows.
    rows = gradients.reshape(steps, lanes * size)
    lane_products = by_lag(rows @ rows.T)
    if squares is not None:
        lane_products = lane_products.at[0].set(squares.sum())
    square_mean = lane_products[0] / jnp.float32(steps * lanes)
    mean = step_means.mean(axis=0)
    return BatchMoments(
        lane_products / jnp.float32(lanes),
        by_lag(step_means @ step_means.T),
        cluster_variance(gradients.mean(axis=0)) if lanes > 1 else jnp.float32(jnp.nan),
        independent_variance(square_mean, (mean**2).sum(), steps * lanes),
        step_means,
    )


def by_lag(products: Array) -> Array:
    """Σ_t K[t, t+ℓ] for ℓ = 0 … T−1 of a matrix K [T, T]: the sums of its upper diagonals.

    Rows of T entries, padded to 2T and laid out again in rows of 2T + 1, slide one to the left with
    each row: diagonals become columns. Works for numpy arrays as well.
    """
    steps = products.shape[0]
    library = np if isinstance(products, np.ndarray) else jnp
    padded = library.pad(products, ((0, 0), (0, steps))).reshape(-1)
    padded = library.pad(padded, (0, steps))
    return padded.reshape(steps, 2 * steps + 1).sum(axis=0)[:steps]
