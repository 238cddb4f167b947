"""``auto``: what is taken, that it is recorded, and that it changes nothing else."""

import functools
import time

import numpy as np
import pytest
from broken_envs import Counting
from fake_envpool import FakePool

import trimtab
from trimtab.api import resume
from trimtab.cli import main
from trimtab.collect import modes
from trimtab.collect.modes import Measured, choose
from trimtab.collect.settings import HostSettings
from trimtab.envs.sources import HostSource, source_of
from trimtab.errors import SettingError

SMALL = {"hidden_sizes": (8,), "minibatches": 1, "epochs": 1}
SIZES = {"num_envs": 4, "num_steps": 8, "total_steps": 64, "eval_episodes": 1}


class Waits(Counting):
    """A step waits for something that is no processor."""

    def step(self, action):
        time.sleep(0.004)
        return super().step(action)


class Sleeps(Counting):
    def step(self, action):
        time.sleep(1_000)


def chosen(monkeypatch, in_process, workers=1.0, computing=1.0, steps=10**9, num_envs=8):
    """The choice where the modes are so fast, and the modes that were measured for it."""
    rates, asked = {"in-process": in_process, "workers": workers}, []

    def measured(source, num_envs, settings, mode, num_workers=0):
        asked.append((mode, num_workers))
        return Measured(mode, rates[mode], 0.0, computing, 1 / rates[mode], num_workers)

    monkeypatch.setattr(modes, "measure_mode", measured)
    monkeypatch.setattr(modes, "workers_for", lambda *_: 2)
    return choose(source_of(Counting), num_envs, HostSettings(), steps), asked


def test_cheap_steps_start_no_worker(monkeypatch):
    choice, asked = chosen(monkeypatch, in_process=100_000)
    assert (choice.vectorization, asked) == ("in-process", [("in-process", 0)])
    assert choice.why == "a step takes 10 µs, too little to be worth sharing"


def test_short_runs_start_no_worker(monkeypatch):
    choice, asked = chosen(monkeypatch, in_process=1_000, steps=5_000)
    assert (choice.vectorization, asked) == ("in-process", [("in-process", 0)])
    assert choice.why.startswith("5,000 steps take 5.0 s in process")


@pytest.mark.parametrize(("workers", "mode"), [(1_900, "workers"), (900, "in-process")])
def test_the_faster_one_is_taken(monkeypatch, workers, mode):
    choice, asked = chosen(monkeypatch, in_process=1_000, workers=workers)
    assert choice.vectorization == mode
    assert asked == [("in-process", 0), ("workers", 2)]
    assert choice.num_workers == (2 if mode == "workers" else 0)
    assert choice.record()["steps_per_second"] == {"in-process": 1_000, "workers": workers}


def test_what_waits_is_given_a_worker_for_each_lane(monkeypatch):
    _, asked = chosen(monkeypatch, in_process=1_000, computing=0.1)
    assert asked[1] == ("workers", 8)


def test_one_lane_and_lanes_that_step_themselves_are_not_measured(monkeypatch):
    assert chosen(monkeypatch, in_process=1.0, num_envs=1)[1] == []
    pool = HostSource(source_of(Counting).spec, make_host=lambda *_: FakePool)
    assert choose(pool, 8, HostSettings(), 10**9).vectorization == "envpool"


def test_deadlines_go_with_the_workers(monkeypatch):
    asked = HostSettings(step_deadline=3.0)
    slow, _ = chosen(monkeypatch, in_process=1_000, workers=2_000)
    assert slow.settled(asked).step_deadline == 3.0
    cheap, _ = chosen(monkeypatch, in_process=100_000)
    assert cheap.settled(asked) == HostSettings(vectorization="in-process")


def test_an_environment_that_waits_is_measured_as_it_is():
    choice = choose(source_of(Waits), 2, HostSettings(), 10**6)
    assert (choice.vectorization, choice.num_workers) == ("workers", 2), choice
    alone, shared = choice.measured
    assert alone.computing < 0.5
    assert shared.steps_per_second > 1.2 * alone.steps_per_second


def test_what_hangs_or_raises_in_process_is_left_to_workers():
    settings = HostSettings(step_deadline=0.2, start_deadline=0.1)
    hung = choose(source_of(Sleeps), 2, settings, 10**6)
    assert hung.vectorization == "workers"
    assert "Sleeps: measuring a few steps in process took longer than 0.3 s" in hung.why
    raises = functools.partial(Counting, breaks="raises", at=2)
    raised = choose(source_of(raises), 2, HostSettings(), 10**6)
    assert raised.vectorization == "workers"
    assert "the wheels came off" in raised.why


def test_a_run_records_what_it_took_and_is_the_same_as_if_it_had_been_asked(tmp_path, monkeypatch):
    ppo = trimtab.PPO(**SMALL)
    auto = trimtab.train(Counting, ppo, run_dir=tmp_path / "auto", **SIZES)
    asked = trimtab.train(
        Counting, ppo, run_dir=tmp_path / "asked", vectorization="in-process", **SIZES
    )
    stored = auto.folder.read_config()
    assert stored["training"]["vectorization"] == "in-process"
    record = stored["extra"]["vectorization"]
    assert record["asked"] == "auto"
    assert record["steps_per_second"]["in-process"] > 0
    assert "extra" not in asked.folder.read_config()
    one, other = (run.learner("latest").parameters.vector for run in (auto, asked))
    np.testing.assert_array_equal(one, other)
    # A run that goes on is not measured again, and keeps its record.
    monkeypatch.setattr("trimtab.training.host.choose", None)
    longer = resume(auto.path, env=Counting, total_steps=96)
    assert longer.folder.read_config()["extra"]["vectorization"] == record


def test_envpool_is_asked_for_by_the_id(tmp_path):
    with pytest.raises(SettingError, match=r"Counting is not envpool's.*'envpool:Counting'"):
        trimtab.train(
            Counting, trimtab.PPO(**SMALL), run_dir=tmp_path / "a", vectorization="envpool", **SIZES
        )
    assert not (tmp_path / "a").exists()


def test_bench_env_prints_every_mode(capsys, monkeypatch):
    monkeypatch.setattr(modes, "MEASURED_STEPS", 5)
    assert (
        main(["bench-env", "gymnasium:CartPole-v1", "--num-envs", "2", "--num-workers", "1"]) == 0
    )
    out = capsys.readouterr().out
    for mode in ("in-process", "workers", "gymnasium Sync", "gymnasium Async"):
        assert mode in out
    assert main(["bench-env", "CartPole-v1"]) == 2
    assert "trimtab bench-env gymnasium:CartPole-v1" in capsys.readouterr().err
    assert main(["bench-env", "gymnasium:CartPole-v1", "--num-workers", "9"]) == 2
    assert "--num-workers 9 is not valid" in capsys.readouterr().err
