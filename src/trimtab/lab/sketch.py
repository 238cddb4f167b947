"""Random projections: inner products of long vectors, from short ones.

A long vector's entries are given random signs and dealt out to D sums in turn (a count sketch).
For every pair of vectors

    E ⟨Πx, Πy⟩ = ⟨x, y⟩,    standard deviation about √(2/D) |x| |y| at most

over the signs, so what is measured of gradients that could not be kept has that error more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array


class Sketch(NamedTuple):
    """A projection to ``size`` numbers; the signs follow from the key."""

    key: Array
    size: int

    @property
    def error(self) -> float:
        """The relative standard error of an inner product, at most about."""
        return (2 / self.size) ** 0.5

    def __call__(self, vectors: Array) -> Array:
        """[..., P] to [..., size]."""
        length = vectors.shape[-1]
        rows = -(-length // self.size)
        signs = jax.random.rademacher(self.key, (rows * self.size,), jnp.float32)
        padding = [(0, 0)] * (vectors.ndim - 1) + [(0, rows * self.size - length)]
        signed = jnp.pad(vectors, padding) * signs
        return signed.reshape(*vectors.shape[:-1], rows, self.size).sum(axis=-2)
