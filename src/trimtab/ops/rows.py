"""Work on a few rows of a large array."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

BLOCK = 128


def evaluate_where(
    wanted: Array, function: Callable[[Any], Array], rows: Any, otherwise: Array
) -> Array:
    """``where(wanted, function(rows), otherwise)`` that calls ``function`` on wanted rows only.

    ``wanted`` and ``otherwise`` are [B], leaves of ``rows`` are [B, ...], and ``function`` maps
    rows [b, ...] to [b].
    Wanted rows are gathered in blocks, so the cost follows their number and not B.
    """
    rank = jnp.cumsum(wanted, dtype=jnp.int32)

    def one_block(carry: tuple[Array, Array]) -> tuple[Array, Array]:
        done, values = carry
        # The k-th wanted row is the first whose rank is k; past the last one the index is B.
        index = jnp.searchsorted(rank, done + 1 + jnp.arange(BLOCK, dtype=jnp.int32))
        chosen = jax.tree.map(lambda leaf: leaf.at[index].get(mode="clip"), rows)
        results = function(chosen)
        return done + BLOCK, values.at[index].set(results, mode="drop")

    start = (jnp.int32(0), otherwise)
    return lax.while_loop(lambda carry: carry[0] < rank[-1], one_block, start)[1]
