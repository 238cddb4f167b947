"""Whole runs on environments outside of compiled programs, from whatever a user has."""

import functools
import os
import signal
import sys

import gymnasium
import numpy as np
import pytest
from broken_envs import Counting
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import trimtab
from trimtab.api import resume
from trimtab.cli import main
from trimtab.configuration import default_configuration
from trimtab.errors import SettingError, UnknownEnvironmentError
from trimtab.log.progress import Quiet
from trimtab.training.rundir import RunFolder

SETTINGS = {"num_steps": 8, "total_steps": 64 * 4, "eval_episodes": 3, "num_envs": 8}
SMALL = {"minibatches": 1, "epochs": 1, "hidden_sizes": (8,)}


class Bandit(gymnasium.Env):
    """Two steps; the reward is −action²."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action):
        self.steps += 1
        obs = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return obs, -(float(action[0]) ** 2), False, self.steps == 2, {}


def train(folder, env=Bandit, **settings):
    return trimtab.train(env, trimtab.PPO(**SMALL), run_dir=folder, **{**SETTINGS, **settings})


def without_times(rows):
    timed = ("time/", "system/")
    return [{k: v for k, v in row.items() if not k.startswith(timed)} for row in rows]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("host") / "run")


def test_a_run_counts_its_episodes(run):
    rows = run.metrics
    assert [row["steps"] for row in rows] == [64, 128, 192, 256]
    assert all(row["rollout/episodes"] == 32 for row in rows)
    assert all(row["rollout/length_mean"] == 2 for row in rows)
    assert run.evaluations[-1]["length_mean"] == 2
    assert run.evaluations[-1]["episodes"] == 3


def test_the_same_seed_gives_the_same_run_and_another_does_not(run, tmp_path):
    again, other = train(tmp_path / "again"), train(tmp_path / "other", seed=1)
    np.testing.assert_equal(without_times(again.metrics), without_times(run.metrics))
    assert again.evaluations == run.evaluations
    assert without_times(other.metrics) != without_times(run.metrics)


def test_a_run_of_an_object_is_loaded_with_it(run):
    with pytest.raises(UnknownEnvironmentError, match=r"load\(path, env=...\) takes it"):
        trimtab.load(run.path).evaluate(episodes=1)
    loaded = trimtab.load(run.path, env=Bandit)
    assert loaded.evaluate(episodes=4) == run.evaluate(episodes=4)
    assert loaded.policy(np.zeros((5, 2))).shape == (5, 1)


def test_a_resumed_run_goes_on_with_new_episodes(run, tmp_path):
    first = train(tmp_path / "run", total_steps=128)
    longer = resume(first.path, env=Bandit, total_steps=256)
    assert [row["update"] for row in longer.metrics] == [1, 2, 3, 4]
    np.testing.assert_equal(without_times(longer.metrics)[:2], without_times(run.metrics)[:2])
    assert int(longer.learner("latest").updates) == 4


def test_a_vector_environment_brings_its_lanes(tmp_path):
    vector = gymnasium.make_vec("CartPole-v1", num_envs=4)
    run = trimtab.train(
        vector, trimtab.PPO(**SMALL), run_dir=tmp_path / "run", num_steps=16, total_steps=64
    )
    assert run.configuration.training.num_envs == 4
    assert run.evaluate(episodes=6)["episodes"] == 6
    with pytest.raises(SettingError, match="has 4 lanes: give num_envs = 4"):
        train(tmp_path / "other", gymnasium.make_vec("CartPole-v1", num_envs=4), num_envs=8)


def test_every_kind_of_environment_trains_the_same(tmp_path):
    """A callable, and vectors in each mode of beginning new episodes."""
    settings = {"num_envs": 3, "num_steps": 16, "total_steps": 96, "eval_episodes": 2}
    expected = None
    makers = {"one": Counting}
    for mode in AutoresetMode:
        makers[mode.name] = functools.partial(SyncVectorEnv, [Counting] * 3, autoreset_mode=mode)
    for name, make_env in makers.items():
        run = trimtab.train(make_env, trimtab.PPO(**SMALL), run_dir=tmp_path / name, **settings)
        found = np.asarray(run.learner("latest").parameters.vector)
        expected = found if expected is None else expected
        np.testing.assert_array_equal(found, expected, err_msg=name)
        assert run.metrics[-1]["rollout/length_mean"] <= 7


def test_an_environment_is_made_again_with_its_options(tmp_path):
    env = gymnasium.make("Pendulum-v1", max_episode_steps=5)
    run = train(tmp_path / "run", env, total_steps=64)
    assert run.evaluations[-1]["length_mean"] == 5


def test_what_cannot_be_made_again_is_refused(tmp_path):
    with pytest.raises(SettingError, match=r"Give a callable that makes it, such as lambda"):
        train(tmp_path / "run", Bandit())
    with pytest.raises(UnknownEnvironmentError, match="a dict is none of these"):
        train(tmp_path / "run", {})
    assert not (tmp_path / "run").exists()


def test_packages_are_imported_only_when_named(tmp_path, monkeypatch, capsys):
    module = f"package_of_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{module}.py").write_text(
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "gymnasium.register('OfMine-v0', entry_point=CartPoleEnv, max_episode_steps=5)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # Other tests do not have the package. (The module's name is its function's in ``envs``.)
    monkeypatch.setattr(sys.modules["trimtab.envs.make"], "_imported", [])
    assert main(["train", f"{module}:OfMine-v0"]) == 2
    assert f"give --import {module} and the id 'OfMine-v0'" in capsys.readouterr().err
    assert main(["train", "OfMine-v0", "--import", f"{module}_not"]) == 2
    assert "cannot be imported" in capsys.readouterr().err
    small = ["--total-steps", "64", "--num-envs", "4", "--hidden-sizes", "8"]
    assert main(["train", "--import", module, "OfMine-v0", *small, "--run-dir", "run"]) == 0
    assert "OfMine-v0 is Gymnasium's" in capsys.readouterr().err
    assert main(["eval", "run", "--episodes", "2"]) == 0
    assert "mean length 5.000 steps" in capsys.readouterr().out


class Stop(Quiet):
    """Asks for a stop, as Ctrl-C does, once so many updates are recorded."""

    def __init__(self, updates):
        self.updates, self.said = updates, []

    def say(self, sentence):
        self.said.append(sentence)

    def updated(self, status):
        if status.update == self.updates:
            os.kill(os.getpid(), signal.SIGINT)


HALF = {"eval_every": 1, "num_steps": 8, "total_steps": 64 * 6}


@pytest.mark.parametrize(
    ("env", "settings", "algorithm"),
    [
        ("gymnasium:CartPole-v1", {}, {}),
        ("gymnasium:Pendulum-v1", {}, {"gru_units": 4, "normalize_rewards": True}),
        ("gymnasium:CartPole-v1", {"vectorization": "workers", "num_workers": 2}, {}),
    ],
)
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, env, settings, algorithm):
    ppo = trimtab.PPO(**{**SMALL, **algorithm})
    settings = {**SETTINGS, **HALF, **settings}
    whole = trimtab.train(env, ppo, run_dir=tmp_path / "whole", **settings)
    half = trimtab.train(env, ppo, run_dir=tmp_path / "half", progress=Stop(3), **settings)
    assert (half.stopped_by, len(half.metrics)) == ("SIGINT", 3)
    heard = Stop(99)
    resumed = resume(half.path, heard)
    assert not heard.said
    np.testing.assert_equal(without_times(resumed.metrics), without_times(whole.metrics))
    assert resumed.evaluations == whole.evaluations
    np.testing.assert_array_equal(
        resumed.learner("latest").parameters.vector, whole.learner("latest").parameters.vector
    )
    assert "resumed" not in half.folder.config_path.read_text()
    # The policy of a checkpoint is read without what is kept of the environments.
    assert resumed.evaluate(episodes=1, checkpoint="latest")["episodes"] == 1


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        (Bandit, {}, "Bandit has no methods save_state and load_state"),
        ("gymnasium:CartPole-v1", {"overlap": True}, "with overlap"),
        (
            "gymnasium:CartPole-v1",
            {"vectorization": "async", "num_workers": 2},
            "its workers are served first come, first served",
        ),
    ],
)
def test_where_new_episodes_must_begin_the_run_says_so(tmp_path, env, settings, words):
    settings = {**HALF, **settings}
    half = train(tmp_path / "half", env, progress=Stop(3), **settings)
    heard = Stop(99)
    resumed = resume(half.path, heard, env=None if isinstance(env, str) else env)
    assert len(resumed.metrics) == 6
    assert f"New episodes begin here, since {words}" in "".join(heard.said)
    assert RunFolder.open(half.path).resumed == [{"steps": 192, "new_episodes": True}]


def test_the_parts_of_an_update_are_timed(run):
    row = run.metrics[-1]
    shares = row["time/collect_share"], row["time/update_share"]
    assert all(0 < share < 1 for share in shares)
    assert sum(shares) <= 1.0
    assert row["time/collect_steps_per_second"] > row["time/steps_per_second"] * 0.5
    assert row["time/update_steps_per_second"] > 0


def test_bounds_that_an_environment_is_known_to_break_are_a_hint():
    settings = default_configuration("gymnasium:LunarLander-v3", "ppo").training
    assert settings.observation_bounds == "ignore"
    assert default_configuration("gymnasium:CartPole-v1", "ppo").training.observation_bounds == (
        "enforce"
    )
