"""Settings of a run that change what is played: repeats, limits, staggered starts, evaluations."""

import os
import signal

import numpy as np
import pytest

import trimtab
from trimtab.api import resume
from trimtab.errors import SettingError
from trimtab.log.progress import Quiet
from trimtab.training import memory

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


class Told(Quiet):
    """Keeps what is said."""

    def __init__(self):
        self.sentences = []

    def say(self, sentence):
        self.sentences.append(sentence)


@pytest.mark.parametrize("env", ["CartPole-v1", "gymnasium:CartPole-v1"])
def test_nothing_is_evaluated_before_the_return_is_there(tmp_path, env):
    settings = {"eval_every": 1, "total_steps": 32 * 12, "num_envs": 4, "num_steps": 8}
    always = train(tmp_path / "always", env, **settings)
    known, recent, reached = [], [], None
    for row in always.metrics:  # the mean over the episodes of the last 20 updates
        known.append(row["rollout/episodes"])
        recent.append(row["rollout/return_mean"] * known[-1] if known[-1] else 0.0)
        mean = sum(recent) / sum(known) if sum(known) else -np.inf
        if reached is None and mean >= 15.0:
            reached = row["update"]
    assert reached is not None
    assert 1 < reached < 12
    gated = train(tmp_path / "gated", env, eval_from_return=15.0, **settings)
    assert [row["update"] for row in gated.evaluations] == list(range(reached, 13))
    assert gated.evaluations == always.evaluations[reached - 1 :]
    never = train(tmp_path / "never", env, eval_from_return=1e6, **settings)
    assert [row["update"] for row in never.evaluations] == [12]


def test_a_run_that_waits_for_its_return_goes_on_waiting(tmp_path):
    settings = {"eval_every": 1, "eval_from_return": 20.0, "total_steps": 32 * 16}
    whole = train(tmp_path / "whole", "CartPole-v1", **settings)
    stopped = train(tmp_path / "half", "CartPole-v1", progress=StopAtOnce(), **settings)
    assert len(stopped.metrics) < 16
    rest = resume(stopped.path)
    assert rest.evaluations == whole.evaluations
    assert 1 < len(whole.evaluations) < 16


def test_each_run_of_a_group_waits_for_its_own_return(tmp_path):
    settings = {**SETTINGS, "eval_every": 1, "eval_from_return": 20.0}
    group = trimtab.train_group(
        "CartPole-v1", PPO, seeds=[0, 1, 2], run_dir=tmp_path / "group", **settings
    )
    firsts = [run.evaluations[0]["update"] for run in group.runs]
    assert len(set(firsts)) > 1
    alone = train(tmp_path / "alone", "CartPole-v1", seed=1, devices="1", **settings)
    assert alone.evaluations[0]["update"] == firsts[1]


@pytest.mark.parametrize(("lanes", "warned"), [(2, True), (32, False)])
def test_few_episodes_are_told_of_once(tmp_path, lanes, warned):
    """A Probe3 episode has two steps: 8 steps of 2 lanes end 8 of them."""
    progress = Told()
    run = trimtab.train(
        "Probe3-v0",
        trimtab.REINFORCE(hidden_sizes=(4,)),
        run_dir=tmp_path / "run",
        progress=progress,
        **{**SETTINGS, "num_envs": lanes, "total_steps": lanes * 8 * 30},
    )
    assert {row["rollout/episodes"] for row in run.metrics} == {lanes * 4}
    found = [one for one in progress.sentences if "finished episodes" in one]
    assert len(found) == warned
    assert not warned or "A rollout held 8.0 finished episodes" in found[0]


def test_checkpoints_are_kept_along_a_run_and_hold_it_as_it_was(tmp_path):
    run = train(tmp_path / "run", "Probe1-v0", keep_every=3)
    kept = sorted(path.name for path in (run.path / "checkpoints").glob("update-*"))
    assert kept == ["update-3", "update-6"]
    short = train(tmp_path / "short", "Probe1-v0", total_steps=32 * 6)
    at_six = load(run.path / "checkpoints" / "update-6")
    np.testing.assert_equal(at_six, load(short.path / "checkpoints" / "latest"))


def load(folder):
    arrays = np.load(folder / "learner.npz")
    return {name: arrays[name] for name in arrays}


@pytest.mark.parametrize(
    ("env", "settings", "sentence"),
    [
        ("CartPole-v1", {"max_episode_steps": 500}, "max_episode_steps = 500 has no effect"),
        ("CartPole-v1", {"max_episode_steps": 0}, "out of bounds"),
        ("CartPole-v1", {"action_repeat": 0}, "out of bounds"),
        ("CartPole-v1", {"staggered_starts": "yes"}, "expected one of 'auto', 'on', 'off'"),
        ("CartPole-v1", {"eval_every": 3, "eval_count": 2}, "both say how often to evaluate"),
        ("CartPole-v1", {"eval_from_return": 9.0, "eval_count": 1}, "eval_from_return = 9 has no"),
        ("CartPole-v1", {"eval_from_return": float("nan")}, "out of bounds"),
        (
            "gymnasium:CartPole-v1",
            {"staggered_starts": "on"},
            "is for environments in compiled programs",
        ),
        (
            "CartPole-v1",
            {"gru_units": 4, "num_envs": 3},
            r"num_envs = 3 lanes cannot be split",
        ),
        ("CartPole-v1", {"hidden_sizes": (65_536,) * 4}, "The networks and their optimiser need"),
        ("CartPole-v1", {"num_envs": 2**20, "num_steps": 2**20}, "of memory for one rollout"),
    ],
)
def test_settings_without_effect_are_refused(tmp_path, env, settings, sentence):
    with pytest.raises(SettingError, match=sentence):
        train(tmp_path / "run", env, **settings)


def test_transitions_of_a_rollout_have_numbers_of_32_bits(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: None)
    memory.check_memory(0, 0, 2**15, 2**15)
    with pytest.raises(SettingError, match="transitions in one rollout: expected at most 2,147"):
        memory.check_memory(0, 0, 2**16, 2**16)
