"""``--resume auto``, ``reproduce`` and ``diff`` from the command line."""

import json
from pathlib import Path

import pytest

import trimtab

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
    assert "needs --run-dir" in refused("train", "CartPole-v1", "--resume", "auto")
    assert "Did you mean 'auto'?" in refused(*command[: -len(QUICK) - 1], "aut")


def test_resume_auto_of_a_group(call, refused) -> None:
    command = ("train", "CartPole-v1", "--run-dir", "group", "--resume", "auto", *QUICK)
    assert call(*command, "--seeds", "0:2").code == 0
    assert "already" in call(*command, "--seeds", "0:2").out
    assert "has the runs seed-0, seed-1, and seed-0, seed-1, seed-2" in refused(
        *command, "--seeds", "0:3"
    )
    assert "gamma is" in refused(*command, "--seeds", "0:2", "--gamma", 0.5)


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
