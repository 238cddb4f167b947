"""Of every algorithm: the ratio begins at 1, floats are data, and runs repeat themselves."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos import onpolicy
from trimtab.algos.a2c import A2C
from trimtab.algos.ppo import PPO
from trimtab.algos.reinforce import REINFORCE
from trimtab.collect.fused import collect_fused
from trimtab.envs.make import make
from trimtab.envs.space_probes import space_probe
from trimtab.ops.across import ALONE
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

    Seven lanes leave a remainder, which XLA computes with other instructions than the rest.
    """
    env_name, settings = POLICIES[name]
    ppo = PPO(**{**SMALL, **settings}, epochs=1, minibatches=1)
    env = environment(env_name)
    run = jax.jit(functools.partial(begin, env=env, num_envs=7))(ppo, root=jax.random.key(0))
    after, metrics = make_step(env, STEPS, 6, None)(ppo, run, 6)
    assert float(metrics["train/update_norm"].min()) > 0
    for ratio in ("train/ratio_min", "train/ratio_max"):
        np.testing.assert_array_equal(metrics[ratio], 1.0)
    for zero in ("train/approx_kl", "train/log_ratio_kl", "train/clip_fraction"):
        np.testing.assert_array_equal(metrics[zero], 0.0)
    if "normalize_observations" in settings:
        assert jax.tree.leaves(after.learner.observations)[0] == 6 * 7 * STEPS


@functools.cache
def collected(name):
    """A network, the samples of a rollout that it collected, and what is compiled to look at it."""
    env_name, settings = POLICIES[name]
    ppo = PPO(**{**SMALL, **settings})
    env = environment(env_name)

    @jax.jit
    def collect(key):
        run = begin(ppo, env, LANES, key)
        run = run._replace(learner=seen_before(run.learner))
        actor = ppo.actor(run.learner)
        rollout = collect_fused(ppo, env, actor, run.lanes, key, jnp.int32(0), STEPS)[1]
        return run.learner, rollout

    return ppo, *collect(jax.random.key(1))


def seen_before(learner):
    """A learner whose normalisers are not at their beginning."""
    return learner._replace(
        observations=jax.tree.map(lambda leaf: leaf + 10.0, learner.observations)
    )


@functools.partial(jax.jit, static_argnums=3)
def log_ratios(learner, samples, off, plain):
    """Those of a loss, and their gradients; ``plain``: without what is done about rounding."""

    def of_one(vector, sample):
        network = dataclasses.replace(learner.parameters, vector=vector).network()
        policy = network.policy(sample.obs, sample.hidden)
        if plain:
            return onpolicy.log_prob_of(policy, sample) - sample.log_prob
        return onpolicy.log_ratio(policy, sample)

    moved = samples._replace(log_prob=samples.log_prob + off)
    both = jax.vmap(jax.value_and_grad(of_one), (None, 0))
    return jax.vmap(both, (None, 0))(learner.parameters.vector, moved)


@pytest.mark.parametrize("name", POLICIES)
def test_only_rounding_is_taken_for_no_difference(name):
    """A log-probability that is off by more is seen as it is, and gradients are left alone."""
    ppo, learner, rollout = collected(name)
    samples, _ = ppo.prepare(learner, rollout)
    plain, gradient = log_ratios(learner, samples, 0.0, True)
    # What two programs differ by is far below what is taken for rounding.
    assert np.abs(plain).max() < onpolicy.ROUNDING / 5
    found, same_gradient = log_ratios(learner, samples, 0.0, False)
    np.testing.assert_array_equal(found, 0.0)
    np.testing.assert_array_equal(gradient, same_gradient)
    assert np.abs(gradient).max() > 0
    off = 1e-3
    found, _ = log_ratios(learner, samples, off, False)
    np.testing.assert_allclose(found, -off, atol=1e-5)


def test_a_normaliser_that_has_moved_on_is_noticed():
    """Which is why statistics are updated after the gradient steps."""
    ppo, learner, rollout = collected("gaussian")
    later = onpolicy.with_statistics(ppo, learner, rollout, rollout.reward, ALONE)
    samples, _ = ppo.prepare(later, rollout)
    found, _ = log_ratios(learner, samples, 0.0, False)
    assert np.abs(found).max() > 1e-3


def test_a_squashed_policy_notes_what_was_squashed():
    _, _, rollout = collected("tanh")
    before = np.asarray(rollout.extras["before"], np.float64)
    np.testing.assert_allclose(rollout.action, np.tanh(before), rtol=1e-5, atol=2e-6)
    assert np.abs(rollout.action).max() < 1
    assert np.abs(before).max() > 0.5


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
            own = onpolicy.log_prob_of(network.policy(sample.obs, sample.hidden), sample)
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
