"""Gymnax's classic control against Gymnasium's, step for step.

Gymnasium plays random actions from widely spread states and everything that it says is noted. Then
our environment makes the same transitions from the same states: observation, reward and both
ends must agree to float32. Starting anew from each noted state keeps chaos (Acrobot) out of it; a
second test follows whole trajectories, and a third compares where episodes start.

Gymnax differs from Gymnasium in one thing, which trimtab mends: the left wall of
MountainCarContinuous. A difference of trimtab's own: where the task and the clock end in the same
step, Gymnasium reports both, and trimtab only that the task ended.
"""

from typing import Any

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from trimtab.envs import make
from trimtab.spaces import Discrete

STEPS = 6000

# Each environment's state variables, in Gymnasium's order, and the ranges that episodes start from:
# wide enough to meet goals, walls, clipped speeds and falls, which a random policy seldom meets.
STATES = {
    "CartPole-v1": {
        "x": (-2.4, 2.4),
        "x_dot": (-2.0, 2.0),
        "theta": (-0.2, 0.2),
        "theta_dot": (-2.0, 2.0),
    },
    "Acrobot-v1": {
        "joint_angle1": (-3.14, 3.14),
        "joint_angle2": (-3.14, 3.14),
        "velocity_1": (-12.0, 12.0),
        "velocity_2": (-28.0, 28.0),
    },
    "MountainCar-v0": {"position": (-1.2, 0.6), "velocity": (-0.07, 0.07)},
    "MountainCarContinuous-v0": {"position": (-1.2, 0.44), "velocity": (-0.07, 0.07)},
    "Pendulum-v1": {"theta": (-9.0, 9.0), "theta_dot": (-8.0, 8.0)},
}


def their_transitions(env_id: str) -> dict[str, np.ndarray]:
    """What Gymnasium does on STEPS random actions, each array with STEPS rows."""
    env: Any = gymnasium.make(env_id)  # TimeLimit is the outermost wrapper
    rng = np.random.default_rng(0)
    low, high = np.array(list(STATES[env_id].values())).T
    rows, fresh, episode = [], True, 0
    for _ in range(STEPS):
        if fresh:
            env.reset(seed=episode)
            # Every tenth episode starts as Gymnasium starts it; the others anywhere, late.
            if episode % 10:
                env.unwrapped.state = rng.uniform(low, high).astype(np.float32).astype(np.float64)
                env._elapsed_steps = env._max_episode_steps - int(rng.integers(1, 80))
            episode += 1
        before, elapsed = np.array(env.unwrapped.state, np.float64), env._elapsed_steps
        action = random_action(rng, env.action_space)
        obs, reward, terminated, truncated, _ = env.step(action)
        rows.append((before, elapsed, action, obs, reward, terminated, truncated))
        fresh = terminated or truncated
    env.close()
    names = ("state", "elapsed", "action", "obs", "reward", "terminated", "truncated")
    columns = zip(*rows, strict=True)
    return {name: np.array(column) for name, column in zip(names, columns, strict=True)}


def random_action(rng: np.random.Generator, space: Any) -> Any:
    """An action of Gymnasium's; for a Box, half as far again as its bounds: both sides clip."""
    if isinstance(space, gymnasium.spaces.Discrete):
        return int(rng.integers(space.n))
    return (1.5 * rng.uniform(space.low, space.high)).astype(np.float32)


def our_state(env: Any, env_id: str, values: np.ndarray, elapsed: Any) -> Any:
    """Our state of one lane with Gymnasium's values."""
    state, _ = env.reset(jax.random.key(0))
    named = dict(zip(STATES[env_id], jnp.asarray(values, jnp.float32), strict=True))
    return state.replace(**named, time=jnp.asarray(elapsed, jnp.int32))


def our_actions(env: Any, actions: Any) -> jax.Array:
    dtype = jnp.int32 if isinstance(env.spec.action, Discrete) else jnp.float32
    return jnp.asarray(np.array(actions), dtype)


@pytest.mark.parametrize("env_id", STATES)
def test_transitions_agree(env_id: str) -> None:
    theirs, env = their_transitions(env_id), make(env_id)

    def step(key: jax.Array, values: jax.Array, elapsed: jax.Array, action: jax.Array) -> Any:
        return env.step(key, our_state(env, env_id, values, elapsed), action)[1]

    ours = jax.jit(jax.vmap(step))(
        jax.random.split(jax.random.key(0), STEPS),
        jnp.asarray(theirs["state"], jnp.float32),
        jnp.asarray(theirs["elapsed"], jnp.int32),
        our_actions(env, theirs["action"]),
    )
    # Acrobot turns by several radians in a step, and its rounding errors with it.
    atol = 1e-4 if env_id == "Acrobot-v1" else 2e-6
    np.testing.assert_allclose(ours.obs, theirs["obs"], rtol=2e-5, atol=atol)
    np.testing.assert_allclose(ours.reward, theirs["reward"], rtol=2e-5, atol=atol)
    np.testing.assert_array_equal(ours.terminated, theirs["terminated"])
    np.testing.assert_array_equal(ours.truncated, theirs["truncated"] & ~theirs["terminated"])

    # The comparison has met what it is about.
    assert theirs["truncated"].sum() > 5
    if env_id != "Pendulum-v1":  # which never terminates
        assert theirs["terminated"].sum() > 5
    if env_id == "CartPole-v1":
        assert (theirs["truncated"] & theirs["terminated"]).any()
    if env_id.startswith("MountainCar"):  # the car hit the left wall, and stopped
        assert (theirs["obs"] == np.array([-1.2, 0.0], np.float32)).all(axis=1).sum() > 5


@pytest.mark.parametrize("env_id", STATES)
def test_trajectories_agree(env_id: str) -> None:
    """The same actions from the same first state, with each side carrying its own state."""
    steps = 8 if env_id == "CartPole-v1" else 40  # before the pole falls; before Acrobot's chaos
    rng = np.random.default_rng(1)
    theirs: Any = gymnasium.make(env_id)
    env = make(env_id)
    for seed in range(5):
        theirs.reset(seed=seed)
        state = our_state(env, env_id, theirs.unwrapped.state, 0)
        actions = [random_action(rng, theirs.action_space) for _ in range(steps)]
        expected = [theirs.step(action) for action in actions]
        keys = jax.random.split(jax.random.key(seed), steps)
        _, ours = jax.lax.scan(
            lambda state, inputs: env.step(inputs[0], state, inputs[1]),
            state,
            (keys, our_actions(env, actions)),
        )
        np.testing.assert_allclose(ours.obs, [e[0] for e in expected], rtol=1e-3, atol=1e-3)
        np.testing.assert_allclose(ours.reward, [e[1] for e in expected], rtol=1e-3, atol=1e-3)
    theirs.close()


@pytest.mark.parametrize("env_id", STATES)
def test_episodes_start_alike(env_id: str) -> None:
    """Each observed quantity has the same distribution (Kolmogorov and Smirnov's test)."""
    theirs = gymnasium.make(env_id)
    expected = np.array([theirs.reset(seed=seed)[0] for seed in range(500)])
    theirs.close()
    _, ours = jax.vmap(make(env_id).reset)(jax.random.split(jax.random.key(0), 2000))
    for quantity in range(expected.shape[1]):
        test = scipy.stats.ks_2samp(expected[:, quantity], np.array(ours)[:, quantity])
        assert test.pvalue > 1e-3
