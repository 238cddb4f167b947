"""``trimtab train ENV --seeds … --sweep …``: what it says, and what it refuses."""

import json
from pathlib import Path

import pytest

QUICK = ("--num-envs", 8, "--num-steps", 16, "--hidden-sizes", 8, "--total-steps", 512)


def test_a_group_says_how_its_seeds_did_and_goes_on(call, tmp_path: Path) -> None:
    sweep = ("--sweep", "learning-rate=1e-3,1e-2")
    answer = call("train", "Probe1-v0", *QUICK, "--seeds", "0:2", *sweep, "--run-dir", "group")
    assert answer.code == 0, answer.err
    lines = answer.out.splitlines()
    assert lines[0].startswith("mean return of the final policies")
    assert "learning_rate" in lines[1]
    assert "95% interval" in lines[1]
    cells = " ".join(lines[3].split())
    assert cells == "0.001 2 1.000 1.000 … 1.000 1.000 2 of 2 128"
    assert "4 runs, 2,048 steps in " in answer.out
    assert call("runs", "--dir", ".").out.count("Probe1-v0") == 4
    assert call("eval", "group/learning_rate=0.01-seed-1", "--episodes", 2).code == 0
    done = call("resume", "group")
    assert "group has done its 512 steps already" in done.out
    longer = call("resume", "group", "--total-steps", 640, "--json")
    last = json.loads(longer.out.splitlines()[-1])
    assert (last["event"], last["stopped_by"], len(last["runs"])) == ("finished", None, 4)
    assert last["summary"][1]["values"] == {"learning_rate": 0.01}
    assert "already holds a group" in call("train", "Probe1-v0", "--run-dir", "group", *sweep).err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--seeds 8:0", "--seeds 8:0 is empty"),
        ("--seeds x", "expected a range such as 0:8"),
        ("--seeds 0:2 --seed 1", "--seed and --seeds contradict each other"),
        ("--sweep epochs=1,2", "'epochs' is not a float of the algorithm"),
        ("--sweep learnin-rate=1", "Did you mean 'learning_rate'?"),
        ("--sweep gamma", "expected NAME=VALUE,VALUE"),
        ("--sweep gamma=0.9 --gamma 0.8", "--gamma and --sweep gamma=… contradict each other"),
        ("--sweep gamma=0.9 gamma=0.8", "names gamma twice"),
        ("--seeds 0:2 --devices 3", "expected 'auto', or a number from 1 to 2"),
    ],
)
def test_bad_groups_get_a_sentence(refused, arguments: str, sentence: str) -> None:
    assert sentence in refused("train", "CartPole-v1", *arguments.split())
