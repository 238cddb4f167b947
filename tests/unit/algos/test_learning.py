"""Each algorithm learns what it must: probes, CartPole, continuous actions, every space, memory.

Networks are tiny and runs take a second; what takes long here is compiling.
"""

import dataclasses
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learning import last_return, trained

from trimtab.algos.a2c import A2C
from trimtab.algos.ppo import PPO
from trimtab.algos.registry import algorithm_class
from trimtab.algos.reinforce import REINFORCE
from trimtab.algos.sequences import starts_of, unrolled
from trimtab.configuration import default_configuration
from trimtab.envs.make import make
from trimtab.envs.space_probes import space_probe
from trimtab.training.config import num_updates

TINY = {"hidden_sizes": (8,), "learning_rate": 2e-2}
SMALL = {"hidden_sizes": (16,), "learning_rate": 1e-2}
ALGORITHMS = [PPO, A2C, REINFORCE]


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("kind", ALGORITHMS)
def test_each_algorithm_solves_the_probes(kind, number):
    """The critic's values are the optimal ones, and the best action is taken."""
    env = make(f"Probe{number}-v0")
    run, metrics = trained(kind(**TINY, gamma=0.8), env, updates=150)
    value = run.learner.parameters.network().value
    for signal in {1: (0.0,), 2: (-1.0, 1.0), 3: (0.0, 1.0), 4: (0.0,), 5: (-1.0, 1.0)}[number]:
        assert float(value(jnp.array([signal]))) == pytest.approx(env.value(signal, 0.8), abs=0.15)
    if number > 3:
        assert last_return(metrics) > 0.95


@pytest.mark.parametrize("name", ["ppo", "a2c", "reinforce"])
def test_each_algorithm_solves_cartpole(name):
    """With its preset."""
    preset = default_configuration("CartPole-v1", name).checked()
    updates, settings = num_updates(preset.training), dataclasses.asdict(preset.algorithm)
    algorithm = algorithm_class(name)(**settings, total_updates=float(updates))
    lanes, steps = preset.training.num_envs, preset.training.num_steps
    _, metrics = trained(algorithm, make("CartPole-v1"), lanes, steps, updates)
    assert last_return(metrics) > 475


@pytest.mark.parametrize("number", [3, 5])
def test_whole_episodes_solve_the_probes(number):
    test_each_algorithm_solves_the_probes(partial(REINFORCE, episodes="whole"), number)


@pytest.mark.slow
def test_whole_episodes_solve_cartpole():
    """With the learning rate of the preset, and as many steps."""
    algorithm = REINFORCE(
        episodes="whole",
        learning_rate=1e-2,
        learning_rate_schedule="linear",
        total_updates=250.0,
    )
    _, metrics = trained(algorithm, make("CartPole-v1"), lanes=4, steps=500, updates=250)
    assert last_return(metrics) > 475


# Every observation and every action at least once, and what policies may be made of.
SPACES = [
    (A2C(**SMALL), "discrete", "multidiscrete"),
    (PPO(**SMALL), "multidiscrete", "multibinary"),
    (REINFORCE(**SMALL), "multibinary", "discrete"),
    (A2C(**SMALL), "image", "discrete"),
    (PPO(**SMALL, trunk="shared"), "dict", "discrete"),
    (PPO(**SMALL), "masked", "discrete"),
    (PPO(**SMALL, initial_log_std=-1.0), "box", "box"),
    (A2C(**SMALL, initial_log_std=-1.0, state_dependent_std=True), "box", "box"),
    (PPO(**SMALL, initial_log_std=-1.0, action_distribution="tanh"), "private", "box"),
]


@pytest.mark.parametrize(
    ("algorithm", "observation", "action"),
    SPACES,
    ids=[f"{type(one).__name__}-{seen}-{acted}" for one, seen, acted in SPACES],
)
def test_every_observation_is_seen_and_every_action_reached(algorithm, observation, action):
    """A perfect policy gets 1; blind ones get 0.5 of discrete actions, and 0.67 of continuous."""
    _, metrics = trained(algorithm, space_probe(observation, action))
    assert last_return(metrics) > 0.88


def test_a_critic_that_sees_more_does_not_tell_the_actor():
    """The coin is shown under the key ``private`` alone."""
    env = space_probe("private", "discrete")
    blind = A2C(**SMALL, actor_keys=("public",))
    run, metrics = trained(blind, env)
    assert last_return(metrics) < 0.65  # a guess between two of four actions is right half the time
    sees = {"public": jnp.zeros(1), "private": jnp.ones(1)}
    network = run.learner.parameters.network()
    other = sees | {"private": -jnp.ones(1)}
    np.testing.assert_array_equal(network.policy(sees).logits, network.policy(other).logits)
    assert float(network.value(sees)) != float(network.value(other))


@pytest.mark.slow
def test_ppo_swings_a_pendulum_up():
    ppo = PPO(
        learning_rate=1e-3,
        learning_rate_schedule="linear",
        gamma=0.95,
        gae_lambda=0.9,
        epochs=10,
        minibatches=8,
        initial_log_std=-0.5,
        total_updates=150.0,
    )
    _, metrics = trained(ppo, make("Pendulum-v1"), lanes=32, steps=64, updates=150)
    assert last_return(metrics) > -300


@pytest.mark.parametrize("units", [8, None])
def test_a_recurrent_policy_remembers_what_a_feed_forward_one_cannot(units):
    """The coin is shown at the first of four steps, and asked for at the last."""
    ppo = PPO(**SMALL, gru_units=units)
    _, metrics = trained(ppo, space_probe("memory", "discrete", length=4))
    if units:
        assert last_return(metrics) > 0.85
    else:
        assert last_return(metrics) < 0.65


def test_sequences_are_cut_where_episodes_end():
    """In a rollout of 8 steps two episodes of 4 follow each other: the hidden state starts anew."""
    env = space_probe("memory", "discrete", length=4)
    learner = PPO(**SMALL, gru_units=4).init(jax.random.key(0), env.spec)
    network = learner.parameters.network()
    obs = jax.random.normal(jax.random.key(0), (8, 1))
    ended = jnp.array([False, False, False, True] * 2)
    before, after = unrolled(network, obs, jnp.ones(4), starts_of(ended))
    np.testing.assert_array_equal(before[0], 1.0)
    np.testing.assert_array_equal(before[4], 0.0)
    np.testing.assert_array_equal(before[1:4], after[:3])
    alone, _ = unrolled(network, obs[4:], jnp.zeros(4), starts_of(ended[4:]))
    np.testing.assert_allclose(before[4:], alone, rtol=1e-6)
