"""Repeated actions and shorter episodes of host environments: the same rules as JAX's."""

import numpy as np
import pytest
from broken_envs import Counting

import trimtab
from trimtab.collect.workers import WorkerPool
from trimtab.envs.in_process import InProcessEnv
from trimtab.envs.sources import changed, source_of
from trimtab.errors import EnvironmentFaultError, SettingError
from trimtab.faults import FaultPolicy


def lanes_of(make_env, repeat=1, limit=None, lanes=1):
    return InProcessEnv(
        changed(source_of(make_env), repeat, limit).make_env, lanes, FaultPolicy("raise")
    )


def test_an_action_is_taken_until_the_episode_ends():
    env, alone = lanes_of(Counting, repeat=3), Counting()
    env.reset([4])
    alone.reset(seed=4)
    for _ in range(20):
        step = env.step(np.ones(1, int))
        total, ended = 0.0, False
        for _ in range(3):
            obs, reward, terminated, truncated, _ = alone.step(1)
            total, ended = total + reward, terminated or truncated
            if ended:
                alone.reset()
                break
        np.testing.assert_array_equal(step.next_obs[0], obs)
        assert step.reward[0] == total
        assert (step.terminated[0], step.truncated[0]) == (terminated, truncated)


def test_the_clock_truncates_and_what_ends_there_has_ended():
    env = lanes_of(Counting, limit=2)
    env.reset([4])
    lengths, length = set(), 0
    for _ in range(40):
        step = env.step(np.ones(1, int))
        length += 1
        assert not (step.terminated[0] and step.truncated[0])
        if step.terminated[0] or step.truncated[0]:
            lengths.add((length, bool(step.terminated[0])))
            length = 0
    assert max(lengths)[0] == 2
    assert (2, False) in lengths


@pytest.mark.parametrize("way", ["four", "no_reward"])
def test_nonsense_is_still_named(way):
    env = lanes_of(lambda: Counting(breaks=way, at=2), repeat=2)
    env.reset([0])
    with pytest.raises(EnvironmentFaultError, match=r"Counting, lane 0, step 1 of episode 1"):
        env.step(np.ones(1, int))


def test_workers_have_the_same():
    source = changed(source_of(Counting), 2, 3)
    pool = WorkerPool(source.make_env, 2, 1)
    alone = InProcessEnv(source.make_env, 2, FaultPolicy())
    try:
        assert source.spec.max_episode_steps == 3
        np.testing.assert_array_equal(pool.reset([1, 2]), alone.reset([1, 2]))
        for _ in range(20):
            jointly = zip(pool.step([0, 1]), alone.step(np.array([0, 1])), strict=True)
            for one, other in jointly:
                np.testing.assert_array_equal(one, other)
    finally:
        pool.close()


def test_in_a_run(tmp_path):
    settings = {"num_envs": 2, "num_steps": 16, "total_steps": 64, "eval_episodes": 2}
    small = trimtab.PPO(hidden_sizes=(8,), minibatches=1, epochs=1)
    cartpole = "gymnasium:CartPole-v1"
    run = trimtab.train(
        cartpole, small, run_dir=tmp_path / "a", max_episode_steps=4, action_repeat=2, **settings
    )
    assert run.metrics[-1]["rollout/length_mean"] == 4
    assert run.spec.max_episode_steps == 4
    assert run.spec.solved_at is None
    with pytest.raises(SettingError, match=r"max_episode_steps = 500 has no effect: CartPole-v1"):
        trimtab.train(cartpole, small, run_dir=tmp_path / "b", max_episode_steps=500, **settings)
