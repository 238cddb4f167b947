"""Bias within an update, by source, against the exact one at the very policies it moved to."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest
from tabular_tasks import DISCOUNT, chain_of, random_network, random_task, softmax

from trimtab.algos.onpolicy import Learner
from trimtab.algos.ppo import PPO
from trimtab.algos.reinforce import REINFORCE
from trimtab.lab import exact
from trimtab.lab.batches import FusedBatches
from trimtab.lab.engine import Conditions, Laboratory
from trimtab.lab.plan import Split
from trimtab.lab.surrogate import (
    Gradients,
    measure_surrogate,
    relative_squares,
    sources,
    squared_mean,
)
from trimtab.nets.flat import Flat

SPLIT, WARM_UP, UPDATES = Split(32, 4), 40, 40


def measured(algorithm):
    env = random_task()
    network = random_network(env)
    parameters = Flat.of(network)
    learner = Learner(
        parameters, algorithm.optimiser_of(parameters).init(parameters), None, jnp.int32(0)
    )
    conditions = Conditions(("actor",), 20, "carried", WARM_UP, 1e9)
    laboratory = Laboratory(FusedBatches(env), algorithm, conditions)
    return env, network, *measure_surrogate(laboratory, learner, SPLIT, UPDATES)


def expected(env, network, places, clip_range, trace):
    """On-policy, reused and clipped gradients at each place, exactly: [U, 3, S·A]."""
    old = chain_of(env, network)
    critic = np.asarray(network.values, np.float64)
    settings = (SPLIT.steps, DISCOUNT, trace, critic)
    lanes = old.carried(WARM_UP)
    reused = old.estimated_weights(lanes, *settings)
    rows = []
    for place in places:
        policy = softmax(np.asarray(place.network().logits, np.float64))
        new = dataclasses.replace(old, policy=policy)
        weights = (
            new.estimated_weights(new.carried(WARM_UP), *settings),
            exact.reused(reused, old.policy, policy),
            exact.clipped_weights(old, policy, clip_range, *settings, lanes),
        )
        rows.append([exact.softmax_gradient(policy, one).ravel() for one in weights])
    return np.asarray(rows)


def assert_alike(found, truth):
    """The mean over updates of measured differences is that of the exact ones."""
    error = (found - truth).std(axis=0, ddof=1) / np.sqrt(len(found))
    scores = (found - truth).mean(axis=0) / np.maximum(error, 1e-9)
    assert np.sqrt((scores**2).mean()) < 3, scores
    assert np.abs(scores).max() < 4.5, scores


def test_drift_and_clipping_are_the_exact_ones():
    ppo = PPO(
        gamma=DISCOUNT,
        gae_lambda=0.9,
        clip_range=0.1,
        learning_rate=0.1,
        minibatches=2,
        epochs=6,
        hidden_sizes=(),
    )
    env, network, found, places = measured(ppo)
    on_policy, reused, clipped = expected(env, network, places, 0.1, 0.9).swapaxes(0, 1)
    assert_alike(found.on_policy, on_policy)
    differences = sources(found)
    assert list(differences) == ["policy drift", "clipping", "own data"]
    assert_alike(differences["policy drift"], reused - on_policy)
    assert_alike(differences["clipping"], clipped - reused)
    squares = relative_squares(found)
    for name, vectors in (("policy drift", reused - on_policy), ("clipping", clipped - reused)):
        truth = squared_mean(vectors) / squared_mean(on_policy)
        assert truth > 0.01
        one = squares[name]
        reach = one.high - one.low
        assert one.low - reach < truth < one.high + reach, name


def test_an_algorithm_without_ratios_has_no_clipping():
    reinforce = REINFORCE(gamma=DISCOUNT, epochs=2, learning_rate=0.1, hidden_sizes=())
    _, _, found, _ = measured(reinforce)
    assert found.reused is None
    assert list(sources(found)) == ["policy drift", "own data"]


def test_squared_means_are_unbiased():
    generator = np.random.default_rng(0)
    mean = np.array([0.3, -0.1, 0.0])
    values = [squared_mean(mean + generator.standard_normal((5, 3))) for _ in range(4000)]
    error = np.std(values) / np.sqrt(len(values))
    assert abs(np.mean(values) - mean @ mean) < 3 * error


def test_a_signal_that_is_lost_gives_no_figure():
    generator = np.random.default_rng(1)
    noise = generator.standard_normal((20, 4))
    noise -= noise.mean(axis=0)
    found = relative_squares(Gradients(noise, noise, noise + 1, noise + 2))
    assert np.isnan(found["clipping"].value)


@pytest.mark.parametrize("clips", [False, True])
def test_without_a_step_nothing_drifts(clips):
    ppo = PPO(
        gamma=DISCOUNT,
        clip_range=0.2 if clips else 1e6,
        learning_rate=0.0,
        minibatches=1,
        epochs=1,
        hidden_sizes=(),
    )
    _, _, found, _ = measured(ppo)
    np.testing.assert_array_equal(found.reused, found.clipped)
    for difference in (found.reused - found.on_policy, found.own - found.clipped):
        assert_alike(difference, np.zeros_like(difference))
