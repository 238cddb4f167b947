"""Running mean and variance (Welford 1962; merged as in Chan et al. 1979)."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from trimtab.ops.across import ALONE, Across


class Running(NamedTuple):
    """Count, mean and sum of squared deviations of what was seen; arrays have the item's shape."""

    count: Array
    mean: Array
    squares: Array

    @classmethod
    def zeros(cls, shape: tuple[int, ...]) -> "Running":
        return cls(jnp.zeros((), jnp.float32), jnp.zeros(shape), jnp.zeros(shape))

    def merge(
        self, items: Array, across: Across = ALONE, counted: Array | None = None
    ) -> "Running":
        """Statistics of what was seen before together with ``items`` [B, ...] of every device.

        Only those count that ``counted`` [B] says, if it is given.

        n = n_a + n_b,   δ = mean_b − mean_a
        mean = mean_a + δ n_b / n
        squares = squares_a + squares_b + δ² n_a n_b / n
        """
        if counted is None:
            fresh = jnp.float32(items.shape[0] * across.devices)
            mean = across.mean(items.mean(axis=0))
            squares = across.mean(((items - mean) ** 2).sum(axis=0)) * jnp.float32(across.devices)
            return self._joined(fresh, mean, squares)
        counts = counted.reshape(-1, *[1] * (items.ndim - 1))
        fresh = across.sum(counted.sum().astype(jnp.float32))
        total = across.sum(jnp.where(counts, items, 0.0).sum(axis=0))
        mean = total / jnp.maximum(fresh, 1.0)
        squares = across.sum(jnp.where(counts, (items - mean) ** 2, 0.0).sum(axis=0))
        joined = self._joined(fresh, mean, squares)
        return Running(
            *(jnp.where(fresh > 0, new, old) for new, old in zip(joined, self, strict=True))
        )

    def _joined(self, fresh: Array, mean: Array, squares: Array) -> "Running":
        count = self.count + fresh
        delta = mean - self.mean
        return Running(
            count,
            self.mean + delta * (fresh / count),
            self.squares + squares + delta**2 * (self.count * fresh / count),
        )

    def aged(self, limit: Array | int) -> "Running":
        """With no more weight than ``limit`` items have: what is newer then counts for more."""
        factor = jnp.minimum(1.0, limit / jnp.maximum(self.count, 1.0))
        return Running(self.count * factor, self.mean, self.squares * factor)

    @property
    def deviation(self) -> Array:
        """Standard deviation; 1 before anything was seen and for features that never change."""
        variance = self.squares / jnp.maximum(self.count, 1.0)
        constant = variance <= 1e-12
        return jnp.where(constant, 1.0, jnp.sqrt(jnp.where(constant, 1.0, variance)))

    def normalize(self, item: Array, limit: float = 10.0) -> Array:
        """``(item − mean) / deviation``, clipped to ±limit."""
        return self.standardised(item).clip(-limit, limit)

    def standardised(self, item: Array) -> Array:
        """``(item − mean) / deviation``, unclipped."""
        return (item - self.mean) / self.deviation

    def restored(self, item: Array) -> Array:
        """``mean + deviation · item``: what ``item`` was before it was standardised."""
        return self.mean + self.deviation * item
