"""Running statistics against numpy."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.ops.running import Running


@given(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=6), seed=st.integers(0, 1000))
def test_merging_batches_equals_numpy_over_all(sizes, seed):
    random = np.random.default_rng(seed)
    batches = [random.normal(loc=3.0, scale=2.0, size=(size, 2)).astype("f4") for size in sizes]
    running = Running.zeros((2,))
    for batch in batches:
        running = running.merge(jnp.asarray(batch))
    everything = np.concatenate(batches).astype("f8")
    np.testing.assert_allclose(running.count, len(everything))
    np.testing.assert_allclose(running.mean, everything.mean(0), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        running.squares, everything.var(0) * len(everything), rtol=1e-3, atol=1e-3
    )


def test_normalised_batch_has_mean_zero_and_deviation_one():
    items = jnp.asarray(np.random.default_rng(0).normal(5.0, 3.0, (1000, 4)), jnp.float32)
    normal = Running.zeros((4,)).merge(items).normalize(items)
    np.testing.assert_allclose(normal.mean(0), 0.0, atol=1e-5)
    np.testing.assert_allclose(normal.std(0), 1.0, rtol=1e-4)


def test_constant_features_and_empty_statistics_stay_finite():
    items = jnp.full((10, 1), 7.0)
    running = Running.zeros((1,)).merge(items)
    np.testing.assert_array_equal(running.normalize(items), jnp.zeros((10, 1)))
    # A feature that was constant is not blown up by its first small change.
    np.testing.assert_allclose(running.normalize(jnp.array([7.001])), [0.001], atol=1e-5)
    np.testing.assert_array_equal(Running.zeros((1,)).normalize(jnp.array([3.0])), [3.0])


def test_large_offsets_do_not_cancel():
    items = jnp.asarray(1e4 + np.random.default_rng(0).normal(size=(512, 1)), jnp.float32)
    running = Running.zeros((1,))
    for start in range(0, 512, 64):
        running = running.merge(items[start : start + 64])
    np.testing.assert_allclose(running.deviation, np.asarray(items, "f8").std(0), rtol=1e-2)


def test_normalised_values_are_clipped():
    items = jnp.array([[0.0], [1.0]])
    assert Running.zeros((1,)).merge(items).normalize(jnp.array([1e6])) == 10.0
