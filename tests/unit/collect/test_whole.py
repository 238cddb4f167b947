"""Whole episodes: no length is preferred, every step is counted, and nothing is lost on a resume.

``Coin`` has episodes of 2 and of 10 steps, as a coin says, with a reward of 1 in each step. Over
lanes that make T = 10 steps, f(s) expects the steps and e(s) the episodes that follow on step s:

    f(s) = ½ (2 + f(s + 2)) + ½ (10 + f(s + 10)),   e(s) = 1 + ½ e(s + 2) + ½ e(s + 10),
    and both are 0 where s ≥ T.
"""

import dataclasses
import json
import os
import signal
from typing import NamedTuple

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import trimtab
from trimtab.algos.reinforce import REINFORCE
from trimtab.collect.fused import collect_fused
from trimtab.collect.whole import collect_whole
from trimtab.collect.whole_host import Filled
from trimtab.errors import SettingError
from trimtab.log.progress import Quiet
from trimtab.spaces import Box, Discrete, EnvSpec
from trimtab.training.step import begin, lanes_mesh, make_step
from trimtab.types import Rollout, Transition

LONG, SHORT, LANES = 10, 2, 4096
ALGORITHM = REINFORCE(episodes="whole", hidden_sizes=(4,))


class CoinState(NamedTuple):
    length: jax.Array
    time: jax.Array


class Coin:
    spec = EnvSpec("Coin", Box((1,)), Discrete(2), max_episode_steps=LONG)

    def reset(self, key):
        length = jnp.where(jax.random.bernoulli(key), LONG, SHORT)
        return CoinState(length, jnp.int32(0)), jnp.zeros(1)

    def step(self, key, state, action):
        state = state._replace(time=state.time + 1)
        over = state.time >= state.length
        return state, Transition(
            state.time.astype(jnp.float32)[None], jnp.float32(1), over, jnp.bool_(False)
        )


def expected(steps):
    """The steps and the episodes of a lane that owes so many steps."""
    found = np.zeros((2, steps + LONG))
    for s in reversed(range(steps)):
        f, e = found
        found[0, s] = (SHORT + f[s + SHORT]) / 2 + (LONG + f[s + LONG]) / 2
        found[1, s] = 1 + e[s + SHORT] / 2 + e[s + LONG] / 2
    return found[:, 0]


@pytest.fixture(scope="module")
def started():
    run = begin(ALGORITHM, Coin(), LANES, jax.random.key(0))
    return run, ALGORITHM.actor(run.learner)


def collected(collect, started, num_steps):
    run, actor = started
    program = jax.jit(
        lambda lanes, update: collect(ALGORITHM, Coin(), actor, lanes, run.root, update, num_steps)
    )
    lanes, rollout = program(run.lanes, jnp.int32(0))
    return lanes, jax.tree.map(np.asarray, rollout)


def test_every_length_counts_as_often_as_it_occurs(started):
    lanes, rollout = collected(collect_whole, started, LONG)
    finished = jax.tree.map(np.asarray, lanes.finished)
    steps, episodes = expected(LONG)
    taken = np.asarray(lanes.lead) + LONG
    np.testing.assert_allclose(taken.mean(), steps, atol=4 * taken.std() / LANES**0.5)
    np.testing.assert_allclose(
        finished.count.mean(), episodes, atol=4 * finished.count.std() / LANES**0.5
    )
    # Wald: the sum of returns is as many means, of 6, as there are episodes.
    surplus = finished.return_sum - 6.0 * finished.count
    np.testing.assert_allclose(surplus.mean(), 0.0, atol=4 * surplus.std() / LANES**0.5)
    np.testing.assert_allclose(steps, 6.0 * episodes)
    # What is counted is just those episodes.
    np.testing.assert_array_equal(rollout.reward.sum(axis=0), taken)
    np.testing.assert_array_equal(rollout.terminated.sum(axis=0), finished.count)


def test_to_keep_what_ends_in_time_would_prefer_short_episodes(started):
    """What whole rollouts are for: the same lanes, cut after T steps, give another mean."""
    lanes, _ = collected(collect_fused, started, LONG)
    finished = jax.tree.map(np.asarray, lanes.finished)
    # Long ones end in time only as the first of a lane; of short ones there may be five.
    mean = finished.return_sum.sum() / finished.count.sum()
    long = 0.5
    short = sum(0.5**k for k in range(1, 6))
    expected_mean = (10 * long + 2 * short) / (long + short)
    residual = finished.return_sum - expected_mean * finished.count
    np.testing.assert_allclose(residual.mean(), 0.0, atol=4 * residual.std() / LANES**0.5)
    assert mean < 5.0  # not 6


def test_rows_past_a_lanes_last_end_repeat_its_first_and_say_nothing(started):
    lanes, rollout = collected(collect_whole, started, LONG)
    taken = np.asarray(lanes.lead) + LONG
    assert rollout.reward.shape == (2 * LONG, LANES)
    rest = np.arange(2 * LONG)[:, None] >= taken
    ended = rollout.terminated | rollout.truncated
    assert ended[taken - 1, np.arange(LANES)].all()
    assert not ended[rest].any()
    assert not rollout.reward[rest].any()
    first = np.broadcast_to(rollout.action[0], rollout.action.shape)
    np.testing.assert_array_equal(rollout.action[rest], first[rest])
    samples, _ = jax.jit(ALGORITHM.prepare)(started[0].learner, rollout)
    np.testing.assert_array_equal(np.asarray(samples.counted), ~rest)


def test_a_lane_owes_less_by_what_it_took_too_much():
    """Steps are u·N·T, and less than N·L more; each rollout has just what is owed."""
    run = begin(ALGORITHM, Coin(), 8, jax.random.key(1))
    run, metrics = make_step(Coin(), LONG + 3, 20, None)(ALGORITHM, run, 20)
    metrics = jax.tree.map(np.asarray, metrics)
    total = np.cumsum(metrics["rollout/transitions"])
    owed = 8 * (LONG + 3) * np.arange(1, 21)
    np.testing.assert_array_equal(total - owed, metrics["rollout/steps_ahead"])
    assert (metrics["rollout/steps_ahead"] >= 0).all()
    assert (metrics["rollout/steps_ahead"] < 8 * LONG).all()
    assert metrics["rollout/steps_ahead"].any()
    lengths = metrics["rollout/length_mean"] * metrics["rollout/episodes"]
    np.testing.assert_allclose(lengths, metrics["rollout/transitions"], rtol=1e-6)
    longest = (total - owed + metrics["rollout/unused_steps"]).max()
    assert 0 <= longest <= 8 * 2 * LONG


def test_the_gradient_is_the_mean_over_the_transitions_of_whole_episodes(started):
    run = begin(ALGORITHM, Coin(), 8, jax.random.key(2))
    actor = ALGORITHM.actor(run.learner)
    _, rollout = collect_whole(ALGORITHM, Coin(), actor, run.lanes, run.root, jnp.int32(0), LONG)
    plain = dataclasses.replace(ALGORITHM, advantage_normalization="off")
    samples, _ = plain.prepare(run.learner, rollout)
    rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
    gradient, _ = plain.gradient(run.learner.parameters, rows)
    kept = np.asarray(rows.counted)
    alone = jax.tree.map(lambda leaf: leaf[kept], rows._replace(weight=None))
    expected, _ = plain.gradient(run.learner.parameters, alone)
    np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-6)


def test_statistics_and_metrics_are_of_what_counts():
    algorithm = dataclasses.replace(
        ALGORITHM,
        normalize_observations=True,
        normalize_rewards=True,
        value_normalization="returns",
    )
    run = begin(algorithm, Coin(), 8, jax.random.key(2))
    actor = algorithm.actor(run.learner)
    _, rollout = collect_whole(algorithm, Coin(), actor, run.lanes, run.root, jnp.int32(0), LONG)
    samples, values = algorithm.prepare(run.learner, rollout)
    counted = np.asarray(samples.counted)
    after, metrics = algorithm.update(run.learner, rollout, jax.random.key(0))
    seen = np.asarray(rollout.obs)[counted]
    assert after.observations.count == len(seen) < counted.size
    np.testing.assert_allclose(after.observations.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(after.observations.deviation, seen.std(axis=0), rtol=1e-4)
    targets = np.asarray(samples.target)[counted]
    np.testing.assert_allclose(after.targets.mean, targets.mean(), rtol=1e-5)
    assert after.rewards.count == len(seen)
    advantages = np.asarray(samples.advantage)[counted]
    np.testing.assert_allclose(metrics["train/advantage_mean"], advantages.mean(), rtol=1e-4)
    np.testing.assert_allclose(metrics["train/advantage_std"], advantages.std(), rtol=1e-4)
    np.testing.assert_allclose(metrics["train/advantage_min"], advantages.min())
    np.testing.assert_allclose(metrics["train/value_max"], np.asarray(values)[counted].max())
    shares = np.bincount(np.asarray(rollout.action)[counted], minlength=2) / len(seen)
    np.testing.assert_allclose(metrics["train/action_top_share"], shares.max(), rtol=1e-5)


def test_two_devices_collect_and_learn_what_one_does():
    runs = []
    for devices in (1, 2):
        step = make_step(Coin(), LONG, 3, lanes_mesh(devices))
        runs.append(step(ALGORITHM, begin(ALGORITHM, Coin(), 8, jax.random.key(0)), 3))
    (one, ours), (two, theirs) = runs
    np.testing.assert_array_equal(one.lanes.lead, two.lanes.lead)
    np.testing.assert_allclose(
        one.learner.parameters.vector, two.learner.parameters.vector, rtol=1e-3, atol=1e-5
    )
    for name, values in ours.items():
        np.testing.assert_allclose(values, theirs[name], rtol=1e-3, atol=1e-4, err_msg=name)


def test_seeds_can_be_mapped_and_each_equals_its_own_run():
    step = make_step(Coin(), LONG, 3, None)
    alone = [step(ALGORITHM, begin(ALGORITHM, Coin(), 4, jax.random.key(s)), 3) for s in (0, 1)]
    starts = [begin(ALGORITHM, Coin(), 4, jax.random.key(s)) for s in (0, 1)]
    runs = jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)
    together, metrics = jax.jit(jax.vmap(lambda run: step(ALGORITHM, run, 3)))(runs)
    for seed, (run, own) in enumerate(alone):
        np.testing.assert_array_equal(together.lanes.lead[seed], run.lanes.lead)
        np.testing.assert_array_equal(
            metrics["rollout/transitions"][seed], own["rollout/transitions"]
        )
        np.testing.assert_allclose(
            together.learner.parameters.vector[seed],
            run.learner.parameters.vector,
            rtol=1e-3,
            atol=1e-5,
        )


# ------------------------------------------------------------------------------------------ runs


class Unsavable(gymnasium.Env):
    """Episodes of 1 to 8 steps that a seed determines; it has no way to keep its state."""

    observation_space = gymnasium.spaces.Box(0.0, 8.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.time = int(self.np_random.integers(1, 9)), 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        over = self.time >= self.length
        return np.float32([self.time]), float(action), over, False, {}


SETTINGS = {
    "num_envs": 4,
    "num_steps": 24,
    "total_steps": 96 * 6,
    "max_episode_steps": 20,
    "eval_every": 2,
    "eval_episodes": 2,
}


class Stop(Quiet):
    """Asks for a stop, as Ctrl-C does, once so many updates are recorded."""

    def __init__(self, updates):
        self.updates, self.said = updates, []

    def say(self, sentence):
        self.said.append(sentence)

    def updated(self, status):
        if status.update >= self.updates:
            self.updates = float("inf")
            os.kill(os.getpid(), signal.SIGINT)


def without_times(rows):
    return [
        {k: v for k, v in row.items() if not k.startswith(("time/", "system/"))} for row in rows
    ]


@pytest.mark.parametrize("env", ["CartPole-v1", Unsavable])
def test_a_resumed_run_equals_one_that_never_stopped(tmp_path, env):
    objects = {} if isinstance(env, str) else {"env": env}
    whole = trimtab.train(env, ALGORITHM, run_dir=tmp_path / "whole", **SETTINGS)
    half = trimtab.train(env, ALGORITHM, run_dir=tmp_path / "half", progress=Stop(2), **SETTINGS)
    assert 0 < len(half.metrics) < 6
    heard = Stop(99)
    resumed = trimtab.api.resume(half.path, heard, **objects)
    assert not [words for words in heard.said if "finished episodes" not in words]
    np.testing.assert_equal(without_times(resumed.metrics), without_times(whole.metrics))
    assert resumed.evaluations == whole.evaluations
    np.testing.assert_array_equal(
        resumed.learner("latest").parameters.vector, whole.learner("latest").parameters.vector
    )
    counted = np.cumsum([row["rollout/transitions"] for row in whole.metrics]).tolist()
    assert [row["steps"] for row in whole.metrics] == counted
    assert whole.steps == counted[-1] >= 96 * 6
    for row in whole.evaluations:
        assert row["steps"] == counted[row["update"] - 1]
    manifest = json.loads((whole.path / "checkpoints/latest/manifest.json").read_text())
    assert manifest["steps"] == counted[-1]


def test_a_group_counts_the_steps_of_each_of_its_runs(tmp_path):
    group = trimtab.train_group(
        "CartPole-v1", ALGORITHM, seeds=[0, 1], run_dir=tmp_path / "group", **SETTINGS
    )
    ends = []
    for run in group.runs:
        counted = np.cumsum([row["rollout/transitions"] for row in run.metrics]).tolist()
        assert [row["steps"] for row in run.metrics] == counted
        ends.append(counted)
    assert ends[0] != ends[1]


@pytest.mark.parametrize(
    ("env", "settings", "words"),
    [
        ("CartPole-v1", {"max_episode_steps": None}, r"may last 500 steps, and num_steps = 24\."),
        (Unsavable, {"max_episode_steps": None}, "have no time limit: give max_episode_steps"),
        (Unsavable, {"overlap": True}, "overlap collects with a policy that is older"),
        (
            Unsavable,
            {"vectorization": "async", "num_workers": 2},
            "vectorization = async collects with a policy that is older",
        ),
        ("CartPole-v1", {"staggered_starts": "on"}, "no effect with episodes = whole"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path, env, settings, words):
    with pytest.raises(SettingError, match=words):
        trimtab.train(env, ALGORITHM, run_dir=tmp_path / "run", **{**SETTINGS, **settings})


# --------------------------------------------------------------------------- lanes that break


def row(number, ended=(False, False)):
    flags = np.array(ended)
    obs = np.full((2, 1), number, np.float32)
    reward = np.full(2, number, np.float32)
    return Rollout(obs, np.zeros(2, np.int32), reward, flags, flags & False, obs, {})


def test_a_lane_that_broke_loses_the_episode_that_it_was_in_and_begins_another():
    filled = Filled(rows=6, lead=np.array([0, 1], np.int32), num_steps=3)
    filled.put(row(1, (True, False)), None)
    filled.put(row(2, (False, True)), None)  # lane 1 owed two steps, and rests
    assert filled.playing.tolist() == [True, False]
    filled.put(row(3), np.array([True, False]))  # lane 0 breaks with its second step
    assert filled.next.tolist() == [1, 2]
    filled.put(row(4), None)
    filled.put(row(5, (True, False)), None)
    assert not filled.unfinished
    assert filled.lead.tolist() == [0, 0]
    rollout = filled.rollout()
    assert rollout.reward.tolist() == [[1, 1], [4, 2], [5, 0], [0, 0], [0, 0], [0, 0]]
    assert rollout.obs[:, :, 0].tolist() == [[1, 1], [4, 2], [5, 1], [1, 1], [1, 1], [1, 1]]
    assert rollout.terminated[:, 0].tolist() == [True, False, True, False, False, False]
    assert rollout.terminated[:, 1].tolist() == [False, True, False, False, False, False]
