"""PPO's own mathematics, on numbers that can be followed by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.diagnostics import explained_variance
from trimtab.algos.ppo import PPO, Sample
from trimtab.errors import SettingError, UnsupportedSpaceError
from trimtab.spaces import Box, Discrete, EnvSpec
from trimtab.types import Rollout

SPEC = EnvSpec("Test-v0", Box((2,)), Discrete(2))


@dataclasses.dataclass(frozen=True)
class FixedNetwork:
    """Stands in for a network: a policy of given log-probabilities and a given value."""

    logits: jax.Array
    constant: float

    def policy(self, obs, hidden):
        from trimtab.nets.heads import Categorical

        return Categorical(self.logits)

    def value(self, obs, hidden):
        return jnp.float32(self.constant)


def sample(advantage, old_probability):
    return Sample(
        obs=jnp.zeros(2),
        action=jnp.int32(0),
        log_prob=jnp.log(jnp.float32(old_probability)),
        advantage=jnp.float32(advantage),
        target=jnp.float32(3.0),
    )


@pytest.mark.parametrize(
    ("advantage", "old", "policy_loss", "clipped"),
    [
        (1.0, 0.5, -1.0, 0),  # ratio 1: the plain gradient
        (1.0, 0.4, -1.2, 1),  # ratio 1.25, gain clipped at 1.2
        (-1.0, 0.4, 1.25, 1),  # the loss of a bad action is not clipped on that side
        (1.0, 0.8, -0.625, 1),  # a good action made less likely: not clipped either
        (-1.0, 0.8, 0.8, 1),  # ratio 0.625, clipped at 0.8
    ],
)
def test_clipped_surrogate(advantage, old, policy_loss, clipped):
    ppo = PPO(clip_range=0.2, value_coefficient=0.5, entropy_coefficient=0.01)
    network = FixedNetwork(jnp.zeros(2), 1.0)  # π(0) = ½
    terms = ppo.terms(network, sample(advantage, old))
    np.testing.assert_allclose(terms.policy, policy_loss, rtol=1e-5)
    assert terms.clipped == clipped
    np.testing.assert_allclose(terms.value, 0.5 * (1.0 - 3.0) ** 2)
    np.testing.assert_allclose(terms.entropy, np.log(2), rtol=1e-6)
    ratio = 0.5 / old
    np.testing.assert_allclose(terms.approx_kl, ratio - 1 - np.log(ratio), rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(
        ppo.loss(network, sample(advantage, old)),
        policy_loss + 0.5 * 2.0 - 0.01 * np.log(2),
        rtol=1e-5,
    )


def rollout_of(network, terminated, truncated):
    steps = len(terminated)
    obs = jax.random.normal(jax.random.key(1), (steps, 1, 2))
    next_obs = jax.random.normal(jax.random.key(2), (steps, 1, 2))
    on = ~(np.array(terminated) | np.array(truncated))
    next_obs = next_obs.at[:-1].set(jnp.where(on[:-1, None, None], obs[1:], next_obs[:-1]))
    return Rollout(
        obs=obs,
        action=jnp.zeros((steps, 1), jnp.int32),
        reward=jnp.ones((steps, 1)),
        terminated=jnp.array(terminated)[:, None],
        truncated=jnp.array(truncated)[:, None],
        next_obs=next_obs,
        extras={"log_prob": jnp.zeros((steps, 1))},
    )


def test_targets_bootstrap_from_the_true_successor():
    """Terminated: nothing after. Truncated: the value where it stopped. Cut: the last successor."""
    ppo = PPO(gamma=0.9, gae_lambda=0.0)
    learner = ppo.init(jax.random.key(0), SPEC)
    value = learner.parameters.network().value
    rollout = rollout_of(None, [False, True, False, False], [False, False, True, False])
    samples, values = ppo.prepare(learner, rollout)
    successor = [value(rollout.next_obs[t, 0]) for t in range(4)]
    expected = [1 + 0.9 * successor[0], 1.0, 1 + 0.9 * successor[2], 1 + 0.9 * successor[3]]
    np.testing.assert_allclose(samples.target[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(samples.advantage, samples.target - values, rtol=1e-5, atol=1e-6)


def test_linear_learning_rate_reaches_zero_with_the_last_update():
    ppo = PPO(learning_rate=1.0, learning_rate_schedule="linear", total_updates=10.0)
    rates = [float(ppo.at(jnp.int32(update)).learning_rate) for update in (0, 5, 9, 10, 12)]
    np.testing.assert_allclose(rates, [1.0, 0.5, 0.1, 0.0, 0.0], atol=1e-6)
    constant = PPO(learning_rate=1.0, total_updates=10.0)
    assert constant.at(jnp.int32(5)).learning_rate == 1.0


def test_explained_variance():
    targets = jnp.array([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(targets, targets) == 1.0
    assert explained_variance(jnp.full(4, 2.5), targets) == 0.0
    np.testing.assert_allclose(explained_variance(-targets, targets), 1 - 4.0)
    assert explained_variance(jnp.zeros(4), jnp.ones(4)) == 0.0  # nothing to explain


def test_floats_are_leaves_and_the_rest_is_static():
    ppo = PPO()
    floats = [f.name for f in dataclasses.fields(ppo) if isinstance(getattr(ppo, f.name), float)]
    assert "learning_rate" in floats
    assert "epochs" not in floats
    assert sorted(jax.tree.leaves(ppo)) == sorted(getattr(ppo, name) for name in floats)


def test_normalising_discrete_observations_is_refused():
    with pytest.raises(SettingError, match="normalize_observations has no effect"):
        PPO(normalize_observations=True).init(
            jax.random.key(0), EnvSpec("Table-v0", Discrete(5), Discrete(2))
        )


def test_actions_it_cannot_take_are_refused():
    with pytest.raises(UnsupportedSpaceError, match="cannot act in Box"):
        PPO().init(jax.random.key(0), EnvSpec("Odd-v0", Box((2,)), Box((2,), dtype="int32")))
