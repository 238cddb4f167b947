"""The adapter: what it keeps, what it refuses."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from trimtab.envs import make
from trimtab.envs.gymnax import GymnaxEnv, canonical_dtype, cast, space_from_gymnax
from trimtab.envs.light_import import import_gymnax
from trimtab.errors import EnvironmentFaultError, SettingError, UnsupportedSpaceError
from trimtab.spaces import Box, Discrete

gymnax = import_gymnax()


def test_no_reset_after_an_end() -> None:
    """The successor is the true one, and the lane's clock goes on."""
    env = make("CartPole-v1", max_episode_steps=3)
    key = jax.random.key(0)
    state, _ = env.reset(key)
    flags = []
    for _ in range(4):
        state, transition = env.step(key, state, jnp.int32(0))
        flags.append(bool(transition.truncated))
        np.testing.assert_array_equal(transition.obs[0], state.x)
    assert flags == [False, False, True, True]
    assert state.time == 4


def test_terminated_wins() -> None:
    env = make("CartPole-v1", max_episode_steps=1)
    key = jax.random.key(0)
    state, _ = env.reset(key)
    _, transition = env.step(key, state.replace(x=jnp.float32(3.0)), jnp.int32(0))
    assert transition.terminated
    assert not transition.truncated


def test_deep_sea_is_stepped_without_its_own_step() -> None:
    """The rewarded path, with bsuite's return: 1 − 0.01, a hundredth of it at each of 8 steps."""
    env = make("DeepSea-bsuite")
    key = jax.random.key(0)
    state, _ = env.reset(key)
    rewards = []
    for row in range(8):
        state, transition = env.step(key, state, state.action_mapping[row, row])
        rewards.append(transition.reward)
    assert transition.terminated
    assert state.row == 8
    np.testing.assert_allclose(rewards, [-0.01 / 8] * 7 + [1 - 0.01 / 8], rtol=1e-5)


def test_options() -> None:
    env = make("CartPole-v1", gravity=1.0, max_episode_steps=7)
    assert env.params.gravity == 1.0
    assert env.spec.max_episode_steps == 7
    assert env.spec.solved_at is None  # 475 is out of reach in 7 steps
    assert make("DeepSea-bsuite", size=4).spec.observation == Box((4, 4), (0.0,), (1.0,))
    with pytest.raises(SettingError, match=r"no option 'gravty'\. Did you mean 'gravity'"):
        make("CartPole-v1", gravty=1.0)
    with pytest.raises(SettingError, match="It has force, goal_position"):
        make("MountainCar-v0", x=1)


def test_actions_take_the_shape_and_dtype_of_their_space() -> None:
    env = make("Pendulum-v1")
    key = jax.random.key(0)
    state, _ = env.reset(key)
    expected = env.step(key, state, jnp.float32([1.0]))[1].obs
    for action in (np.float64(1.0), jnp.ones((1,), jnp.int32)):
        np.testing.assert_array_equal(env.step(key, state, action)[1].obs, expected)


def test_spaces() -> None:
    spaces = gymnax.environments.spaces
    assert space_from_gymnax("E", "action", spaces.Discrete(3)) == Discrete(3)
    largest = float(np.finfo(np.float32).max)
    box = space_from_gymnax("E", "observation", spaces.Box(-largest, 1.0, (2, 3)))
    assert box == Box((2, 3), (-np.inf,), (1.0,))
    assert space_from_gymnax("E", "observation", spaces.Box(0.0, 1.0, 4)) == Box((4,), (0,), (1,))
    both = spaces.Dict({"a": spaces.Discrete(2)})
    with pytest.raises(UnsupportedSpaceError, match=r"E: its action space is Dict\(\{'a'"):
        space_from_gymnax("E", "action", both)


def test_canonical_dtypes() -> None:
    assert canonical_dtype(jnp.int32, jnp.float32) == jnp.float32
    assert canonical_dtype(jnp.float16) == jnp.float32
    assert canonical_dtype(jnp.bool, jnp.int8) == jnp.int32
    assert canonical_dtype(jnp.bool) == jnp.bool
    assert canonical_dtype(jnp.uint32) == jnp.uint32
    key = jax.random.key(0)
    assert cast(key, canonical_dtype(key.dtype)) is key
    assert not cast(1.0, jnp.float32).weak_type


def test_what_is_not_a_plain_gymnax_environment_is_refused() -> None:
    with pytest.raises(EnvironmentFaultError, match="A SimpleNamespace is not a gymnax env"):
        GymnaxEnv.of(SimpleNamespace())

    class OwnStep(gymnax.environments.CartPole):
        def step(self, key, state, action, params=None):
            raise NotImplementedError

    with pytest.raises(EnvironmentFaultError, match=r"OwnStep overrides step\(\)"):
        GymnaxEnv.of(OwnStep())

    class Shrinking(gymnax.environments.Pendulum):
        def reset_env(self, key, params):
            obs, state = super().reset_env(key, params)
            return obs, state.replace(last_u=state.last_u.reshape(1))

    with pytest.raises(EnvironmentFaultError, match="the same structure and shapes"):
        GymnaxEnv.of(Shrinking())


def test_an_unregistered_environment() -> None:
    class Mine(gymnax.environments.CartPole):
        @property
        def name(self) -> str:
            return "Mine-v0"

    env = GymnaxEnv.of(Mine())
    assert env.spec.id == "Mine-v0"
    assert env.spec.solved_at is None
    assert env != GymnaxEnv.of(Mine())
    assert len({env, env}) == 1
