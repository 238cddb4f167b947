"""Small things that must be learned, and what must not be.

Networks are tiny and runs take a second; what takes long here is compiling.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from learning import last_return, trained

from trimtab.algos.ppo import PPO
from trimtab.algos.sequences import starts_of, unrolled
from trimtab.envs.space_probes import space_probe

SMALL = {"hidden_sizes": (16,), "learning_rate": 1e-2}


@pytest.mark.parametrize("distribution", ["gaussian", "tanh"])
def test_ppo_reaches_continuous_actions_of_both_distributions(distribution):
    """A perfect policy gets 1; the best that does not look at the coin, 0.67."""
    ppo = PPO(**SMALL, initial_log_std=-1.0, action_distribution=distribution)
    _, metrics = trained(ppo, space_probe("box", "box"))
    assert last_return(metrics) > 0.88


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
