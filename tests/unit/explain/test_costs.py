"""Bytes and operations, against sums by hand."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trimtab
from trimtab.explain.costs import Costs, flops
from trimtab.spaces import Box, Discrete, EnvSpec

SPEC = EnvSpec("Some-v0", Box((3,)), Discrete(2))
N, T, HIDDEN = 8, 16, (32, 16)


def products(*sizes: int) -> int:
    """Weights of a chain of dense layers."""
    return sum(a * b for a, b in itertools.pairwise(sizes))


def costs(num_envs: int = N, num_steps: int = T, **settings) -> Costs:
    return Costs.of(trimtab.PPO(hidden_sizes=HIDDEN, **settings), SPEC, num_envs, num_steps)


def test_parameters_and_bytes() -> None:
    found = costs()
    biases = 2 * sum(HIDDEN) + 2 + 1
    assert found.parameters == products(3, *HIDDEN, 2) + products(3, *HIDDEN, 1) + biases
    # Parameters and Adam's two means are float32.
    assert 12 * found.parameters <= found.learner_bytes <= 12 * found.parameters + 200
    # Observation and successor, action, reward, log-probability: float32 or int32; two flags.
    assert found.rollout_bytes == N * T * (2 * 3 * 4 + 4 + 4 + 4 + 2)
    assert found.needed_bytes == found.learner_bytes + 3 * found.rollout_bytes
    assert found.replay_bytes == 0


@pytest.mark.parametrize("epochs", [1, 4])
def test_operations_of_a_step(epochs: int) -> None:
    """Acting: the actor once. Learning: the critic's values, then in each epoch forwards once and
    backwards once for the weights and once for what went in, which the first layer does without.
    """
    actor, critic = (3, *HIDDEN, 2), (3, *HIDDEN, 1)
    both = products(*actor) + products(*critic)
    first = 2 * 3 * HIDDEN[0]
    values = products(*critic)
    by_hand = 2 * (products(*actor) + values + epochs * (3 * both - first))
    found = costs(epochs=epochs).flops_per_step
    # The values of the last successors, N of them, come on top.
    assert by_hand <= found <= by_hand + 2 * values * (N / (N * T)) + 1


def test_operations_do_not_depend_on_how_a_rollout_is_cut() -> None:
    assert costs(minibatches=2).flops_per_step == costs(minibatches=16).flops_per_step


def test_loops_count_as_often_as_they_run() -> None:
    weights = jnp.zeros((4, 4), jnp.float32)

    def chained(x):
        return jax.lax.scan(lambda carry, _: (carry @ weights, None), x, None, length=7)[0]

    jaxpr = jax.make_jaxpr(chained)(jnp.zeros((2, 4), jnp.float32)).jaxpr
    assert flops(jaxpr) == 7 * 2 * 2 * 4 * 4


def test_convolutions() -> None:
    images, kernel = np.zeros((2, 3, 8, 8), np.float32), np.zeros((5, 3, 3, 3), np.float32)
    jaxpr = jax.make_jaxpr(lambda x: jax.lax.conv(x, kernel, (1, 1), "VALID"))(images).jaxpr
    assert flops(jaxpr) == 2 * (2 * 5 * 6 * 6) * (3 * 3 * 3)


@pytest.mark.parametrize("algorithm", [trimtab.A2C(), trimtab.REINFORCE(), trimtab.PPO()])
@pytest.mark.parametrize("spec", [SPEC, dataclasses.replace(SPEC, action=Box((2,)))])
def test_every_algorithm_has_costs(algorithm, spec: EnvSpec) -> None:
    found = Costs.of(algorithm, spec, 4, 8)
    assert min(found.parameters, found.rollout_bytes, found.flops_per_step) > 0


def test_recurrent_policies_have_costs() -> None:
    assert costs(gru_units=8).flops_per_step > costs().flops_per_step
