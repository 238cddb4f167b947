"""The shuffle is a bijection, and no test here can tell it from a sorted permutation."""

import jax
import numpy as np
import pytest
from scipy import stats

from trimtab.ops.shuffle import largest_factor_up_to_root, permutation

SIZES = [16, 31, 48, 100, 127, 512, 997, 1000, 1024, 3000, 8192]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 15, *SIZES, 32_768, 99_991, 100_000])
def test_every_index_occurs_once(size):
    order = jax.jit(permutation, static_argnums=1)(jax.random.key(size), size)
    assert order.dtype == np.int32
    np.testing.assert_array_equal(np.sort(order), np.arange(size))


def many(size, count, seed=0):
    keys = jax.random.split(jax.random.key(seed), count)
    return np.asarray(jax.jit(jax.vmap(lambda key: permutation(key, size)))(keys))


@pytest.mark.parametrize("size", SIZES)
def test_each_index_is_in_each_minibatch_equally_often(size):
    minibatches = 4
    usable = size - size % minibatches
    orders = many(size, 600)[:, :usable].reshape(600, minibatches, -1)
    counts = np.zeros((size, minibatches))
    for minibatch in range(minibatches):
        np.add.at(counts[:, minibatch], orders[:, minibatch].ravel(), 1)
    expected = 600 * (usable // minibatches) / size
    # Half the smallest p of a family of this many would be chance; a bias shows at once.
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = size * (minibatches - 1)
    assert stats.chi2.sf(chi_square, freedom) > 1e-4


@pytest.mark.parametrize("lanes_and_steps", [(4, 128), (64, 128), (10, 30), (48, 7), (32, 32)])
@pytest.mark.parametrize("apart", ["time", "lane", "both"])
def test_neighbours_share_a_minibatch_no_more_often_than_chance(lanes_and_steps, apart):
    lanes, steps = lanes_and_steps
    size, minibatches, shuffles = lanes * steps, 4, 400
    offset = {"time": lanes, "lane": 1, "both": lanes + 1}[apart]
    minibatch_of = np.empty((shuffles, size), np.int64)
    np.put_along_axis(
        minibatch_of, many(size, shuffles, seed=1), (np.arange(size) * minibatches // size)[None], 1
    )
    together = (minibatch_of[:, :-offset] == minibatch_of[:, offset:]).mean(axis=1)
    share = size // minibatches
    chance = (share - 1) / (size - 1)
    error = together.std(ddof=1) / np.sqrt(shuffles)
    assert abs(together.mean() - chance) < 4 * error + 1e-9
    # Nor do single shuffles stray more than those of a sorted permutation do.
    sorted_orders = np.argsort(np.random.default_rng(0).random((shuffles, size)), axis=1)
    sorted_minibatch = np.empty_like(minibatch_of)
    np.put_along_axis(
        sorted_minibatch, sorted_orders, (np.arange(size) * minibatches // size)[None], 1
    )
    reference = (sorted_minibatch[:, :-offset] == sorted_minibatch[:, offset:]).mean(axis=1)
    assert together.std() < 1.35 * reference.std()


@pytest.mark.parametrize("size", [512, 1000, 8192])
def test_minibatch_means_vary_as_those_of_a_sorted_permutation(size):
    # A value with strong structure in time and lane: a weak shuffle would leave some of it.
    values = np.sin(np.arange(size) / 7.0) + (np.arange(size) % 8) / 4.0 + np.arange(size) / size
    means = values[many(size, 1500, seed=2)].reshape(1500, 4, -1).mean(axis=2)
    share = size // 4
    expected = values.var(ddof=1) / share * (1 - share / size)
    ratio = means.var() / expected
    assert 0.85 < ratio < 1.15


def test_positions_of_pairs_are_independent():
    # Where index 0 goes says nothing about where its neighbours go.
    orders = many(1024, 4000, seed=3)
    positions = np.argsort(orders, axis=1)
    for other in (1, 31, 32, 33, 512):
        correlation = stats.spearmanr(positions[:, 0], positions[:, other]).statistic
        assert abs(correlation) < 4 / np.sqrt(4000)


def test_different_keys_give_different_orders():
    orders = many(512, 200)
    assert len({order.tobytes() for order in orders}) == 200


def test_most_square_factor():
    assert [largest_factor_up_to_root(n) for n in (1, 7, 12, 16, 512)] == [1, 1, 3, 4, 16]
