"""envpool's lanes: on a stand-in for the package always, on the package itself where there is one.

The package takes 750 MB, so it is no part of what the tests need: those marked ``real`` are skipped
without it.
"""

import importlib.util
import json

import fake_envpool
import numpy as np
import pytest
from broken_envs import Counting

import trimtab
from trimtab.cli import main
from trimtab.envs import envpool
from trimtab.envs.in_process import InProcessEnv
from trimtab.envs.make import find
from trimtab.errors import SettingError, UnknownEnvironmentError
from trimtab.faults import FaultPolicy

INSTALLED = importlib.util.find_spec("envpool") is not None
real = pytest.mark.skipif(not INSTALLED, reason="needs the extra: pip install 'trimtab[envpool]'")


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(envpool, "_envpool", lambda: fake_envpool)


def lanes_of(source, lanes):
    return source.make_host(lanes, FaultPolicy())


def history(env, seeds, steps=60):
    rng = np.random.default_rng(0)
    rows = [np.array(env.reset(seeds))]
    for _ in range(steps):
        step = env.step(rng.integers(2, size=env.num_envs))
        assert env.idle is None
        rows += [np.array(part) for part in step]
    env.close()
    return rows


def test_every_row_is_the_transition_of_gymnasiums_rules(fake):
    """Though envpool spends a step on each reset unless it is told otherwise."""
    seeds = [7, 1, 5]
    pool = history(lanes_of(find("envpool:Counting-v0"), 3), seeds)
    alone = history(InProcessEnv(Counting, 3, FaultPolicy()), seeds)
    for number, (one, other) in enumerate(zip(pool, alone, strict=True)):
        is_reward = number % 5 == 2
        np.testing.assert_array_equal(one, 10 * other if is_reward else other)


def test_a_lanes_stream_depends_on_its_seed_alone(fake):
    source = find("envpool:Counting-v0")
    three, one = lanes_of(source, 3), lanes_of(source, 1)
    three.reset([3, 1, 4]), one.reset([4])
    for _ in range(20):
        of_three, of_one = three.step(np.zeros(3, int)), one.step(np.zeros(1, int))
        np.testing.assert_array_equal(of_three.obs[2], of_one.obs[0])
    again = np.array(three.reset([3, 1, 4]))
    np.testing.assert_array_equal(again, np.array(lanes_of(source, 3).reset([3, 1, 4])))


def test_a_run_is_evaluated_on_what_the_environment_pays(fake, tmp_path):
    run = trimtab.train(
        "envpool:Counting-v0",
        trimtab.PPO(hidden_sizes=(8,), minibatches=1, epochs=1),
        env_options={"reward_clip": True, "max_episode_steps": 2},
        run_dir=tmp_path / "run",
        num_envs=4,
        num_steps=16,
        total_steps=64,
        eval_episodes=8,
    )
    assert run.spec.id == "Counting-v0"
    assert run.metrics[0]["rollout/return_max"] <= 2
    assert run.metrics[0]["rollout/length_mean"] <= 2
    best = run.evaluate(episodes=8, deterministic=False)
    assert best["length_mean"] <= 2
    assert best["max"] >= 10, "an unclipped reward is 10"


def test_episodes_may_be_cut(fake, tmp_path):
    small = trimtab.PPO(hidden_sizes=(8,), minibatches=1, epochs=1)
    sizes = {"num_envs": 2, "num_steps": 8, "total_steps": 16, "eval_episodes": 2}
    run = trimtab.train(
        "envpool:Counting-v0", small, run_dir=tmp_path / "a", max_episode_steps=1, **sizes
    )
    assert run.metrics[0]["rollout/length_mean"] == 1
    assert run.evaluations[-1]["length_mean"] == 1
    with pytest.raises(SettingError, match=r"action_repeat = 2: envpool repeats.*frame_skip"):
        trimtab.train(
            "envpool:Counting-v0", small, run_dir=tmp_path / "b", action_repeat=2, **sizes
        )
    with pytest.raises(SettingError, match=r"workers: Counting-v0 steps its lanes itself"):
        trimtab.train(
            "envpool:Counting-v0", small, run_dir=tmp_path / "c", vectorization="workers", **sizes
        )


def test_what_is_wrong_is_said(fake):
    with pytest.raises(UnknownEnvironmentError, match=r"no environment 'Countin-v0'. Did you mean"):
        find("envpool:Countin-v0")
    with pytest.raises(SettingError, match=r"no option 'reward_clp'. Did you mean 'reward_clip'"):
        find("envpool:Counting-v0", reward_clp=True)
    with pytest.raises(SettingError, match=r"seed is no option.*: give --seed"):
        find("envpool:Counting-v0", seed=3)


def test_its_ids_are_listed_where_it_is_installed(fake, capsys):
    assert main(["envs", "envpool:", "--json"]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(row["id"], row["backend"]) for row in rows] == [
        ("Counting-v0", "envpool"),
        ("Other-v0", "envpool"),
    ]


@pytest.mark.skipif(INSTALLED, reason="it is installed")
def test_a_missing_package_is_named():
    with pytest.raises(UnknownEnvironmentError, match=r"pip install 'trimtab\[envpool\]'"):
        find("envpool:Pong-v5")


@real
def test_the_real_cartpole_moves_as_gymnasiums():
    """From the same state, by the same actions; the pool's own random first states are given."""
    import gymnasium

    env = lanes_of(find("envpool:CartPole-v1"), 2)
    obs = np.array(env.reset([5, 6]))
    twin = gymnasium.make("CartPole-v1").unwrapped
    twin.reset(seed=0)
    ends = 0
    twin.state = obs[0].astype(np.float64)
    for t in range(200):
        action = int(t % 3 > 0)
        step = env.step(np.array([action, 1]))
        expected, reward, terminated, _, _ = twin.step(action)
        np.testing.assert_allclose(step.next_obs[0], expected, rtol=1e-4, atol=1e-5)
        assert (step.reward[0], step.terminated[0]) == (reward, terminated)
        assert env.idle is None
        twin.state = step.obs[0].astype(np.float64)
        twin.steps_beyond_terminated = None
        ends += terminated
    env.close()
    assert ends > 5


@real
def test_the_real_pong_is_stacked_images():
    source = find("envpool:Pong-v5", episodic_life=True, reward_clip=True)
    assert source.spec.observation == trimtab.spaces.Box.of(0, 255, (4, 84, 84), "uint8")
    assert source.evaluation is not None
    env = lanes_of(source, 2)
    first = np.array(env.reset([0, 1]))
    step = env.step(np.zeros(2, int))
    assert first.shape == step.obs.shape == (2, 4, 84, 84)
    env.close()
