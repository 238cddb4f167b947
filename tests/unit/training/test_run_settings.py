"""Settings of a run that change what is played: repeats, limits, staggered starts, evaluations."""

import os
import signal

import numpy as np
import pytest

import trimtab
from trimtab.api import resume
from trimtab.errors import SettingError
from trimtab.log.progress import Quiet

PPO = trimtab.PPO(minibatches=2, hidden_sizes=(4,))
SETTINGS = {"num_envs": 4, "num_steps": 8, "total_steps": 32 * 8, "eval_episodes": 2}


def train(folder, env="Pendulum-v1", **settings):
    return trimtab.train(env, PPO, run_dir=folder, **{**SETTINGS, **settings})


class StopAtOnce(Quiet):
    def updated(self, status):
        if not getattr(self, "asked", False):
            self.asked = True
            os.kill(os.getpid(), signal.SIGINT)


def without_times(rows):
    times = ("time/", "system/")
    return [{k: v for k, v in row.items() if not k.startswith(times)} for row in rows]


def test_repeats_and_limits_are_those_of_the_run_and_of_its_evaluations(tmp_path):
    settings = {"action_repeat": 4, "max_episode_steps": 10, "num_steps": 20}
    run = train(tmp_path / "run", total_steps=4 * 20 * 3, **settings)
    assert {row["length_mean"] for row in run.evaluations} == {10.0}
    assert run.steps == 4 * 20 * 3  # of the agent
    # Lanes are cut after 10, 8, 5 and 3 steps at first, and what was not whole does not count.
    assert [row["rollout/episodes"] for row in run.metrics] == [5, 8, 8]
    assert {row["rollout/length_mean"] for row in run.metrics} == {10.0}
    assert trimtab.load(run.path).evaluate(episodes=2)["length_mean"] == 10.0


def test_a_staggered_run_goes_on_exactly(tmp_path):
    limit = {"max_episode_steps": 50}
    whole = train(tmp_path / "whole", **limit)
    stopped = train(tmp_path / "half", progress=StopAtOnce(), eval_every=2, **limit)
    assert 0 < len(stopped.metrics) < 8
    rest = resume(stopped.path)
    np.testing.assert_equal(without_times(rest.metrics), without_times(whole.metrics))
    in_phase = train(tmp_path / "phase", staggered_starts="off", **limit)
    assert in_phase.metrics[1]["rollout/episodes"] == 0
    assert without_times(in_phase.metrics) != without_times(whole.metrics)


def test_evaluations_by_their_number(tmp_path):
    run = train(tmp_path / "run", "Probe1-v0", eval_count=2, eval_stochastic=True)
    assert [row["update"] for row in run.evaluations] == [4, 8]


@pytest.mark.parametrize(
    ("env", "settings", "sentence"),
    [
        ("CartPole-v1", {"max_episode_steps": 500}, "max_episode_steps = 500 has no effect"),
        ("CartPole-v1", {"max_episode_steps": 0}, "out of bounds"),
        ("CartPole-v1", {"action_repeat": 0}, "out of bounds"),
        ("CartPole-v1", {"staggered_starts": "yes"}, "expected one of 'auto', 'on', 'off'"),
        ("CartPole-v1", {"eval_every": 3, "eval_count": 2}, "both say how often to evaluate"),
        ("gymnasium:CartPole-v1", {"action_repeat": 2}, "is for environments in compiled programs"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path, env, settings, sentence):
    with pytest.raises(SettingError, match=sentence):
        train(tmp_path / "run", env, **settings)
