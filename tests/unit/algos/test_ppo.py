"""PPO's own mathematics, on numbers that can be followed by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.algos.diagnostics import Over, explained, spreads, variance_of
from trimtab.algos.ppo import PPO, Sample, adapted
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


@pytest.mark.parametrize(
    ("values", "expected"), [([1, 2, 3, 4], 1.0), ([2.5] * 4, 0.0), ([-1, -2, -3, -4], 1 - 4.0)]
)
def test_explained_variance(values, expected):
    targets = jnp.array([[1.0, 2.0, 3.0, 4.0]])
    error = targets - jnp.asarray([values], jnp.float32)
    np.testing.assert_allclose(explained(variance_of(error), variance_of(targets)), expected)


def test_a_constant_target_leaves_nothing_to_explain():
    assert explained(variance_of(jnp.ones((2, 2))), variance_of(jnp.zeros((2, 2)))) == 0.0


@pytest.mark.parametrize("counted", [None, np.tri(5, 4, dtype=bool)])
def test_spreads_are_those_of_numpy(counted):
    numbers = {name: np.random.default_rng(0).normal(3, 2, (5, 4)) for name in ("a", "b")}
    numbers["b"] = -2 * numbers["b"]
    over = Over(None if counted is None else jnp.asarray(counted))
    found = spreads({name: jnp.asarray(one, jnp.float32) for name, one in numbers.items()}, over)
    for name, one in numbers.items():
        one = one if counted is None else one[counted]
        expected = {"mean": one.mean(), "std": one.std(), "min": one.min(), "max": one.max()}
        for figure, value in expected.items():
            np.testing.assert_allclose(found[f"{name}_{figure}"], value, rtol=1e-5)


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


# ------------------------------------------------------------------------------------- options


def test_dual_clip_bounds_what_a_bad_action_may_cost():
    """Ratio 5 with advantage −1 costs 5; with a dual clip of 3, no more than 3, and no gradient."""
    network = FixedNetwork(jnp.zeros(2), 1.0)
    plain, dual = PPO(), PPO(dual_clip=3.0)
    np.testing.assert_allclose(plain.terms(network, sample(-1.0, 0.1)).policy, 5.0, rtol=1e-5)
    np.testing.assert_allclose(dual.terms(network, sample(-1.0, 0.1)).policy, 3.0, rtol=1e-5)
    for advantage, old in ((-1.0, 0.4), (1.0, 0.1), (1.0, 0.8)):  # untouched
        ours, theirs = (one.terms(network, sample(advantage, old)).policy for one in (dual, plain))
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("old_value", "loss"),
    [
        (1.0, 2.0),  # unmoved: ½ (1 − 3)²
        (0.5, 0.5 * 2.3**2),  # moved up by ½, which is clipped to 0.7, further from the target
        (2.0, 2.0),  # moved away: the clipped value 1.8 is nearer, and the worse one counts
    ],
)
def test_value_clipping_takes_the_worse_of_two_losses(old_value, loss):
    ppo = PPO(value_clip_range=0.2)
    network = FixedNetwork(jnp.zeros(2), 1.0)
    one = sample(1.0, 0.5)._replace(value=jnp.float32(old_value))
    np.testing.assert_allclose(ppo.terms(network, one).value, loss, rtol=1e-5)


def test_the_learning_rate_follows_the_kl_divergence():
    one = jnp.float32(1.0)
    found = [float(adapted(one, jnp.float32(kl), 0.01)) for kl in (0.05, 0.012, 0.001)]
    np.testing.assert_allclose(found, [1 / 1.5, 1.0, 1.5], rtol=1e-6)
    assert adapted(jnp.float32(100.0), jnp.float32(0.0), 0.01) == 100.0
    assert adapted(jnp.float32(0.01), jnp.float32(1.0), 0.01) == np.float32(0.01)


STEPS, LANES = 8, 2
QUICK = {"hidden_sizes": (4,), "learning_rate": 3e-2}


def updated(learner_of=None, key=0, **settings):
    """One update on a rollout whose actions the first policy chose."""
    ppo = PPO(**{**QUICK, **settings})
    start = PPO(**{**QUICK, **settings}).init(jax.random.key(0), SPEC)
    obs = jax.random.normal(jax.random.key(1), (STEPS + 1, LANES, 2))
    noise = jax.random.uniform(jax.random.key(2), (STEPS, LANES))
    actor, memory = ppo.actor(start), ppo.first_memory(ppo.actor(start))
    act = jax.vmap(jax.vmap(ppo.act, (None, None, 0, 0)), (None, None, 0, 0))
    action, extras, _ = act(actor, memory, obs[:-1], noise)
    never = jnp.zeros((STEPS, LANES), bool)
    rollout = Rollout(
        obs[:-1],
        action,
        obs[:-1, :, 0] * action.astype(jnp.float32),
        never,
        never,
        obs[1:],
        extras,
        memory,
    )
    before = start if learner_of is None else learner_of(start, rollout)
    return jax.jit(ppo.update)(before, rollout, jax.random.key(key)), rollout


def test_epochs_stop_once_the_policy_has_moved_too_far():
    (_, metrics), _ = updated(epochs=5, minibatches=2, target_kl=1e-9)
    assert metrics["train/epochs"] == 1.0
    (after, metrics), _ = updated(epochs=5, minibatches=2, target_kl=10.0)
    assert metrics["train/epochs"] == 5.0
    assert after.optimiser.count == 10
    (other, _), _ = updated(epochs=5, minibatches=2)
    np.testing.assert_allclose(after.parameters.vector, other.parameters.vector, rtol=1e-5)


def test_a_policy_that_moves_too_far_slows_down():
    (after, metrics), _ = updated(adaptive_kl=1e-6)
    np.testing.assert_allclose(metrics["train/learning_rate"], 3e-2)
    np.testing.assert_allclose(after.rate, 1 / 1.5, rtol=1e-6)


def test_recomputed_advantages_are_those_of_the_newest_critic():
    """Two epochs of one minibatch each are then two updates of one epoch on the same rollout."""
    whole = {"minibatches": 1, "advantage_normalization": "off"}

    def learned_once(start, rollout):
        once = PPO(**QUICK, **whole, epochs=1)
        return jax.jit(once.update)(start, rollout, jax.random.key(7))[0]

    (twice, _), _ = updated(learned_once, **whole, epochs=1)
    (recomputed, _), _ = updated(**whole, epochs=2, recompute_advantages=True)
    (fixed, _), _ = updated(**whole, epochs=2)
    np.testing.assert_allclose(
        recomputed.parameters.vector, twice.parameters.vector, rtol=1e-4, atol=1e-6
    )
    assert np.abs(fixed.parameters.vector - twice.parameters.vector).max() > 1e-5


def test_the_estimate_of_the_kl_divergence_has_its_mean():
    """Against the closed form for normals: KL(old ‖ new) = ½ Σ (μ₁ − μ₀)², deviations 1."""
    from trimtab.nets.heads import DiagonalGaussian

    old = DiagonalGaussian(jnp.zeros(2), jnp.zeros(2))
    new = DiagonalGaussian(jnp.array([0.3, -0.2]), jnp.zeros(2))

    @dataclasses.dataclass(frozen=True)
    class Moved(FixedNetwork):
        def policy(self, obs, hidden):
            return new

    actions = jax.vmap(old.sample)(jax.random.normal(jax.random.key(0), (20_000, 2)))
    samples = sample(1.0, 0.5)._replace(log_prob=jnp.zeros(()))
    network = Moved(jnp.zeros(2), 0.0)

    def estimates(action):
        one = samples._replace(action=action, log_prob=old.log_prob(action))
        terms = PPO().terms(network, one)
        return terms.approx_kl, terms.log_ratio_kl

    for each in jax.vmap(estimates)(actions):
        error = float(each.std()) / np.sqrt(len(each))
        assert abs(float(each.mean()) - 0.5 * (0.09 + 0.04)) < 4 * error
