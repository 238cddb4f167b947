"""The probes do what their table says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.envs import make
from trimtab.errors import SettingError


def first_step(name: str, action: int, lanes: int = 64):
    """First observation, state and transition of many episodes."""
    env = make(name)
    keys = jax.random.split(jax.random.key(0), lanes)
    state, obs = jax.vmap(env.reset)(keys)
    state, transition = jax.vmap(env.step)(keys, state, jnp.full(lanes, action))
    return obs[:, 0], state, transition


def test_constant_reward() -> None:
    obs, _, transition = first_step("Probe1-v0", 0)
    assert (obs == 0).all()
    assert (transition.reward == 1).all()
    assert transition.terminated.all()
    assert make("Probe1-v0").value(0.0, 0.9) == 1.0


def test_reward_from_observation() -> None:
    obs, _, transition = first_step("Probe2-v0", 0)
    assert set(np.array(obs)) == {-1.0, 1.0}
    np.testing.assert_array_equal(transition.reward, obs)
    assert transition.terminated.all()
    assert make("Probe2-v0").value(-1.0, 0.9) == -1.0


def test_delayed_reward() -> None:
    obs, state, transition = first_step("Probe3-v0", 0)
    assert (obs == 0).all()
    assert (transition.obs == 1).all()
    assert (transition.reward == 0).all()
    assert not transition.terminated.any()
    env = make("Probe3-v0")
    keys = jax.random.split(jax.random.key(1), len(obs))
    _, transition = jax.vmap(env.step)(keys, state, jnp.zeros(len(obs), jnp.int32))
    assert (transition.reward == 1).all()
    assert transition.terminated.all()
    assert [env.value(o, 0.9) for o in (0.0, 1.0)] == [0.9, 1.0]


@pytest.mark.parametrize("action", [0, 1])
def test_reward_from_action(action: int) -> None:
    obs, _, transition = first_step("Probe4-v0", action)
    assert (obs == 0).all()
    assert (transition.reward == action).all()
    assert transition.terminated.all()


@pytest.mark.parametrize("action", [0, 1])
def test_reward_from_both(action: int) -> None:
    obs, _, transition = first_step("Probe5-v0", action)
    assert set(np.array(obs)) == {-1.0, 1.0}
    fits = (obs > 0) == (action == 1)
    np.testing.assert_array_equal(transition.reward, np.where(fits, 1.0, -1.0))
    assert transition.terminated.all()
    assert make("Probe5-v0").value(-1.0, 0.9) == 1.0


def test_aliases_and_options() -> None:
    names = ("ConstantReward", "RewardFromObservation", "DelayedReward")
    names += ("RewardFromAction", "RewardFromBoth")
    for number, name in enumerate(names, 1):
        assert make(f"probe:{name}").spec.id == f"Probe{number}-v0"
    with pytest.raises(SettingError, match="has no options, but was given length"):
        make("Probe1-v0", length=2)
