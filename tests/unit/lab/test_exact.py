"""Exact gradients against hand-made tasks, finite differences and Monte Carlo."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tabular_tasks import DISCOUNT, chain_of, random_network, random_task, softmax

from trimtab.algos.a2c import A2C
from trimtab.algos.gradients import Gradient, head_loss
from trimtab.algos.onpolicy import Learner
from trimtab.algos.ppo import PPO
from trimtab.algos.reinforce import REINFORCE
from trimtab.envs.tabular import TabularEnv
from trimtab.lab import exact
from trimtab.lab.collecting import collect_group
from trimtab.lab.exact import Chain
from trimtab.lab.plan import Split
from trimtab.nets.flat import Flat

# Values and distributions


def test_values_of_a_corridor_by_hand():
    """Two rooms; stepping on pays 1 and ends in the second; waiting pays nothing."""
    stay, on, out = [(1.0, 0, 0.0, False)], [(1.0, 1, 0.5, False)], [(1.0, 1, 1.0, True)]
    env = TabularEnv.of("Corridor-v0", {0: {0: stay, 1: on}, 1: {0: out, 1: out}}, [1, 0], 3)
    chain = Chain(env, np.array([[0.5, 0.5], [0.5, 0.5]]))
    # V1 = 1, V0 = ½ γ V0 + ½ (½ + γ)
    first = 0.5 * (0.5 + 0.9) / (1 - 0.5 * 0.9)
    np.testing.assert_allclose(chain.state_values(0.9), [first, 1.0])
    np.testing.assert_allclose(
        chain.action_values(0.9, np.array([first, 1.0])), [[0.9 * first, 1.4], [1.0, 1.0]]
    )
    # Three steps: leave at once, after one wait, after two waits (½ and no more time).
    assert chain.expected_return() == pytest.approx(0.5 * 1.5 + 0.25 * 1.5 + 0.125 * 0.5)
    # Steps in room 0: 1 + ½ + ¼; in room 1: ½ + ¼.
    np.testing.assert_allclose(
        chain.stationary(), np.array([[1, 0], [0.5, 0.5], [0.25, 0.25]]) / 2.5
    )


def test_stationary_lanes_stay_so_and_carried_ones_become_so():
    chain = chain_of(random_task(), random_network(random_task()))
    stationary = chain.stationary()
    np.testing.assert_allclose(chain.one_step_later(stationary), stationary, atol=1e-12)
    np.testing.assert_allclose(chain.carried(400), stationary, atol=1e-6)
    assert chain.carried(3).sum() == pytest.approx(1)


def test_the_discounted_form_is_the_gradient_of_the_discounted_return():
    env = random_task(limit=None)
    network = random_network(env)
    logits = np.asarray(network.logits, np.float64)

    def value(logits):
        return env.initial @ Chain(env, softmax(logits)).state_values(DISCOUNT)

    chain = Chain(env, softmax(logits))
    states = chain.discounted(DISCOUNT)
    weights = chain.true_weights(states, DISCOUNT, np.zeros(4))
    visits = np.linalg.solve(np.eye(4) - DISCOUNT * chain.following.T, env.initial).sum()
    found = -exact.softmax_gradient(chain.policy, weights) * visits
    for s, a in itertools.product(range(4), range(2)):
        step = np.zeros_like(logits)
        step[s, a] = 1e-6
        numeric = (value(logits + step) - value(logits - step)) / 2e-6
        assert found[s, a] == pytest.approx(numeric, rel=1e-5, abs=1e-9)


def test_the_gradient_through_a_network_is_the_tables():
    env = random_task()
    network = random_network(env)
    chain = chain_of(env, network)
    values = np.asarray(network.values, np.float64)
    weights = chain.true_weights(chain.stationary().sum(axis=0), DISCOUNT, values)
    found = exact.gradient("actor", (True, False), network, weights).reshape(4, 2)
    np.testing.assert_allclose(found, exact.softmax_gradient(chain.policy, weights), atol=1e-6)
    critic = exact.gradient("critic", (False, True), network, weights)
    error = values - chain.state_values(DISCOUNT)  # ∇ ½(V̂ − V)² = d(s) (V̂ − V)
    np.testing.assert_allclose(critic, weights.states * error, atol=1e-6)
    np.testing.assert_allclose(exact.policy_table(network, 4, 2), chain.policy, atol=1e-6)
    np.testing.assert_allclose(exact.value_table(network, 4, 2), values, atol=1e-6)


def test_a_long_rollout_comes_near_the_limit():
    env = random_task(limit=None)
    network = random_network(env)
    chain = chain_of(env, network)
    critic = np.asarray(network.values, np.float64)
    long = chain.advantages(300, DISCOUNT, 0.95, critic)[-1]
    np.testing.assert_allclose(long, chain.limit_advantages(DISCOUNT, 0.95, critic), atol=1e-8)
    truth = chain.action_values(DISCOUNT, chain.state_values(DISCOUNT)) - critic[:, None]
    np.testing.assert_allclose(chain.limit_advantages(DISCOUNT, 1.0, critic), truth, atol=1e-8)


def test_too_many_futures_are_refused():
    with pytest.raises(Exception, match="too many to list"):
        exact.advantage_atoms(
            chain_of(random_task(), random_network(random_task())), 40, 0.9, 0.9, np.zeros(4)
        )


# Monte Carlo: each source of bias off, and on


BATCHES = 1500
SPLIT = Split(8, 4)


@dataclasses.dataclass(frozen=True)
class Case:
    """What the data are, and at which policy their gradient is taken."""

    critic: str = "exact"
    start: str = "carried"
    warm_up: int = 40
    trace: float = 0.9
    clip_range: float = 1e6
    moved: bool = False  # the gradient is taken after the policy has moved
    limit: int | None = 5
    algorithm: str = "ppo"


def algorithm_of(case):
    if case.algorithm == "a2c":
        return A2C(gamma=DISCOUNT, gae_lambda=case.trace)
    if case.algorithm == "reinforce":
        assert case.trace == 1
        return REINFORCE(gamma=DISCOUNT)
    return PPO(gamma=DISCOUNT, gae_lambda=case.trace, clip_range=case.clip_range)


def setting(case):
    env = random_task(limit=case.limit)
    network = random_network(env)
    chain = chain_of(env, network)
    if case.critic == "exact":
        values = chain.state_values(DISCOUNT)
        network = dataclasses.replace(network, values=jnp.asarray(values, jnp.float32))
    moved = network
    if case.moved:
        push = np.random.default_rng(5).normal(size=network.logits.shape)
        moved = dataclasses.replace(network, logits=network.logits + jnp.float32(push))
    return env, network, moved, chain


@functools.cache
def monte_carlo(case):
    """The mean gradient of the actor over many batches, and its standard error, [S·A]."""
    env, network, moved, _ = setting(case)
    algorithm = algorithm_of(case)
    learner = Learner(Flat.of(network), None, None, jnp.int32(0))

    @jax.jit
    def lane_gradients(root):
        rollout, _ = collect_group(
            algorithm, env, learner, root, SPLIT, BATCHES, case.start, case.warm_up
        )
        samples, _ = algorithm.prepare(learner, rollout)
        gradient = Gradient(head_loss(algorithm, "actor"), (True, False))
        return gradient.per_sample(moved, samples).mean(axis=0)

    lanes = np.asarray(lane_gradients(jax.random.key(11)), np.float64)
    return lanes.mean(axis=0), lanes.std(axis=0, ddof=1) / np.sqrt(len(lanes))


def expected(case):
    """The exact expectation of the same."""
    _, network, moved, chain = setting(case)
    critic = np.asarray(network.values, np.float64)
    lanes = chain.fresh() if case.start == "fresh" else chain.carried(case.warm_up)
    settings = (SPLIT.steps, DISCOUNT, case.trace, critic)
    policy = softmax(np.asarray(moved.logits, np.float64))
    if case.clip_range < 1e6:
        weights = exact.clipped_weights(chain, policy, case.clip_range, *settings, lanes)
    else:
        weights = chain.estimated_weights(lanes, *settings)
        weights = exact.reused(weights, chain.policy, policy)
    return exact.softmax_gradient(policy, weights).ravel()


def truth(case):
    """The form used in practice, at the policy whose gradient is taken."""
    env, network, moved, _ = setting(case)
    chain = chain_of(env, moved)
    states = chain.stationary().sum(axis=0)
    weights = chain.true_weights(states, DISCOUNT, np.asarray(network.values, np.float64))
    return exact.softmax_gradient(chain.policy, weights).ravel()


def assert_agrees(found, error, expected_value):
    """Within 3 standard errors of the whole vector's length, and none beyond 4.5 alone."""
    scores = (found - expected_value) / np.maximum(error, 1e-9)
    assert np.sqrt((scores**2).mean()) < 3, scores
    assert np.abs(scores).max() < 4.5, scores


SOURCES = {
    "none": Case(),
    "value function": Case(critic="learned", limit=None, warm_up=60),
    "bootstrap": Case(critic="learned", trace=0.0),
    "truncation": Case(critic="learned", trace=1.0),
    "start": Case(start="fresh"),
    "drift": Case(moved=True),
    "clipping": Case(moved=True, clip_range=0.2, trace=0.0),
    "clipping of long sums": Case(moved=True, clip_range=0.2, trace=0.9),
    "truncation in A2C": Case(critic="learned", trace=0.5, algorithm="a2c"),
    "start in REINFORCE": Case(critic="learned", trace=1.0, start="fresh", algorithm="reinforce"),
}


@pytest.mark.parametrize("case", SOURCES.values(), ids=SOURCES.keys())
def test_monte_carlo_agrees_with_the_exact_expectation(case):
    found, error = monte_carlo(case)
    assert_agrees(found, error, expected(case))


def test_with_every_source_off_the_estimate_is_the_truth():
    case = SOURCES["none"]
    np.testing.assert_allclose(expected(case), truth(case), atol=1e-6)
    assert_agrees(*monte_carlo(case), truth(case))


@pytest.mark.parametrize("name", [name for name in SOURCES if name != "none"])
def test_each_source_switched_on_is_a_bias_that_monte_carlo_sees(name):
    case = SOURCES[name]
    bias = expected(case) - truth(case)
    found, error = monte_carlo(case)
    assert np.linalg.norm(bias) > 0.02 * np.linalg.norm(truth(case))
    seen = found - truth(case)
    # The estimated bias is the exact one within its error, and is not nothing.
    assert_agrees(seen, error, bias)
    assert np.abs(seen / np.maximum(error, 1e-9)).max() > 4.5
