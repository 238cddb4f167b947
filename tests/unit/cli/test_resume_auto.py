"""``--resume auto``, ``reproduce`` and ``diff`` from the command line."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import trimtab
from trimtab.errors import SettingError
from trimtab.log.progress import Quiet

QUICK = ("--num-envs", 8, "--num-steps", 16, "--hidden-sizes", 8, "--total-steps", 512)


def test_resume_auto_begins_then_goes_on_then_has_nothing_left(call, tmp_path: Path) -> None:
    command = ("train", "CartPole-v1", "--run-dir", "run", "--resume", "auto", *QUICK)
    assert call(*command).code == 0
    done = call(*command)
    assert done.code == 0
    assert "has done its 512 steps already" in done.out
    longer = call(*command, "--total-steps", 1024)
    assert longer.code == 0
    assert "total_steps goes from 512 to 1,024." in longer.err
    assert [row["update"] for row in trimtab.load(tmp_path / "run").metrics] == list(range(1, 9))


def test_resume_auto_refuses_what_contradicts_the_run(call, refused) -> None:
    command = ("train", "CartPole-v1", "--run-dir", "run", "--resume", "auto", *QUICK)
    assert call(*command).code == 0
    sentence = refused(*command, "--gamma", 0.5, "--seed", 3)
    assert "seed is 0 there and 3 here; gamma is 0.99 there and 0.5 here" in sentence
    assert "Only total_steps may change" in sentence
    assert "total_steps is 512 there and 256 here" in refused(*command, "--total-steps", 256)
    other = ("train", "Acrobot-v1", *command[2:])
    assert "environment is CartPole-v1 there and Acrobot-v1 here" in refused(*other)
    assert "needs run_dir (--run-dir)" in refused("train", "CartPole-v1", "--resume", "auto")
    assert "Did you mean 'auto'?" in refused(*command[: -len(QUICK) - 1], "aut")


def test_resume_auto_of_a_group(call, refused) -> None:
    command = ("train", "CartPole-v1", "--run-dir", "group", "--resume", "auto", *QUICK)
    assert call(*command, "--seeds", "0:2").code == 0
    assert "already" in call(*command, "--seeds", "0:2").out
    assert "has the runs seed-0, seed-1, and seed-0, seed-1, seed-2" in refused(
        *command, "--seeds", "0:3"
    )
    assert "gamma is" in refused(*command, "--seeds", "0:2", "--gamma", 0.5)


SMALL = {"num_envs": 8, "num_steps": 16, "hidden_sizes": (8,), "total_steps": 512}


class Stop(Quiet):
    """Asks for a stop, as Ctrl-C does, after the first update."""

    def updated(self, status) -> None:
        os.kill(os.getpid(), signal.SIGINT)


def test_from_python_a_run_is_begun_gone_on_with_and_returned(tmp_path: Path) -> None:
    def train(progress: Any = None, **settings: Any) -> trimtab.TrainedRun:
        return trimtab.train(
            "CartPole-v1",
            run_dir=tmp_path / "run",
            resume="auto",
            progress=progress,
            **{**SMALL, "eval_every": 1, **settings},
        )

    stopped = train(Stop())
    assert stopped.stopped_by == "SIGINT"
    assert 0 < len(stopped.metrics) < 4
    whole = trimtab.train("CartPole-v1", run_dir=tmp_path / "w", **{**SMALL, "eval_every": 1})
    gone_on = train()
    assert [row["train/entropy"] for row in gone_on.metrics] == [
        row["train/entropy"] for row in whole.metrics
    ]
    written = gone_on.folder.metrics_path.read_bytes()
    again = train()
    assert (again.steps, again.timing) == (512, {})
    assert gone_on.folder.metrics_path.read_bytes() == written
    assert len(train(total_steps=1024).metrics) == 8
    with pytest.raises(SettingError, match=r"gamma is 0\.99 there and 0\.5 here"):
        train(gamma=0.5)
    with pytest.raises(SettingError, match="total_steps is 1024 there and 512 here"):
        train()


def test_from_python_an_environment_object_is_gone_on_with(tmp_path: Path) -> None:
    def train(total_steps: int) -> trimtab.TrainedRun:
        return trimtab.train(
            Bandit,
            trimtab.PPO(minibatches=2, hidden_sizes=(4,)),
            run_dir=tmp_path / "run",
            resume="auto",
            num_envs=2,
            num_steps=8,
            eval_episodes=2,
            total_steps=total_steps,
        )

    assert train(32).steps == 32
    assert train(32).spec.id == "Bandit"
    assert train(64).steps == 64


def test_from_python_a_group_is_gone_on_with(tmp_path: Path) -> None:
    def train(**settings: Any) -> trimtab.TrainedGroup:
        asked = {"seeds": [0, 1], **SMALL, **settings}
        return trimtab.train_group(
            "CartPole-v1", run_dir=tmp_path / "group", resume="auto", **asked
        )

    assert [run.steps for run in train().runs] == [512, 512]
    assert train().timing == {}
    assert [run.steps for run in train(total_steps=1024).runs] == [1024, 1024]
    with pytest.raises(SettingError, match="has the runs seed-0, seed-1, and seed-0 are asked"):
        train(seeds=[0])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"resume": "auto"}, "resume = auto needs run_dir"),
        ({"resume": "aut", "run_dir": "run"}, r"expected 'never' or 'auto'\. Did you mean 'auto'"),
    ],
)
def test_from_python_a_mistake_is_answered_with_a_sentence(settings: Any, words: str) -> None:
    with pytest.raises(SettingError, match=words):
        trimtab.train("CartPole-v1", **SMALL, **settings)


class Bandit(gymnasium.Env):
    """One step, with the action as the reward."""

    observation_space = gymnasium.spaces.Box(0.0, 1.0, (1,))
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), float(action), True, False, {}


def test_what_is_scheduled_is_said_to_jump(call) -> None:
    schedule = ("--learning-rate-schedule", "linear")
    assert call("train", "CartPole-v1", "--run-dir", "run", *QUICK, *schedule).code == 0
    answer = call("resume", "run", "--total-steps", 768)
    assert "What is scheduled (learning_rate) is computed anew" in answer.err
    assert call("reproduce", "run").code == 0


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_reproduce_answers(call, tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert call("train", "CartPole-v1", "--run-dir", "run", *QUICK).code == 0
    same = call("reproduce", "run", *flags)
    path = tmp_path / "run" / "metrics.jsonl"
    path.write_text(path.read_text().replace('"rollout/episodes":', '"rollout/episodes":1', 1))
    other = call("reproduce", "run", "--run-dir", "again", *flags)
    assert (same.code, other.code) == (0, 1)
    if flags:
        told = [json.loads(answer.out.splitlines()[-1]) for answer in (same, other)]
        assert [one["reproduced"] for one in told] == [True, False]
        assert told[1]["differences"]["run"]["metric"] == "rollout/episodes"
        assert told[1]["folder"].endswith("again")
    else:
        assert same.out.startswith("reproduced: 4 updates and ")
        assert "not reproduced: run differs first in update 1, in rollout/episodes" in other.out
        assert "likely cause: Nothing that is recorded differs" in other.out
        assert "the second run: " in other.out


def test_diff_answers(call, refused) -> None:
    for name, seed in (("one", 0), ("two", 1)):
        command = ("train", "CartPole-v1", "--run-dir", name, "--seed", seed, *QUICK)
        assert call(*command).code == 0
    page = call("diff", "one", "two")
    assert page.code == 0
    assert "training.seed" in page.out
    assert "versions, machine, devices and commit" in page.out
    assert "their numbers differ first in update 1" in page.out
    told = json.loads(call("diff", "one", "two", "--json").out)
    assert told["settings"] == {"training.seed": [0, 1]}
    assert "the same, bit for bit, in the 4 updates" in call("diff", "one", "one").out
    assert "is not a run folder" in refused("diff", "one", "three")
