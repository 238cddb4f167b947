"""The bias that batches estimate is the one that dynamic programming knows."""

import functools

import jax.numpy as jnp
import numpy as np
import pytest
from tabular_tasks import DISCOUNT, random_network, random_task

from trimtab.algos.onpolicy import Learner
from trimtab.algos.ppo import PPO
from trimtab.lab.batches import FusedBatches
from trimtab.lab.bias import Estimator, TabularSubject
from trimtab.lab.distance import Truth, distances
from trimtab.lab.engine import Conditions, Laboratory
from trimtab.lab.plan import Split, Storage
from trimtab.lab.reference import measure_reference
from trimtab.nets.flat import Flat

SPLIT, WARM_UP, TRACE = Split(16, 4), 30, 0.5


@functools.cache
def laboratory_of(start):
    env = random_task()
    network = random_network(env)
    learner = Learner(Flat.of(network), None, None, jnp.int32(0))
    conditions = Conditions(("actor", "critic"), 400, start, WARM_UP, 1e9)
    ppo = PPO(gamma=DISCOUNT, gae_lambda=TRACE)
    return env, network, learner, Laboratory(FusedBatches(env), ppo, conditions)


@pytest.mark.parametrize("start", ["stationary", "carried", "fresh"])
@pytest.mark.parametrize("head", ["actor", "critic"])
def test_estimated_and_exact_bias_agree(start, head):
    env, network, learner, laboratory = laboratory_of(start)
    measured = measurement(start).heads[head]
    used = laboratory.gradient_functions(learner)[head].used
    estimator = Estimator(SPLIT, DISCOUNT, TRACE, start, WARM_UP)
    exact = TabularSubject.of(env, network).bias(head, used, estimator)
    truth = float(((exact.expected - exact.practice) ** 2).sum())
    found = distances(measured.means, 20, Truth(exact.practice)).squared_bias
    reach = found.high - found.low  # twice the interval: one of these six may miss the 95%
    assert found.low - reach / 2 < truth < found.high + reach / 2
    mean = measured.moments.mean_gradient()
    error = measured.means.std(axis=0, ddof=1) / np.sqrt(len(measured.means))
    scores = (mean - exact.expected) / np.maximum(error, 1e-9)
    assert np.sqrt((scores**2).mean()) < 3
    assert exact.shares()["total"] > 0.02


@pytest.mark.parametrize("head", ["actor", "critic"])
def test_every_way_to_start_is_told_whichever_was_measured(head):
    """From the stages of a survey that measures that start: its last less the one before."""
    env, network, learner, laboratory = laboratory_of("stationary")
    used = laboratory.gradient_functions(learner)[head].used
    tables = TabularSubject.of(env, network)
    found = tables.starts(head, used, Estimator(SPLIT, DISCOUNT, TRACE, "stationary", WARM_UP))
    assert found["fresh"] > 0.05 > found["stationary"]
    for start, share in found.items():
        other = tables.bias(head, used, Estimator(SPLIT, DISCOUNT, TRACE, start, WARM_UP))
        assert share == pytest.approx(other.shares()["start"], abs=1e-6)


@functools.cache
def measurement(start):
    _, _, learner, laboratory = laboratory_of(start)
    return laboratory.measure(learner, SPLIT, TRACE)


def test_the_measured_reference_is_the_truth_within_its_error():
    """Without a clock λ = 1 has no need of the critic, and the reference has no bias."""
    env = random_task(limit=None)
    network = random_network(env)
    learner = Learner(Flat.of(network), None, None, jnp.int32(0))
    conditions = Conditions(("actor",), 20, "stationary", 60, 1e9)
    laboratory = Laboratory(FusedBatches(env), PPO(gamma=DISCOUNT), conditions)
    found = measure_reference(laboratory, learner, DISCOUNT, {"actor": Storage(0, 0)})["actor"]
    truths = TabularSubject.of(env, network)
    used = laboratory.gradient_functions(learner)["actor"].used
    exact = truths.bias("actor", used, Estimator(SPLIT, DISCOUNT, 1.0, "stationary", 60))
    distance = float(((found.truth.gradient - exact.practice) ** 2).sum())
    assert distance < 4 * found.truth.variance
    assert found.truth.variance < 0.01 * float((exact.practice**2).sum())
    assert found.horizon == 44  # 0.9⁴⁴ < 1%
