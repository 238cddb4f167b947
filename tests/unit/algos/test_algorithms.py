"""Of every algorithm: the ratio begins at 1, floats are data, and runs repeat themselves."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.a2c import A2C
from trimtab.algos.ppo import PPO
from trimtab.algos.reinforce import REINFORCE
from trimtab.collect.fused import collect_fused
from trimtab.envs.make import make
from trimtab.envs.space_probes import space_probe
from trimtab.settings import field_types
from trimtab.training.step import begin, make_step

SMALL = {"hidden_sizes": (8,), "learning_rate": 1e-2}
LANES, STEPS = 8, 8


@functools.cache
def environment(name):
    observation, _, action = name.partition("/")
    return space_probe(observation, action, 2) if action else make(name)


# Each head, each encoder, and what stands between them.
POLICIES = {
    "categorical": ("box/discrete", {"normalize_observations": True}),
    "masked": ("masked/discrete", {"normalize_observations": True}),
    "multidiscrete": ("dict/multidiscrete", {"trunk": "shared"}),
    "multibinary": ("multidiscrete/multibinary", {}),
    "gaussian": ("box/box", {"normalize_observations": True}),
    "state-dependent": ("box/box", {"state_dependent_std": True, "normalize_observations": True}),
    "tanh": ("box/box", {"action_distribution": "tanh", "initial_log_std": -1.0}),
    "gru": ("memory/discrete", {"gru_units": 4, "normalize_observations": True}),
}


@pytest.mark.parametrize("name", POLICIES)
def test_the_ratio_is_one_on_the_first_minibatch_of_every_update(name):
    """With one minibatch in one epoch, the only ratios of an update are those of its first.

    A squashed action is unsquashed again, and hidden states are computed again from a rollout's
    first: there the last places of a log-probability may differ, by some 1e-7.
    """
    env_name, settings = POLICIES[name]
    ppo = PPO(**{**SMALL, **settings}, epochs=1, minibatches=1)
    env = environment(env_name)
    run = jax.jit(functools.partial(begin, env=env, num_envs=LANES))(ppo, root=jax.random.key(0))
    after, metrics = make_step(env, STEPS, 6, None)(ppo, run, 6)
    assert float(metrics["train/update_norm"].min()) > 0
    computed_again = name in ("tanh", "gru")
    places = 5e-7 if computed_again else 0.0
    np.testing.assert_allclose(metrics["train/ratio_min"], 1.0, rtol=0, atol=places)
    np.testing.assert_allclose(metrics["train/ratio_max"], 1.0, rtol=0, atol=places)
    divergence = 1e-14 if computed_again else 0.0
    np.testing.assert_allclose(metrics["train/approx_kl"], 0.0, rtol=0, atol=divergence)
    np.testing.assert_array_equal(metrics["train/clip_fraction"], 0.0)
    if "normalize_observations" in settings:
        assert jax.tree.leaves(after.learner.observations)[0] == 6 * LANES * STEPS


@pytest.mark.parametrize("name", POLICIES)
def test_the_divergence_of_a_policy_from_itself_is_zero(name):
    """Exactly, since both probabilities are computed in one program."""
    env_name, settings = POLICIES[name]
    ppo = PPO(**{**SMALL, **settings})
    env = environment(env_name)

    @jax.jit
    def divergences(key):
        run = begin(ppo, env, LANES, key)
        actor = ppo.actor(run.learner)
        rollout = collect_fused(ppo, env, actor, run.lanes, key, jnp.int32(0), STEPS)[1]
        samples, _ = ppo.prepare(run.learner, rollout)

        def of_one(sample):
            network = actor.network
            own = network.policy(sample.obs, sample.hidden).log_prob(sample.action)
            terms = ppo.terms(network, sample._replace(log_prob=own))
            return terms.approx_kl, terms.log_ratio_kl

        return jax.vmap(jax.vmap(of_one))(samples)

    for each in divergences(jax.random.key(1)):
        np.testing.assert_array_equal(each, 0.0)


def with_other_floats(algorithm):
    """Every float of the algorithm changed, all of them still sensible."""
    kinds = field_types(type(algorithm))
    floats = [name for name, kind in kinds.items() if kind is float and name != "total_updates"]
    return dataclasses.replace(
        algorithm, **{name: 0.7 * getattr(algorithm, name) + 0.01 for name in floats}
    )


@pytest.mark.parametrize("kind", [PPO, A2C, REINFORCE])
def test_runs_repeat_themselves_and_no_float_compiles_anew(kind):
    env = environment("Probe5-v0")
    algorithm = kind(**SMALL, normalize_observations=True)
    step = make_step(env, STEPS, 3, None)
    start = jax.jit(functools.partial(begin, env=env, num_envs=LANES))

    def train(algorithm, seed):
        run = start(algorithm, root=jax.random.key(seed))
        return step(algorithm, run, 3)

    (first, metrics), (second, again) = train(algorithm, 0), train(algorithm, 0)
    np.testing.assert_array_equal(first.learner.parameters.vector, second.learner.parameters.vector)
    for name in metrics:
        np.testing.assert_array_equal(metrics[name], again[name], err_msg=name)
    other, _ = train(algorithm, 1)
    assert np.any(other.learner.parameters.vector != first.learner.parameters.vector)
    changed, _ = train(with_other_floats(algorithm), 0)
    assert np.any(changed.learner.parameters.vector != first.learner.parameters.vector)
    assert (step._cache_size(), start._cache_size()) == (1, 1)


@pytest.mark.parametrize("kind", [PPO, A2C, REINFORCE])
def test_every_float_is_data(kind):
    """Any one of them may change, be traced or be mapped over, and the program is the same."""
    algorithm = kind()
    values = dataclasses.asdict(algorithm)
    floats = {name for name, value in values.items() if isinstance(value, float)}
    assert len(jax.tree.leaves(algorithm)) == len(floats) > 10
    for name in floats:
        other = dataclasses.replace(algorithm, **{name: 0.123})
        assert jax.tree.structure(other) == jax.tree.structure(algorithm)
        assert jax.tree.leaves(other) != jax.tree.leaves(algorithm)
