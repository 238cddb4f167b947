"""Whether gradients point the same way: cosines within a lane, between batches, with the truth.

The cosine of a gradient with a mean that contains it is positive even for pure noise, so the
sample itself is left out; and what remains is shown beside its null, for which the batch's samples
are dealt out to lanes at random.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.lab.intervals import Estimate, jackknife
from trimtab.lab.moments import sum_of_steps

BINS = 40
_SMALLEST = 1e-12


class LaneCosines(NamedTuple):
    """Of one batch: cosines of each gradient with the mean of the rest of its lane."""

    mean: Array | np.ndarray
    null_mean: Array | np.ndarray
    histogram: Array | np.ndarray  # [BINS] counts from −1 to 1
    null_histogram: Array | np.ndarray


def lane_cosines(gradients: Array, key: Array) -> LaneCosines:
    """From gradients [T, N, P]; NaN means where every gradient is zero."""
    steps, lanes, size = gradients.shape
    order = jax.random.permutation(key, steps * lanes)
    dealt = gradients.reshape(steps * lanes, size)[order].reshape(gradients.shape)
    own, null = leave_one_out(gradients), leave_one_out(dealt)
    return LaneCosines(jnp.nanmean(own), jnp.nanmean(null), histogram(own), histogram(null))


def leave_one_out(gradients: Array) -> Array:
    """cos(g_t, Σ_{s≠t} g_s) in each lane of [T, N, P]; NaN where a gradient is zero."""
    rest = sum_of_steps(gradients) - gradients
    product = (gradients * rest).sum(axis=-1)
    length = jnp.sqrt((gradients**2).sum(axis=-1) * (rest**2).sum(axis=-1))
    return jnp.where(length > _SMALLEST, product / jnp.maximum(length, _SMALLEST), jnp.nan)


def histogram(cosines: Array) -> Array:
    """Counts in equal bins from −1 to 1; NaN is not counted."""
    flat = cosines.reshape(-1)
    found = jnp.isfinite(flat)
    bins = jnp.floor((jnp.where(found, flat, 0.0) + 1) / 2 * BINS).astype(jnp.int32)
    counted = found.astype(jnp.float32)
    return jnp.zeros(BINS).at[bins.clip(0, BINS - 1)].add(counted)


def pairwise_cosines(means: np.ndarray) -> np.ndarray:
    """Cosines of each pair of different batch means [M, P], as one vector."""
    unit = unit_rows(means)
    rows, columns = np.triu_indices(len(means), k=1)
    return (unit @ unit.T)[rows, columns]


def mean_of_pairs(means: np.ndarray, groups: int) -> Estimate:
    """The mean cosine of two different batches, with an interval by the jackknife over groups."""
    unit = unit_rows(means)
    known = np.isfinite(unit).all(axis=1)

    def of(kept: np.ndarray) -> float:
        rows = unit[kept & known]
        count, total = len(rows), rows.sum(axis=0)
        return float((total @ total - count) / (count * (count - 1))) if count > 1 else math.nan

    group = np.arange(len(means)) // (len(means) // groups)
    left_out = np.array([of(group != one) for one in range(groups)])
    return jackknife(of(np.ones(len(means), bool)), left_out)


def first_batch_cosines(gradients: np.ndarray, means: np.ndarray) -> np.ndarray:
    """Cosines [B, K] of batch 0's gradients per sample [B, P] with the means of batches 0 … K−1.

    Of batch 0 itself the mean of the other samples is taken.
    """
    unit = unit_rows(gradients)
    cosines = unit @ unit_rows(means).T
    rest = gradients.sum(axis=0) - gradients
    cosines[:, 0] = (unit * unit_rows(rest)).sum(axis=1)
    return cosines


def cosines_with(means: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The cosine of each batch's mean with a reference gradient."""
    return unit_rows(means) @ unit_rows(truth[None])[0]


def unit_rows(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.where(lengths > _SMALLEST, vectors / np.maximum(lengths, _SMALLEST), np.nan)
