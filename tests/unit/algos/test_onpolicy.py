"""What all algorithms share, against numpy: rewards, statistics, advantages, memories."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trimtab.algos import onpolicy
from trimtab.algos.a2c import A2C
from trimtab.algos.observations import normalised
from trimtab.algos.onpolicy import Sample, shifted_and_scaled
from trimtab.algos.ppo import PPO
from trimtab.algos.reinforce import REINFORCE
from trimtab.errors import SettingError
from trimtab.ops.across import ALONE
from trimtab.ops.returns import discounted_so_far
from trimtab.ops.running import Running
from trimtab.spaces import ACTION_MASK, Box, Dict, Discrete, EnvSpec, MultiBinary
from trimtab.types import Rollout

SPEC = EnvSpec("Test-v0", Box((2,)), Discrete(2))
STEPS, LANES = 6, 3
SMALL = {"hidden_sizes": (4,)}


def rollout_for(algorithm, learner, terminated=None, truncated=None, seed=0):
    """A rollout whose observations go on where no episode ended, as a collector would make it."""
    random = np.random.default_rng(seed)
    flags = [np.zeros((STEPS, LANES), bool) if f is None else f for f in (terminated, truncated)]
    path = random.normal(2.0, 3.0, (STEPS + 1, LANES, 2)).astype("f4")
    ended = flags[0] | flags[1]
    next_obs = np.where(ended[..., None], random.normal(size=(STEPS, LANES, 2)), path[1:])
    first = algorithm.first_memory(algorithm.actor(learner))
    return Rollout(
        obs=jnp.asarray(path[:-1]),
        action=jnp.zeros((STEPS, LANES), jnp.int32),
        reward=jnp.asarray(random.normal(1.0, 2.0, (STEPS, LANES)), jnp.float32),
        terminated=jnp.asarray(flags[0]),
        truncated=jnp.asarray(flags[1]),
        next_obs=jnp.asarray(next_obs, jnp.float32),
        extras={"log_prob": jnp.full((STEPS, LANES), -0.7, jnp.float32)},
        memory=jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (LANES, *leaf.shape)), first),
    )


def some_ends(seed=0):
    return np.random.default_rng(seed).random((STEPS, LANES)) < 0.3


# ------------------------------------------------------------------------------------- rewards


def plain_discounted(rewards, ended, before, gamma):
    """By the definition, one lane and step at a time."""
    found = np.zeros_like(rewards)
    for lane in range(rewards.shape[1]):
        so_far = before[lane]
        for t in range(len(rewards)):
            so_far = gamma * so_far + rewards[t, lane]
            found[t, lane] = so_far
            if ended[t, lane]:
                so_far = 0.0
    return found


@given(seed=st.integers(0, 1000), gamma=st.floats(0, 1), share=st.floats(0, 1))
def test_discounted_returns_start_anew_where_an_episode_ended(seed, gamma, share):
    random = np.random.default_rng(seed)
    rewards, before = random.normal(size=(5, 2)), random.normal(size=2)
    ended = random.random((5, 2)) < share
    ours = discounted_so_far(
        jnp.asarray(rewards, jnp.float32),
        jnp.asarray(ended),
        jnp.asarray(before, jnp.float32),
        gamma,
    )
    np.testing.assert_allclose(
        ours, plain_discounted(rewards, ended, before, gamma), rtol=1e-4, atol=1e-4
    )


def test_a_lane_remembers_the_return_so_far_and_forgets_it_at_an_end():
    """The memory between rollouts is what the statistics go on from."""
    ppo = PPO(normalize_rewards=True, gamma=0.5, **SMALL)
    actor = ppo.actor(ppo.init(jax.random.key(0), SPEC))
    memory = ppo.first_memory(actor)
    found = []
    for reward, ended in ((1.0, False), (2.0, False), (4.0, True), (8.0, False)):
        memory = ppo.after_step(actor, memory, jnp.float32(reward), jnp.bool_(ended))
        found.append(float(memory.discounted))
    assert found == [1.0, 2.5, 0.0, 8.0]


def test_rewards_are_divided_by_the_deviation_of_the_rollouts_before():
    ppo = PPO(normalize_rewards=True, gamma=0.9, **SMALL)
    learner = ppo.init(jax.random.key(0), SPEC)
    ends = some_ends()
    rollout = rollout_for(ppo, learner, terminated=ends)
    # Before anything was seen the deviation is 1: the first rollout's rewards stay as they are.
    np.testing.assert_array_equal(
        onpolicy.scaled_rewards(ppo, learner, rollout.reward), rollout.reward
    )
    after = onpolicy.with_statistics(ppo, learner, rollout, jnp.zeros(1), ALONE)
    returns = plain_discounted(np.asarray(rollout.reward), ends, np.zeros(LANES), 0.9)
    scaled = onpolicy.scaled_rewards(ppo, after, rollout.reward)
    np.testing.assert_allclose(scaled, np.asarray(rollout.reward) / returns.std(), rtol=1e-4)
    # Nothing is subtracted: a reward keeps its sign.
    np.testing.assert_array_equal(np.sign(scaled), np.sign(rollout.reward))


def test_rewards_are_scaled_and_then_clipped():
    algorithm = A2C(reward_scale=2.0, reward_clip=3.0, **SMALL)
    learner = algorithm.init(jax.random.key(0), SPEC)
    found = onpolicy.scaled_rewards(algorithm, learner, jnp.array([-5.0, 1.0, 1.5, 2.0]))
    np.testing.assert_array_equal(found, [-3.0, 2.0, 3.0, 3.0])


def test_gamma_may_be_given_as_a_horizon_and_never_both():
    assert onpolicy.discount(PPO(horizon=50.0)) == 1.0 - 1.0 / 50.0
    PPO(horizon=50.0).check()
    with pytest.raises(SettingError, match=r"give one of them\. horizon = 50 is gamma = 0\.98"):
        PPO(horizon=50.0, gamma=0.9).check()


# ---------------------------------------------------------------------------------- statistics


def test_popart_moves_the_statistics_and_not_what_the_critic_says():
    ppo = PPO(value_normalization="popart", **SMALL)
    learner = ppo.init(jax.random.key(0), SPEC)
    rollout = rollout_for(ppo, learner)
    targets = jnp.asarray(np.random.default_rng(1).normal(40.0, 9.0, (STEPS, LANES)), jnp.float32)
    after = onpolicy.with_statistics(ppo, learner, rollout, targets, ALONE)
    np.testing.assert_allclose(after.targets.mean, targets.mean(), rtol=1e-4)
    np.testing.assert_allclose(after.targets.deviation, targets.std(), rtol=1e-3)

    def said(one):
        values = jax.vmap(jax.vmap(one.parameters.network().value))(rollout.obs)
        return one.targets.restored(values)

    np.testing.assert_allclose(said(after), said(learner), rtol=1e-3, atol=1e-4)
    plain = dataclasses.replace(ppo, value_normalization="returns")
    other = onpolicy.with_statistics(plain, learner, rollout, targets, ALONE)
    np.testing.assert_array_equal(other.parameters.vector, learner.parameters.vector)
    assert np.abs(said(other) - said(learner)).min() > 1.0


def test_old_targets_are_forgotten():
    """Of two hundred rollouts only about the last twenty count."""
    ppo = PPO(value_normalization="returns", **SMALL)
    learner = ppo.init(jax.random.key(0), SPEC)
    rollout = rollout_for(ppo, learner)

    @jax.jit
    def see(learner, mean):
        # The targets are given in the critic's units.
        noise = jnp.asarray(np.random.default_rng(0).normal(size=(STEPS, LANES)), jnp.float32)
        targets = learner.targets.standardised(mean + noise)
        return onpolicy.with_statistics(ppo, learner, rollout, targets, ALONE)

    for _ in range(100):
        learner = see(learner, jnp.float32(0.0))
    for _ in range(100):
        learner = see(learner, jnp.float32(50.0))
    assert abs(float(learner.targets.mean) - 50.0) < 1.0
    assert float(learner.targets.count) <= 20 * STEPS * LANES


NESTED = Dict.of(
    {
        "arm": Dict.of({"angles": Box((2,)), "gripper": Discrete(3)}),
        "camera": Box.of(0, 255, (4, 4, 1), "uint8"),
        "speed": Box((1,)),
        ACTION_MASK: MultiBinary(2),
    }
)


def test_each_part_of_a_dictionary_has_its_own_statistics_or_none():
    ppo = PPO(normalize_observations=True, **SMALL)
    learner = ppo.init(jax.random.key(0), EnvSpec("Test-v0", NESTED, Discrete(2)))
    random = np.random.default_rng(0)
    angles = random.normal([5.0, -3.0], [2.0, 0.1], (50, 2))
    obs = {
        "arm": {
            "angles": jnp.asarray(angles, jnp.float32),
            "gripper": jnp.asarray(random.integers(0, 3, 50), jnp.int32),
        },
        "camera": jnp.asarray(random.integers(0, 256, (50, 4, 4, 1)), jnp.uint8),
        "speed": jnp.full((50, 1), 7.0),  # never changes
        ACTION_MASK: jnp.ones((50, 2), jnp.int8),
    }
    merged = onpolicy.merged(learner.observations, obs, ALONE)
    seen = normalised(merged, obs)
    expected = (angles - angles.mean(0)) / angles.std(0)
    np.testing.assert_allclose(seen["arm"]["angles"], expected, rtol=1e-2, atol=1e-3)
    np.testing.assert_array_equal(seen["speed"], 0.0)
    for left in (("arm", "gripper"), ("camera",), (ACTION_MASK,)):
        ours, given_ = seen, obs
        for key in left:
            ours, given_ = ours[key], given_[key]
        np.testing.assert_array_equal(ours, given_)
    far = jax.tree.map(lambda leaf: leaf, obs) | {"speed": jnp.full((50, 1), 1e6)}
    np.testing.assert_array_equal(normalised(merged, far)["speed"], 10.0)


# ---------------------------------------------------------------------------------- advantages


def test_normalised_advantages_have_mean_zero_and_deviation_one_where_they_are_to():
    advantages = np.random.default_rng(0).normal(3.0, 5.0, (4, 8)).astype("f4")
    sample = Sample(None, None, jnp.zeros(()), jnp.asarray(advantages), jnp.zeros(()))
    within = np.asarray(shifted_and_scaled(sample, (1,), ALONE).advantage)
    np.testing.assert_allclose(within.mean(axis=1), 0.0, atol=1e-6)
    np.testing.assert_allclose(within.std(axis=1), 1.0, rtol=1e-5)
    over_all = np.asarray(shifted_and_scaled(sample, (0, 1), ALONE).advantage)
    np.testing.assert_allclose(over_all.std(), 1.0, rtol=1e-5)
    assert np.abs(over_all.mean(axis=1)).max() > 0.1


def test_equal_advantages_stay_finite():
    sample = Sample(None, None, jnp.zeros(()), jnp.full(8, 2.0), jnp.zeros(()))
    np.testing.assert_array_equal(shifted_and_scaled(sample, (0,), ALONE).advantage, 0.0)


# ---------------------------------------------------------------------------- REINFORCE and A2C


def test_reward_to_go_by_hand():
    """γ = ½, no baseline: each return sums what followed it in its episode."""
    algorithm = REINFORCE(gamma=0.5, baseline="none", **SMALL)
    learner = algorithm.init(jax.random.key(0), SPEC)
    terminated = np.zeros((STEPS, LANES), bool)
    terminated[2, 0] = True
    rollout = rollout_for(algorithm, learner, terminated=terminated)
    rewards = np.array([1.0, 2.0, 4.0, 8.0, 0.0, 16.0])
    rollout = rollout._replace(reward=jnp.asarray(np.tile(rewards[:, None], LANES), jnp.float32))
    samples, values = algorithm.prepare(learner, rollout)
    np.testing.assert_array_equal(values, 0.0)
    # 1 + ½·2 + ¼·4 = 3, 2 + ½·4 = 4, 4 | 8 + 0 + ¼·16 = 12, 0 + ½·16 = 8, 16
    np.testing.assert_allclose(samples.advantage[:, 0], [3.0, 4.0, 4.0, 12.0, 8.0, 16.0])
    # Lane 1 has no end: 1 + ½·2 + ¼·4 + ⅛·8 + 0 + 16/32
    np.testing.assert_allclose(samples.advantage[0, 1], 4.5)


@given(seed=st.integers(0, 1000), gamma=st.floats(0, 1))
def test_reward_to_go_is_completed_by_the_baseline_where_it_was_cut(seed, gamma):
    algorithm = REINFORCE(gamma=np.float32(gamma), **SMALL)
    learner = _learner_of_reinforce()
    terminated, truncated = some_ends(seed), some_ends(seed + 1)
    rollout = rollout_for(algorithm, learner, terminated, truncated, seed)
    samples, values, after = _prepared(algorithm, learner, rollout)
    after, rewards = np.asarray(after), np.asarray(rollout.reward)
    expected = np.zeros((STEPS, LANES))
    for lane in range(LANES):
        to_go = after[-1, lane]
        for t in reversed(range(STEPS)):
            if terminated[t, lane]:
                to_go = 0.0
            elif truncated[t, lane]:
                to_go = after[t, lane]
            to_go = rewards[t, lane] + gamma * to_go
            expected[t, lane] = to_go
    np.testing.assert_allclose(samples.target, expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(samples.advantage, expected - values, rtol=1e-3, atol=1e-3)


@functools.cache
def _learner_of_reinforce():
    return REINFORCE(**SMALL).init(jax.random.key(0), SPEC)


@jax.jit
def _prepared(algorithm, learner, rollout):
    """The samples, and what the baseline says of each step and of its successor."""
    value = jax.vmap(jax.vmap(learner.parameters.network().value))
    return *algorithm.prepare(learner, rollout), value(rollout.next_obs)


def test_only_whole_episodes_count_where_that_is_asked_for():
    algorithm = REINFORCE(episodes="whole", **SMALL)
    learner = algorithm.init(jax.random.key(0), SPEC)
    terminated, truncated = np.zeros((2, STEPS, LANES), bool)
    terminated[1, 0] = truncated[3, 0] = terminated[5, 1] = True
    rollout = rollout_for(algorithm, learner, terminated, truncated)
    samples, _ = algorithm.prepare(learner, rollout)
    counts = np.asarray(samples.weight) > 0
    np.testing.assert_array_equal(counts.sum(axis=0), [4, 6, 0])
    assert counts[:4, 0].all()
    # Weights are 1 on the average, so that the loss is the mean over what counts.
    np.testing.assert_allclose(samples.weight.mean(), 1.0, rtol=1e-5)
    unweighted = jax.vmap(jax.vmap(algorithm.terms, (None, 0)), (None, 0))
    network = learner.parameters.network()
    own = unweighted(network, samples).policy.mean()
    plain = unweighted(network, samples._replace(weight=None)).policy
    np.testing.assert_allclose(own, np.asarray(plain)[counts].mean(), rtol=1e-5)


def test_a_rollout_without_a_whole_episode_teaches_nothing_and_stays_finite():
    algorithm = REINFORCE(episodes="whole", **SMALL)
    learner = algorithm.init(jax.random.key(0), SPEC)
    rollout = rollout_for(algorithm, learner)
    after, metrics = jax.jit(algorithm.update)(learner, rollout, jax.random.key(0))
    np.testing.assert_array_equal(after.parameters.vector, learner.parameters.vector)
    assert all(np.isfinite(value) for value in metrics.values())


def test_a2c_sums_n_rewards_and_takes_one_step():
    """γ = ½, λ = 1: the target is the n-step return, completed by the value at the end."""
    algorithm = A2C(gamma=0.5, **SMALL)
    learner = algorithm.init(jax.random.key(0), SPEC)
    rollout = rollout_for(algorithm, learner)
    samples, _ = algorithm.prepare(learner, rollout)
    last = learner.parameters.network().value(rollout.next_obs[-1, 0])
    powers = 0.5 ** np.arange(STEPS)
    expected = (powers * np.asarray(rollout.reward[:, 0])).sum() + 0.5**STEPS * last
    np.testing.assert_allclose(samples.target[0, 0], expected, rtol=1e-4)
    after, _ = jax.jit(algorithm.update)(learner, rollout, jax.random.key(0))
    assert after.optimiser.count == 1
    flat = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
    gradient, _ = algorithm.gradient(learner.parameters, flat)
    stepped, _, _ = algorithm.optimiser_of(learner.parameters).step(
        learner.parameters, learner.optimiser, gradient
    )
    np.testing.assert_allclose(after.parameters.vector, stepped.vector, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("epochs", [1, 2, 4])
def test_reinforce_takes_as_many_steps_as_it_has_epochs(epochs):
    algorithm = REINFORCE(epochs=epochs, **SMALL)
    learner = algorithm.init(jax.random.key(0), SPEC)
    rollout = rollout_for(algorithm, learner, terminated=some_ends())
    after, _ = jax.jit(algorithm.update)(learner, rollout, jax.random.key(0))
    assert after.optimiser.count == epochs


def test_the_baseline_learns_at_a_rate_of_its_own():
    rollout_of = {}
    for rate in (1.0, 10.0):
        algorithm = REINFORCE(baseline_rate=rate, max_grad_norm=None, **SMALL)
        learner = algorithm.init(jax.random.key(0), SPEC)
        rollout = rollout_for(algorithm, learner, terminated=some_ends())
        after, _ = jax.jit(algorithm.update)(learner, rollout, jax.random.key(0))
        moved = after.parameters.vector - learner.parameters.vector
        critic = learner.parameters.mask(lambda path, _: path.startswith("critic"))
        rollout_of[rate] = np.asarray(moved)[critic], np.asarray(moved)[~critic]
    np.testing.assert_allclose(rollout_of[10.0][0], 10 * rollout_of[1.0][0], rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(rollout_of[10.0][1], rollout_of[1.0][1], rtol=1e-5)


# ---------------------------------------------------------------------------- normalising frozen


def test_statistics_of_nothing_change_nothing():
    assert float(Running.zeros(()).deviation) == 1.0
    np.testing.assert_array_equal(Running.zeros((2,)).normalize(jnp.array([3.0, -4.0])), [3, -4])
