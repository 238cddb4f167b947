"""An environment that is put into another's state goes on as that one does."""

import gymnasium
import numpy as np
import pytest

from trimtab.envs.state import LaneStates, UnsavableError, load_states, save_states
from trimtab.errors import CheckpointError

CLASSIC = ["CartPole-v1", "MountainCar-v0", "MountainCarContinuous-v0", "Acrobot-v1", "Pendulum-v1"]
TOY = ["FrozenLake-v1", "Taxi-v4", "CliffWalking-v1", "Blackjack-v1"]
MUJOCO = [
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "Humanoid-v5",
    "HumanoidStandup-v5",
    "Swimmer-v5",
    "Reacher-v5",
    "Pusher-v5",
    "InvertedPendulum-v5",
    "InvertedDoublePendulum-v5",
]


def played(env: gymnasium.Env, actions: list) -> list:
    """What an environment answers, episode after episode."""
    answers = []
    for action in actions:
        obs, reward, terminated, truncated, _ = env.step(action)
        answers.append((np.array(obs), float(reward), terminated, truncated))
        if terminated or truncated:
            answers.append((np.array(env.reset()[0]), 0.0, False, False))
    return answers


def actions_of(env: gymnasium.Env, number: int) -> list:
    env.action_space.seed(5)
    return [env.action_space.sample() for _ in range(number)]


def assert_goes_on(make, steps: int = 120) -> None:
    """After ``steps`` steps, and the way through ``save_states``, two lanes are as before."""
    first, second = [make(), make()], [make(), make()]
    before, after = actions_of(first[0], steps), actions_of(first[0], 2 * steps)[steps:]
    for seed, env in enumerate(first):
        env.reset(seed=seed)
        played(env, before)
    saved = save_states(first)
    for env in second:
        env.reset(seed=9)
        played(env, before[:7])
    load_states(second, LaneStates(str(saved.text), [np.array(one) for one in saved.arrays]))
    for ours, theirs in zip(first, second, strict=True):
        wanted, found = played(ours, after), played(theirs, after)
        np.testing.assert_equal(found, wanted)
    for env in (*first, *second):
        env.close()


@pytest.mark.parametrize("env_id", [*CLASSIC, *TOY, *MUJOCO])
def test_it_goes_on_bit_for_bit(env_id: str) -> None:
    if env_id in MUJOCO:
        pytest.importorskip("mujoco")
    options = {"max_episode_steps": 50} if env_id != "Blackjack-v1" else {}
    assert_goes_on(lambda: gymnasium.make(env_id, disable_env_checker=True, **options))


def test_wrappers_have_state_too() -> None:
    def make() -> gymnasium.Env:
        env = gymnasium.make("CartPole-v1", disable_env_checker=True)
        env = gymnasium.wrappers.FrameStackObservation(env, 3)
        return gymnasium.wrappers.TimeAwareObservation(
            gymnasium.wrappers.FlattenObservation(env), flatten=True
        )

    assert_goes_on(make)


class Counting(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1e6, (1,))
    action_space = gymnasium.spaces.Discrete(2)
    count = 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.count = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.count += 1
        number = np.float32(self.count + self.np_random.random())
        return np.array([number]), float(number), self.count > 20, False, {}


class Saved(Counting):
    def save_state(self):
        return {"count": self.count, "numbers": self.np_random, "nothing": float("nan")}

    def load_state(self, state):
        self.count, self.np_random = state["count"], state["numbers"]


def test_an_environment_may_save_itself() -> None:
    assert_goes_on(Saved)
    assert_goes_on(lambda: gymnasium.wrappers.TimeLimit(Saved(), 7))


class Mine(gymnasium.Wrapper):
    pass


@pytest.mark.parametrize("make", [Counting, lambda: Mine(Saved())])
def test_what_cannot_be_saved_is_named(make) -> None:
    env = make()
    env.reset(seed=0)
    with pytest.raises(UnsavableError, match=f"{type(env).__name__} has no methods save_state"):
        save_states([env])


def cartpole() -> gymnasium.Env:
    env = gymnasium.make("CartPole-v1", disable_env_checker=True)
    env.reset(seed=0)
    return env


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("_elapsed_steps", "_other"),
        ("TimeLimit", "OtherLimit"),
        ('"_elapsed_steps"', '"env"'),
        ('"_elapsed_steps"', '"__class__"'),
        ("PCG64", "SFC64"),
        ("[[", "["),
        ('{"array": 0}', '{"array": 99}'),
    ],
)
def test_a_state_that_does_not_fit_is_refused(old: str, new: str) -> None:
    saved = save_states([cartpole()])
    text = saved.text.replace(old, new, 1)
    assert text != saved.text
    with pytest.raises(CheckpointError, match="does not fit these environments"):
        load_states([cartpole()], LaneStates(text, saved.arrays))
