"""One algorithm object: however its lanes are stepped, the same numbers come out, bit for bit."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
from jax_as_gymnasium import AsGymnasium

from trimtab.algos.ppo import PPO
from trimtab.algos.reinforce import REINFORCE
from trimtab.collect.acting import MOST_PACKED, ActingPrograms
from trimtab.envs.make import make
from trimtab.envs.sources import changed, source_of
from trimtab.envs.wrappers import wrapped
from trimtab.training.config import TrainSettings
from trimtab.training.devices import DevicePlan
from trimtab.training.fused import FusedSession
from trimtab.training.host import HostSession
from trimtab.training.session import as_arrays

LANES, STEPS, UPDATES, SEED = 4, 16, 3, 5
ALGORITHM = as_arrays(
    dataclasses.replace(
        PPO(hidden_sizes=(16,), epochs=2, minibatches=2, normalize_rewards=True),
        total_updates=10.0,
    )
)
REINFORCING = as_arrays(
    dataclasses.replace(
        REINFORCE(hidden_sizes=(16,), episodes="whole", normalize_rewards=True),
        total_updates=10.0,
    )
)
SETTINGS = TrainSettings(
    seed=SEED,
    num_envs=LANES,
    num_steps=STEPS,
    total_steps=10_000,
    staggered_starts="off",
)


def learned(session):
    """Parameters and the mean return after each update."""
    session.check()
    try:
        run, programs = session.compile()
        vectors, returns = [], []
        for _ in range(UPDATES):
            run, metrics = programs.step(session.algorithm, run, np.int32(1))
            vectors.append(np.asarray(run.learner.parameters.vector))
            returns.append(np.asarray(metrics["rollout/return_mean"])[0])
        return np.array(vectors), np.array(returns)
    finally:
        session.close()


@functools.cache
def fused(env_id):
    return learned(FusedSession(make(env_id), ALGORITHM, SETTINGS, DevicePlan(1, False)))


@pytest.mark.parametrize(
    ("env_id", "vectorization", "workers"),
    [
        ("FrozenLake-v1", "in-process", 0),
        ("FrozenLake-v1", "workers", 2),
        pytest.param("FrozenLake-v1", "workers", LANES, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", "in-process", 0, marks=pytest.mark.slow),
    ],
)
def test_host_collection_learns_what_compiled_collection_learns(env_id, vectorization, workers):
    expected, returns = fused(env_id)
    assert np.isfinite(returns).any()  # episodes ended
    assert (np.diff(expected, axis=0) != 0).any(axis=1).all()  # each update changed something
    make_env = functools.partial(AsGymnasium, env_id, SEED, LANES, STEPS)
    settings = dataclasses.replace(
        SETTINGS, vectorization=vectorization, num_workers=workers, staggered_starts="auto"
    )
    found, same_returns = learned(HostSession(source_of(make_env), ALGORITHM, settings))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(same_returns.astype(np.float32), returns)


LIMIT = 20  # of episodes, where they are whole
WHOLE = dataclasses.replace(SETTINGS, num_steps=LIMIT + 5)


@functools.cache
def fused_whole(env_id):
    env = wrapped(make(env_id), action_repeat=1, max_episode_steps=LIMIT)
    return learned(FusedSession(env, REINFORCING, WHOLE, DevicePlan(1, False)))


@pytest.mark.parametrize(
    ("env_id", "vectorization", "workers"),
    [
        ("FrozenLake-v1", "in-process", 0),
        pytest.param("FrozenLake-v1", "workers", 2, marks=pytest.mark.slow),
        pytest.param("CartPole-v1", "in-process", 0, marks=pytest.mark.slow),
    ],
)
def test_whole_episodes_are_the_same_however_they_are_collected(env_id, vectorization, workers):
    expected, returns = fused_whole(env_id)
    assert np.isfinite(returns).all()
    assert (np.diff(expected, axis=0) != 0).any(axis=1).all()
    rows = WHOLE.num_steps + LIMIT
    make_env = functools.partial(AsGymnasium, env_id, SEED, LANES, rows, UPDATES)
    settings = dataclasses.replace(
        WHOLE, vectorization=vectorization, num_workers=workers, staggered_starts="auto"
    )
    source = changed(source_of(make_env), action_repeat=1, max_episode_steps=LIMIT)
    found, same_returns = learned(HostSession(source, REINFORCING, settings))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(same_returns.astype(np.float32), returns)


def test_the_arrays_of_a_large_network_reach_the_actor_too():
    """Those above a size are handed over by themselves; the policy must be the same."""
    algorithm = PPO(hidden_sizes=(160, 160))
    env = make("FrozenLake-v1")
    learner = algorithm.init(jax.random.key(0), env.spec)
    programs = ActingPrograms(algorithm, learner, env.spec.action, LANES, STEPS)
    prepared = programs.prepare(algorithm, learner, jax.random.key(1), np.int32(0))
    assert [leaf.size > MOST_PACKED for leaf in prepared.large] == [True, True]
    memory, obs = programs.first_memories(algorithm, learner), jax.numpy.arange(LANES)
    found = programs.act(prepared, memory, None, obs, 3)
    network = algorithm.actor(learner).network
    for lane in range(LANES):
        policy = network.policy(obs[lane])
        expected = policy.log_prob(found.action[lane])
        np.testing.assert_allclose(found.extras["log_prob"][lane], expected, rtol=1e-5)
