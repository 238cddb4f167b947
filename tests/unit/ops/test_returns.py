"""GAE against its definition, and against values computed by hand."""

import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trimtab.ops.returns import advantages_of_lanes, generalized_advantages

ENDS = st.sampled_from(["on", "terminated", "truncated", "both"])


def lambda_return_advantages(rewards, values, next_values, terminated, truncated, gamma, lam):
    """The definition, with a loop for each step: a λ-weighted sum of n-step advantages.

    A_t = Σ_n (γλ)^n δ_{t+n}, up to and with the step at which the episode ended or was cut.
    """
    steps = len(rewards)
    bootstrap = np.where(terminated, 0.0, next_values)
    deltas = rewards + gamma * bootstrap - values
    result = np.zeros(steps)
    for start in range(steps):
        weight = 1.0
        for t in range(start, steps):
            result[start] += weight * deltas[t]
            if terminated[t] or truncated[t]:
                break
            weight *= gamma * lam
    return result


@given(
    ends=st.lists(ENDS, min_size=1, max_size=12),
    gamma=st.floats(0, 1),
    lam=st.floats(0, 1),
    seed=st.integers(0, 1000),
)
def test_gae_equals_its_definition_for_every_mixture_of_ends(ends, gamma, lam, seed):
    random = np.random.default_rng(seed)
    rewards, values, next_values = random.normal(size=(3, len(ends)))
    terminated = np.array([end in ("terminated", "both") for end in ends])
    truncated = np.array([end in ("truncated", "both") for end in ends])
    ours = generalized_advantages(
        *(jnp.asarray(x, jnp.float32) for x in (rewards, values, next_values)),
        jnp.asarray(terminated),
        jnp.asarray(truncated),
        jnp.float32(gamma),
        jnp.float32(lam),
    )
    expected = lambda_return_advantages(
        rewards, values, next_values, terminated, truncated, gamma, lam
    )
    np.testing.assert_allclose(ours, expected, rtol=1e-4, atol=1e-4)


def test_gae_by_hand():
    # γ = ½, λ = ½. Step 1 is truncated: it bootstraps from 4 and cuts the recursion.
    ours = generalized_advantages(
        rewards=jnp.array([1.0, 2.0, 3.0]),
        values=jnp.array([0.0, 1.0, 2.0]),
        next_values=jnp.array([1.0, 4.0, 8.0]),
        terminated=jnp.array([False, False, True]),
        truncated=jnp.array([False, True, False]),
        discount=0.5,
        trace=0.5,
    )
    # δ = [1 + ½·1 − 0, 2 + ½·4 − 1, 3 + 0 − 2] = [1.5, 3, 1]; A₀ = 1.5 + ¼·3.
    np.testing.assert_array_equal(ours, [2.25, 3.0, 1.0])


def test_lambda_one_without_ends_is_the_discounted_return():
    rewards = jnp.array([1.0, 1.0, 1.0])
    flags = jnp.zeros(3, bool)
    values, next_values = jnp.zeros(3), jnp.array([0.0, 0.0, 8.0])
    ours = generalized_advantages(rewards, values, next_values, flags, flags, 0.5, 1.0)
    np.testing.assert_allclose(ours, [1 + 0.5 + 0.25 + 1.0, 1 + 0.5 + 2.0, 1 + 4.0])


def test_lanes_do_not_touch_each_other():
    random = np.random.default_rng(0)
    arrays = [jnp.asarray(random.normal(size=(5, 3)), jnp.float32) for _ in range(3)]
    ends = [jnp.asarray(random.random((5, 3)) < 0.3) for _ in range(2)]
    together = advantages_of_lanes(*arrays, *ends, 0.9, 0.8)
    for lane in range(3):
        alone = generalized_advantages(
            *(x[:, lane] for x in arrays), *(x[:, lane] for x in ends), 0.9, 0.8
        )
        np.testing.assert_allclose(together[:, lane], alone, rtol=1e-6)
