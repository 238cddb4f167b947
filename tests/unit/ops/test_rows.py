"""Functions of a few rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.ops.rows import BLOCK, evaluate_where


@pytest.mark.parametrize("size", [1, 7, BLOCK, 3 * BLOCK + 5])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 1.0])
def test_equals_where_over_all_rows(size, share):
    random = np.random.default_rng(size)
    wanted = jnp.asarray(random.random(size) < share)
    rows = jnp.asarray(random.normal(size=(size, 3)), jnp.float32)
    otherwise = jnp.asarray(random.normal(size=size), jnp.float32)

    def function(some):
        return some.sum(axis=1) ** 2

    ours = jax.jit(lambda *arrays: evaluate_where(arrays[0], function, *arrays[1:]))(
        wanted, rows, otherwise
    )
    np.testing.assert_allclose(ours, jnp.where(wanted, function(rows), otherwise), rtol=1e-6)


def test_can_be_mapped():
    wanted = jnp.array([[True, False], [False, False]])
    rows, otherwise = jnp.ones((2, 2, 1)), jnp.zeros((2, 2))
    ours = jax.vmap(lambda w, r, o: evaluate_where(w, lambda x: x[:, 0], r, o))(
        wanted, rows, otherwise
    )
    np.testing.assert_array_equal(ours, [[1.0, 0.0], [0.0, 0.0]])
