"""Whole runs: what is written, what is the same again, and what stops them."""

import dataclasses
import itertools
import os
import re
import signal
import threading
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trimtab
from trimtab.api import resume
from trimtab.envs.make import make
from trimtab.errors import (
    CheckpointError,
    EnvironmentFaultError,
    RunFolderError,
    SettingError,
    TrimtabError,
)
from trimtab.log.names import MEASURED
from trimtab.log.progress import Quiet
from trimtab.training.checkpoint import read_manifest
from trimtab.training.loop import Schedule
from trimtab.training.rundir import RunFolder

CARTPOLE = make("CartPole-v1")
SETTINGS = {"num_envs": 4, "num_steps": 16, "total_steps": 64 * 12, "eval_episodes": 3}


def train(folder, env="CartPole-v1", algorithm=None, **settings):
    return trimtab.train(
        env, algorithm or trimtab.PPO(minibatches=2), run_dir=folder, **{**SETTINGS, **settings}
    )


def without_times(rows):
    return [
        {name: value for name, value in row.items() if not name.startswith(MEASURED)}
        for row in rows
    ]


def parameters(run, checkpoint="latest"):
    return np.asarray(run.learner(checkpoint).parameters.vector)


class StopAfter(Quiet):
    """Asks for a stop, as Ctrl-C does, once some updates are recorded."""

    def __init__(self, updates, number=signal.SIGINT):
        self.updates, self.number = updates, number

    def updated(self, status):
        if status.update >= self.updates:
            self.updates = float("inf")
            os.kill(os.getpid(), self.number)


def test_a_run_writes_its_folder(tmp_path):
    run = train(tmp_path / "run")
    assert sorted(path.name for path in run.path.iterdir() if path.name != "lock") == [
        "checkpoints",
        "config.toml",
        "evaluations.jsonl",
        "metrics.jsonl",
        "spec.json",
    ]
    rows = run.metrics
    assert [row["update"] for row in rows] == list(range(1, 13))
    assert rows[-1]["steps"] == 64 * 12
    assert rows[-1]["train/entropy"] > 0
    assert run.evaluations[-1]["update"] == 12
    assert run.evaluations[-1]["episodes"] == 3


def test_the_same_seed_gives_the_same_metrics_and_another_does_not(tmp_path):
    first, second = (train(tmp_path / name) for name in ("a", "b"))
    other = train(tmp_path / "c", seed=1)
    np.testing.assert_equal(without_times(first.metrics), without_times(second.metrics))
    np.testing.assert_array_equal(parameters(first), parameters(second))
    assert first.evaluations == second.evaluations
    assert without_times(first.metrics) != without_times(other.metrics)


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1"])
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, env):
    algorithm = trimtab.PPO(
        minibatches=2,
        normalize_observations=env == "Pendulum-v1",
        learning_rate_schedule="linear",
    )
    whole = train(tmp_path / "whole", env, algorithm)
    stopped = trimtab.train(
        env,
        algorithm,
        run_dir=tmp_path / "half",
        progress=StopAfter(1),
        **{**SETTINGS, "eval_every": 4},
    )
    assert stopped.stopped_by == "SIGINT"
    assert 0 < len(stopped.metrics) < 12
    resumed = resume(tmp_path / "half")
    assert resumed.stopped_by is None
    np.testing.assert_array_equal(parameters(whole), parameters(resumed))
    for ours, theirs in zip(
        without_times(whole.metrics), without_times(resumed.metrics), strict=True
    ):
        np.testing.assert_equal(ours, theirs)


def test_what_was_written_after_the_checkpoint_is_not_doubled(tmp_path):
    run = train(tmp_path / "run")
    rows, folder = run.metrics, RunFolder.open(run.path)
    with folder.metrics_path.open("a") as file:
        file.write('{"update": 99}\n{"torn')
    np.testing.assert_equal(resume(run.path).metrics, rows)


def test_evaluation_does_not_touch_training(tmp_path):
    often = train(tmp_path / "often", eval_every=1)
    never = train(tmp_path / "never", eval_every=1000)
    assert len(often.evaluations) == 12
    assert len(never.evaluations) == 1
    np.testing.assert_array_equal(parameters(often), parameters(never))


def test_best_is_the_checkpoint_with_the_best_evaluation(tmp_path):
    run = train(tmp_path / "run", eval_every=1, algorithm=trimtab.PPO(learning_rate=0.05))
    from trimtab.training.checkpoint import read_manifest

    best = max(run.evaluations, key=lambda row: row["mean"])
    assert read_manifest(run.folder.checkpoint_path("best"))["update"] == best["update"]


def test_at_the_end_the_best_is_evaluated_again_on_seeds_that_did_not_choose_it(tmp_path):
    run = train(tmp_path / "run", eval_every=1, algorithm=trimtab.PPO(learning_rate=0.01))
    best = max(run.evaluations, key=lambda row: row["mean"])
    final = run.final_evaluation
    assert (final["update"], final["checkpoint"]) == (best["update"], "best")
    assert final["mean"] != best["mean"]
    assert len(run.evaluations) == 12
    # A run that was made longer is not done: then its new end has the last word.
    longer = resume(run.path, total_steps=64 * 14)
    assert longer.final_evaluation is not None
    assert len(longer.evaluations) == 14
    assert [row["update"] for row in longer.evaluations] == list(range(1, 15))


def damage(folder, name):
    file = folder / "checkpoints" / name / "learner.npz"
    file.write_bytes(file.read_bytes()[:-1])


class Sentences(Quiet):
    def __init__(self):
        self.said = []

    def say(self, sentence):
        self.said.append(sentence)


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(tmp_path):
    whole = resume(train(tmp_path / "whole").path, total_steps=64 * 14)
    names = sorted(path.name for path in (whole.path / "checkpoints").iterdir())
    assert names == ["best", "latest", "latest.previous"]
    damage(whole.path, "latest")
    with pytest.raises(CheckpointError, match=r"learner\.npz is damaged.*latest\.previous"):
        resume(whole.path, strict=True)
    progress = Sentences()
    again = resume(whole.path, progress)
    assert "learner.npz is damaged" in progress.said[0]
    assert "latest.damaged" in progress.said[0]
    np.testing.assert_equal(without_times(again.metrics), without_times(whole.metrics))
    damage(whole.path, "latest")
    damage(whole.path, "latest.previous")
    with pytest.raises(CheckpointError, match=r"latest\.previous: learner\.npz is damaged"):
        resume(whole.path, progress)


def test_a_damaged_best_is_set_aside(tmp_path):
    run = train(tmp_path / "run")
    damage(run.path, "best")
    progress = Sentences()
    resume(run.path, progress, total_steps=64 * 13)
    assert "best.damaged" in progress.said[-1]
    assert run.evaluate(episodes=1)["checkpoint"] == "best"


def test_evaluate_is_repeatable_and_seeds_differ(tmp_path):
    run = train(tmp_path / "run")
    figures = run.evaluate(episodes=8, seed=3)
    assert figures == trimtab.load(run.path).evaluate(episodes=8, seed=3)
    assert figures["episodes"] == 8
    assert figures["mean"] != run.evaluate(episodes=8, seed=4)["mean"]
    assert run.evaluate(episodes=8, deterministic=False)["deterministic"] is False


def test_policy_acts_on_one_observation_and_on_a_batch(tmp_path):
    policy = train(tmp_path / "run", "Pendulum-v1").policy
    one, many = policy(np.zeros(3)), policy(np.zeros((5, 3)))
    assert one.shape == (1,)
    assert many.shape == (5, 1)
    np.testing.assert_allclose(many, one[None].repeat(5, axis=0), rtol=1e-5)
    assert np.abs(policy(np.full((50, 3), 1e6))).max() <= 2.0  # the environment's bounds
    with pytest.raises(SettingError, match=r"has the shape \(3,\), with one more .*got \(4,\)"):
        policy(np.zeros(4))


@dataclasses.dataclass(frozen=True)
class Broken:
    """CartPole whose observation is NaN when the cart has been stepped so often."""

    after: int

    @property
    def spec(self):
        return dataclasses.replace(CARTPOLE.spec, id="Broken-v0")

    def reset(self, key):
        state, obs = CARTPOLE.reset(key)
        return (state, jnp.int32(0), key), obs

    def step(self, key, state, action):
        inner, count, seed = state
        inner, after = CARTPOLE.step(key, inner, action)
        obs = jnp.where(count == self.after, jnp.nan, after.obs)
        return (inner, count + 1, seed), after._replace(obs=obs)


def test_nan_observations_are_named_by_lane_and_step(tmp_path):
    with pytest.raises(EnvironmentFaultError, match="lane 0, at step 5 of update 1"):
        train(tmp_path / "run", env=Broken(after=5))


def test_divergence_is_said_and_the_last_sound_state_is_kept(tmp_path):
    with pytest.raises(TrimtabError, match=r"diverged in update \d+.*learning_rate"):
        train(
            tmp_path / "run",
            algorithm=trimtab.PPO(learning_rate=1.0, max_grad_norm=1e9, value_coefficient=100.0),
            env=Huge(),
            num_envs=4096,  # one update a call, so that the first ones are recorded
            total_steps=4096 * 16 * 60,
        )


def test_numbers_that_are_not_finite_never_replace_a_checkpoint(tmp_path):
    """Saved after every update: the last one that was sound is what is left."""
    late = Huge(after=25)  # steps of an episode: later than the first update
    with pytest.raises(TrimtabError, match="diverged in update") as caught:
        train(tmp_path / "run", env=late, checkpoint_every=1, total_steps=64 * 200)
    diverged = int(re.search(r"update (\d+)", str(caught.value)).group(1))
    assert diverged > 1
    run = trimtab.load(tmp_path / "run", env=late)
    assert read_manifest(run.folder.checkpoint_path("latest"))["update"] == diverged - 1
    for leaf in jax.tree.leaves(run.learner("latest")):
        assert np.isfinite(np.asarray(leaf)).all()


@dataclasses.dataclass(frozen=True)
class Huge:
    """Rewards that float32 can hold and their squares cannot, after so many steps."""

    after: int = 0

    @property
    def spec(self):
        return dataclasses.replace(CARTPOLE.spec, id="Huge-v0")

    def reset(self, key):
        state, obs = CARTPOLE.reset(key)
        return (state, jnp.int32(0)), obs

    def step(self, key, state, action):
        inner, count = state
        inner, after = CARTPOLE.step(key, inner, action)
        scale = jnp.where(count >= self.after, jnp.float32(1e25), jnp.float32(1))
        return (inner, count + 1), after._replace(reward=scale * after.reward)


def test_a_folder_in_use_is_refused(tmp_path):
    run = train(tmp_path / "run")
    with run.folder.lock(), pytest.raises(RunFolderError, match="in use"):
        resume(run.path)


def test_a_folder_with_a_run_is_not_overwritten(tmp_path):
    run = train(tmp_path / "run")
    before = run.metrics
    with pytest.raises(RunFolderError, match="already holds a run"):
        train(tmp_path / "run")
    np.testing.assert_equal(run.metrics, before)


def test_a_checkpoint_of_another_network_is_refused_with_the_shapes(tmp_path):
    run = train(tmp_path / "run", algorithm=trimtab.PPO(hidden_sizes=(8,), minibatches=2))
    config = run.folder.config_path
    config.write_text(config.read_text().replace("hidden_sizes = [8]", "hidden_sizes = [16]"))
    with pytest.raises(CheckpointError, match=r"actor/layers/0/weight.*16.*8"):
        trimtab.load(run.path).evaluate(episodes=1)


def test_a_rollout_that_does_not_fit_is_refused_before_it_is_allocated(tmp_path):
    started = time.monotonic()
    with pytest.raises(SettingError, match=r"num_envs × num_steps = 1,000,000,000.*would fit"):
        train(tmp_path / "run", num_envs=1_000_000_000)
    assert time.monotonic() - started < 20
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_minibatches_must_divide_the_batch(tmp_path):
    with pytest.raises(SettingError, match=r"4 × 16 = 64.*minibatches = 5.*Nearest.*4"):
        train(tmp_path / "run", algorithm=trimtab.PPO(minibatches=5))


def test_training_works_outside_the_main_thread(tmp_path):
    thread = threading.Thread(target=train, args=(tmp_path / "run",))
    thread.start()
    thread.join()
    assert len(trimtab.load(tmp_path / "run").metrics) == 12


@pytest.mark.parametrize(
    ("updates", "batch", "eval_every", "checkpoint_every"),
    [(100, 512, 7, 0), (5, 100_000, 2, 3), (64, 32, 64, 10), (1, 32, 5, 0)],
)
def test_calls_cover_the_run_and_stop_where_they_must(updates, batch, eval_every, checkpoint_every):
    schedule = Schedule(updates, batch, eval_every, checkpoint_every)
    stops = [0]
    while stops[-1] < updates:
        count = schedule.next_call(stops[-1])
        assert 1 <= count <= schedule.capacity
        stops.append(stops[-1] + count)
    assert stops[-1] == updates
    evaluations = set(range(eval_every, updates + 1, eval_every)) | {updates}
    assert evaluations <= set(stops)
    assert {done for done in stops[1:] if schedule.evaluates(done)} == evaluations
    if checkpoint_every:
        assert set(range(checkpoint_every, updates + 1, checkpoint_every)) <= set(stops)


def test_a_loop_of_ones_own():
    """The example of docs/library.md, with the package as a library."""
    env, ppo = trimtab.make("CartPole-v1"), trimtab.PPO(learning_rate=3e-3)
    root = jax.random.key(0)
    learner = ppo.init(trimtab.stream(root, trimtab.Purpose.INIT), env.spec)
    actor = ppo.actor(learner)
    lanes = trimtab.start_lanes(ppo, env, actor, root, jnp.arange(32, dtype=jnp.int32))

    @jax.jit
    def update(learner, lanes, number):
        actor = ppo.actor(learner)
        lanes, rollout = trimtab.collect_fused(ppo, env, actor, lanes, root, number, 32)
        key = trimtab.stream(root, trimtab.Purpose.SHUFFLE, number)
        learner, metrics = ppo.update(learner, rollout, key)
        return learner, lanes, metrics | lanes.finished.metrics()

    for number in itertools.count():
        learner, lanes, metrics = update(learner, lanes, jnp.int32(number))
        if metrics["rollout/length_mean"] > 30 or number == 40:
            break
    assert number < 40
