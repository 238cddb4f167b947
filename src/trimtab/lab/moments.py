"""What a batch of per-sample gradients comes to, before the gradients are forgotten.

Two hundred batches of per-sample gradients are gigabytes. What every estimate needs of them are
inner products, and sums over batches: those are kept. Of long lanes only the products of the first
lags are made one by one; that of all lags together is the squared length of a sum.
"""

from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from trimtab.ops.clusters import cluster_variance, independent_variance

MOST_LAGS = 64


class BatchMoments(NamedTuple):
    """Moments of one batch of gradients g [T, N, P]; s_t is the mean over lanes at step t.

    Lags are ℓ = 0 … L, with L = T − 1, and at most MOST_LAGS.
    """

    lane_products: Array  # [L + 1] (1/N) Σ_n Σ_t ⟨g_{t,n}, g_{t+ℓ,n}⟩
    step_products: Array  # [L + 1] Σ_t ⟨s_t, s_{t+ℓ}⟩
    lane_square: Array  # [] (1/N) Σ_n ‖Σ_t g_{t,n}‖²
    step_square: Array  # [] ‖Σ_t s_t‖²
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
    # The products of all lanes are those of long rows.
    lane_products = lag_products(gradients.reshape(steps, lanes * size))
    lane_sums = sum_of_steps(gradients)
    lane_square = (lane_sums**2).sum()
    if squares is not None:
        exact = squares.sum()
        lane_square = lane_square + (exact - lane_products[0])
        lane_products = lane_products.at[0].set(exact)
    square_mean = lane_products[0] / jnp.float32(steps * lanes)
    step_sum = sum_of_steps(step_means)
    mean = step_sum / jnp.float32(steps)
    return BatchMoments(
        lane_products / jnp.float32(lanes),
        lag_products(step_means),
        lane_square / jnp.float32(lanes),
        (step_sum**2).sum(),
        cluster_variance(lane_sums / jnp.float32(steps)) if lanes > 1 else jnp.float32(jnp.nan),
        independent_variance(square_mean, (mean**2).sum(), steps * lanes),
        step_means,
    )


def sum_of_steps(rows: Array) -> Array:
    """Σ_t x_t of [T, ...]: as a product, since XLA's sums over a first axis are slow on CPUs."""
    steps, *rest = rows.shape
    return (jnp.ones(steps) @ rows.reshape(steps, -1)).reshape(rest)


def lag_products(rows: Any) -> Any:
    """Σ_t ⟨x_t, x_{t+ℓ}⟩ for ℓ = 0 … L of rows x [T, K]; numpy's too.

    One product of matrices if there are few rows. Of more, blocks of L are multiplied with
    themselves and with the next block: T L products and not T².
    """
    steps = rows.shape[0]
    width = min(steps - 1, MOST_LAGS)
    if steps <= 2 * MOST_LAGS:
        return by_lag(rows @ rows.T, width + 1)
    last = (steps // width - 1) * width  # what is left from here on is shorter than two blocks
    end = by_lag(rows[last:] @ rows[last:].T, width + 1)
    if isinstance(rows, np.ndarray):
        blocks = range(0, last, width)
        near = sum(rows[at : at + width] @ rows[at : at + 2 * width].T for at in blocks)
        return by_lag(np.asarray(near), width + 1) + end

    def add(total: Array, at: Array) -> tuple[Array, None]:
        block = lax.dynamic_slice_in_dim(rows, at, 2 * width)
        return total + block[:width] @ block.T, None

    zeros = jnp.zeros((width, 2 * width), rows.dtype)
    near, _ = lax.scan(add, zeros, jnp.arange(0, last, width, dtype=jnp.int32))
    return by_lag(near, width + 1) + end


def by_lag(products: Any, count: int) -> Any:
    """Σ_t K[t, t+ℓ] for ℓ = 0 … count − 1 of a matrix K: the sums of its upper diagonals.

    Rows that are laid out one entry longer than they are slide one to the left with each row:
    diagonals become columns. Zeros at their ends keep rows apart. Works for numpy arrays as well.
    """
    rows, columns = products.shape
    library = np if isinstance(products, np.ndarray) else jnp
    length = max(columns, rows + count)
    padded = library.pad(products, ((0, 0), (0, length - columns))).reshape(-1)
    padded = library.pad(padded, (0, rows))
    return padded.reshape(rows, length + 1)[:, :count].sum(axis=0)
