"""Runs of host environments: how they are stepped, and what is told of it."""

import dataclasses
import functools
import gc
import threading

import gymnasium
import jax
import numpy as np
import pytest
from broken_envs import Counting, flaky_cartpole

import trimtab
from trimtab.algos.ppo import PPO
from trimtab.envs.sources import source_of
from trimtab.errors import SettingError
from trimtab.log.names import MEASURED
from trimtab.training.config import TrainSettings
from trimtab.training.host import HostSession
from trimtab.training.session import as_arrays

ALGORITHM = PPO(hidden_sizes=(8,), minibatches=2, epochs=1)


@pytest.fixture
def trained():
    """Parameters and metrics after some updates on Counting."""
    sessions = []

    def train(updates=4, make_env=Counting, **settings):
        sizes = {"num_envs": 4, "num_steps": 8, "total_steps": 10_000, "num_workers": 0}
        session = HostSession(
            source_of(make_env),
            as_arrays(dataclasses.replace(ALGORITHM, total_updates=10.0)),
            TrainSettings(**(sizes | settings)),
        )
        session.check()
        sessions.append(session)
        run, programs = session.compile()
        columns = []
        for _ in range(updates):
            run, metrics = programs.step(session.algorithm, run, 1)
            columns.append({name: np.asarray(column)[0] for name, column in metrics.items()})
        return np.asarray(run.learner.parameters.vector), columns, programs

    yield train
    for session in sessions:
        session.close()


def test_any_number_of_workers_learns_the_same(trained):
    expected, metrics, _ = trained(vectorization="in-process")
    for num_workers in (1, 4):
        found, same, _ = trained(vectorization="workers", num_workers=num_workers)
        np.testing.assert_array_equal(found, expected)
        for row, other in zip(same, metrics, strict=True):
            for name in row.keys() | other.keys():
                if not name.startswith(MEASURED):
                    np.testing.assert_array_equal(row[name], other[name], err_msg=name)


def test_overlap_is_one_policy_behind_and_repeats_itself(trained):
    plain, _, _ = trained(vectorization="in-process")
    first, metrics, _ = trained(vectorization="in-process", overlap=True)
    again, _, _ = trained(vectorization="workers", num_workers=2, overlap=True)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(plain, first)
    assert [row["rollout/policy_age"] for row in metrics] == [0, 1, 1, 1]
    # The rollout after the first update is one of the first policy, as a run without it shows.
    one, _, _ = trained(vectorization="in-process", updates=1)
    also_one, _, _ = trained(vectorization="in-process", updates=1, overlap=True)
    np.testing.assert_array_equal(one, also_one)


@pytest.mark.parametrize("overlap", [False, True])
def test_updates_leave_nothing_behind(overlap):
    session = HostSession(
        source_of(Counting),
        as_arrays(dataclasses.replace(ALGORITHM, total_updates=100.0)),
        TrainSettings(num_envs=4, num_steps=8, vectorization="in-process", overlap=overlap),
    )
    threads = threading.active_count()
    counts = []
    try:
        run, programs = session.compile()
        for _ in range(4):
            run, metrics = programs.step(session.algorithm, run, 3)
            del metrics
            gc.collect()
            counts.append(len(jax.live_arrays()))
    finally:
        session.close()
    assert counts[1] == counts[2] == counts[3]
    assert threading.active_count() == threads


def test_async_tells_how_old_its_fragments_are(trained):
    _, metrics, _ = trained(vectorization="async", num_workers=2)
    assert all(
        0 <= row["rollout/staleness_mean"] <= row["rollout/staleness_max"] <= 4 for row in metrics
    )
    assert all(np.isfinite(row["train/policy_loss"]) for row in metrics)


def test_restarts_are_counted_and_told(trained):
    make_env = functools.partial(Counting, breaks="raises", at=6)
    _, metrics, programs = trained(make_env=make_env, vectorization="in-process", max_restarts=99)
    restarts = sum(row["rollout/restarts"] for row in metrics)
    notices = programs.take_notices()
    assert restarts == len(notices) >= 16
    assert notices[0].startswith("Counting, lane 0, step 6 of episode 1: step() raised Arith")
    assert "Traceback" in notices[0]
    assert not any("Traceback" in notice for notice in notices[1:])
    assert not programs.take_notices()


def test_a_run_that_cannot_be_repeated_says_so(tmp_path):
    settings = {"num_envs": 2, "num_steps": 8, "total_steps": 16, "eval_episodes": 1}
    env = "gymnasium:CartPole-v1"
    run = trimtab.train(env, ALGORITHM, run_dir=tmp_path / "a", vectorization="async", **settings)
    recorded = run.folder.read_config()
    assert recorded["extra"] == {"reproducible": False}
    assert recorded["training"]["vectorization"] == "async"


def test_a_fused_run_refuses_workers(tmp_path):
    with pytest.raises(SettingError, match=r"vectorization = workers has no effect on CartPole-v1"):
        trimtab.train("CartPole-v1", vectorization="workers", run_dir=tmp_path / "run")


@pytest.mark.slow
def test_cartpole_is_solved_by_a_simulator_that_crashes_and_hangs(tmp_path):
    marks = tmp_path / "marks"
    make_env = functools.partial(flaky_cartpole, marks, raises=1 / 2_000, hangs=1 / 20_000)
    ppo = PPO(learning_rate=2.5e-3, learning_rate_schedule="linear", total_updates=120.0)
    settings = TrainSettings(num_envs=8, num_steps=64, vectorization="workers", step_deadline=2.0)
    session = HostSession(source_of(make_env), as_arrays(ppo), settings)
    whole = HostSession(
        source_of(lambda: gymnasium.make("CartPole-v1")), session.algorithm, settings
    )
    restarts = 0
    try:
        run, programs = session.compile()
        for _ in range(120):
            run, metrics = programs.step(session.algorithm, run, 1)
            restarts += int(np.asarray(metrics["rollout/restarts"])[0])
        episodes = whole.evaluator(20, True)(session.algorithm, run.learner, session.root)
    finally:
        session.close()
    made = marks.read_text()
    assert made.count("r") > 15
    assert made.count("h") > 0
    assert restarts == len(made)
    assert np.mean(episodes.returns) >= 475
