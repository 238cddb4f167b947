"""Groups: each run is what it would be alone, is kept by itself, and goes on."""

import dataclasses
import os
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trimtab
from trimtab.api import resume
from trimtab.envs.make import make
from trimtab.errors import RunFolderError, SettingError, TrimtabError
from trimtab.groups import devices_for, resume_group
from trimtab.log.names import MEASURED
from trimtab.log.progress import Quiet

PPO = trimtab.PPO(minibatches=2, hidden_sizes=(8,))
SETTINGS = {"num_envs": 4, "num_steps": 16, "total_steps": 64 * 8, "eval_episodes": 3}


def train_group(folder, env="CartPole-v1", **settings):
    return trimtab.train_group(env, PPO, run_dir=folder, **{**SETTINGS, **settings})


@pytest.fixture(scope="module")
def group(tmp_path_factory):
    """Three seeds and two learning rates: six runs on two devices."""
    folder = tmp_path_factory.mktemp("groups") / "group"
    return train_group(folder, seeds=[3, 0, 7], sweep={"learning_rate": [1e-3, 1e-2]})


def assert_same_metrics(ours, theirs):
    """To float tolerance."""
    assert [row["update"] for row in ours] == [row["update"] for row in theirs]
    for mine, other in zip(ours, theirs, strict=True):
        assert set(mine) == set(other)
        for name in mine:
            if not name.startswith(MEASURED):
                np.testing.assert_allclose(
                    mine[name], other[name], rtol=1e-2, atol=1e-4, err_msg=name
                )


def test_each_run_has_the_metrics_that_it_would_have_alone(group, tmp_path):
    alone = trimtab.train(
        "CartPole-v1",
        dataclasses.replace(PPO, learning_rate=1e-2),
        run_dir=tmp_path / "alone",
        seed=7,
        devices="1",
        **SETTINGS,
    )
    ours = group.runs[5]
    assert (ours.configuration.training.seed, ours.configuration.algorithm.learning_rate) == (
        7,
        1e-2,
    )
    assert_same_metrics(ours.metrics, alone.metrics)
    assert [e["mean"] for e in ours.evaluations] == [e["mean"] for e in alone.evaluations]
    assert ours.configuration == alone.configuration


def test_runs_differ_by_seed_and_by_value(group):
    curves = [tuple(row["train/entropy"] for row in run.metrics) for run in group.runs]
    assert len(set(curves)) == 6


def test_each_run_is_a_run(group):
    run = trimtab.load(group.path / "learning_rate=0.01-seed-0")
    assert run.steps == 64 * 8
    assert run.evaluate(episodes=2)["episodes"] == 2


def test_the_summary_pools_seeds(group):
    last = [run.evaluations[-1]["mean"] for run in group.runs]
    first, second = trimtab.load_group(group.path).summary
    assert (first["values"], second["values"]) == (
        {"learning_rate": 1e-3},
        {"learning_rate": 1e-2},
    )
    assert first["seeds"] == 3
    assert first["iqm"] == pytest.approx(np.mean(last[:3]))  # of three, none is cut off
    assert second["min"] == min(last[3:])
    assert second["interval"][0] <= second["iqm"] <= second["interval"][1]
    assert first["solved"] == 0


class StopAfter(Quiet):
    """Asks for a stop, as Ctrl-C does, once some updates are recorded."""

    def updated(self, status):
        if status.update >= 2 and not getattr(self, "asked", False):
            self.asked = True
            os.kill(os.getpid(), signal.SIGINT)


def test_a_stopped_group_goes_on_together_or_each_by_itself(group, tmp_path):
    choice = {"seeds": [3, 0, 7], "sweep": {"learning_rate": [1e-3, 1e-2]}}
    stopped = train_group(tmp_path / "half", progress=StopAfter(), eval_every=4, **choice)
    assert stopped.stopped_by == "SIGINT"
    assert stopped.summary == []
    assert {len(run.metrics) for run in stopped.runs} == {4}
    whole = resume_group(stopped.path)
    assert whole.stopped_by is None
    for ours, theirs in zip(whole.runs, group.runs, strict=True):
        assert_same_metrics(ours.metrics, theirs.metrics)
    # One that is a checkpoint ahead, as after a kill amid the saves, goes on with the others.
    ahead = whole.path / "learning_rate=0.01-seed-3"
    assert len(resume(ahead, total_steps=64 * 9).metrics) == 9
    together = resume_group(whole.path, total_steps=64 * 10)
    assert {len(run.metrics) for run in together.runs} == {10}
    for updates in (11, 12):
        resume(ahead, total_steps=64 * updates)
    with pytest.raises(RunFolderError, match="do not stand at the same update"):
        resume_group(whole.path, total_steps=64 * 14)


CARTPOLE = make("CartPole-v1")


@dataclasses.dataclass(frozen=True)
class BreaksForOneSeed:
    """CartPole that gives NaN at its first episode's tenth step if its seed says so."""

    bad: int

    @property
    def spec(self):
        return dataclasses.replace(CARTPOLE.spec, id="Breaks-v0")

    def reset(self, key):
        state, obs = CARTPOLE.reset(key)
        return (state, jnp.int32(0), jax.random.key_data(key)[0]), obs

    def step(self, key, state, action):
        inner, count, name = state
        inner, after = CARTPOLE.step(key, inner, action)
        broken = (count == 9) & (name == jnp.uint32(self.bad))
        obs = jnp.where(broken, jnp.nan, after.obs)
        return (inner, count + 1, name), after._replace(obs=obs)


def test_a_run_that_fails_is_left_out_and_the_others_go_on(tmp_path):
    from trimtab.keys import Purpose, stream

    root = stream(jax.random.key(5), Purpose.FIRST_RESET, 0)
    name = int(jax.random.key_data(jax.random.fold_in(root, 0))[0])
    said = []

    class Heard(Quiet):
        def say(self, sentence):
            said.append(sentence)

    env = BreaksForOneSeed(name)
    group = train_group(tmp_path / "group", env, seeds=[4, 5], progress=Heard())
    assert len(group.runs[0].metrics) == 8
    assert "not finite" in group.document["runs"][1]["error"]
    assert group.document["runs"][0]["error"] is None
    assert group.summary[0]["failed"] == 1
    assert said[0].startswith("seed-5: The environment gave an observation")
    with pytest.raises(TrimtabError, match="not finite"):
        train_group(tmp_path / "all", env, seeds=[5])


def test_a_folder_that_holds_something_is_refused(group):
    with pytest.raises(RunFolderError, match="already holds a group of runs"):
        train_group(group.path, seeds=[0])
    with pytest.raises(RunFolderError, match="already holds a run"):
        train_group(group.runs[0].path, seeds=[0])
    with pytest.raises(RunFolderError, match=r"has no group.json"):
        trimtab.load_group(group.runs[0].path)


def test_devices(group):
    assert devices_for("2", 6) == 2
    for wrong in ("7", "0", "many"):
        with pytest.raises(SettingError, match="a number from 1 to 6"):
            devices_for(wrong, 6)
