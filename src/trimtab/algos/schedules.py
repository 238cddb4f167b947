"""Values that change over a run: one kind of schedule for every number that has one."""

from typing import NamedTuple

import jax.numpy as jnp
from jax import Array

from trimtab.algos.settings import ScheduleKind


class Schedule(NamedTuple):
    """Rises in the first part of a run, holds, and falls to zero in the last.

    With u updates done of U, p = u / U, warm-up share w and start of the fall s:

        rise  = min(1, (u + 1) / (w U))
        x     = (p − s) / (1 − s), kept within 0 and 1
        fall  = 1 (constant),   1 − x (linear),   ½ (1 + cos π x) (cosine)
        value × rise × fall
    """

    kind: ScheduleKind
    warmup: Array | float | None = None
    decay_start: Array | float | None = None

    def at(self, value: Array | float, updates: Array, total: Array | float) -> Array | float:
        """``value`` after ``updates`` updates of ``total``; no work if it does not change."""
        done = updates.astype(jnp.float32)
        if self.warmup is not None:
            rising = (done + 1.0) / (self.warmup * total)
            # A run without an end is one of which nothing is a share.
            value = value * jnp.where(jnp.isinf(total), 1.0, jnp.minimum(1.0, rising))
        if self.kind == "constant":
            return value
        share = done / total
        if self.decay_start is not None:
            share = (share - self.decay_start) / (1.0 - self.decay_start)
        share = jnp.clip(share, 0.0, 1.0)
        if self.kind == "linear":
            return value * (1.0 - share)
        return value * (0.5 * (1.0 + jnp.cos(jnp.pi * share)))
