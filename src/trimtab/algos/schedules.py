"""Values that change over a run."""

import jax.numpy as jnp
from jax import Array

from trimtab.algos.settings import ScheduleKind


def scheduled(value: Array | float, kind: ScheduleKind, progress: Array) -> Array | float:
    """``value`` at ``progress``, the share of the run that is done.

    constant: v.   linear: v (1 − progress).
    """
    if kind == "constant":
        return value
    return value * (1.0 - jnp.clip(progress, 0.0, 1.0))
