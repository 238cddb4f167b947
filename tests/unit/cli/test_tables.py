"""``trimtab runs`` and ``trimtab envs``."""

import json
from pathlib import Path

from trimtab.envs.registry import list_environments


def test_runs(trained, call) -> None:
    folder, _ = trained
    answer = call("runs", "--dir", folder.parent)
    heading, _, *rows = answer.out.splitlines()
    assert heading.split()[0] == "run"
    assert len(rows) == 1
    assert str(folder) in rows[0]  # never cut: it is there to be copied
    assert all(word in rows[0] for word in ("CartPole-v1", "ppo", "finished"))


def test_runs_as_json(trained, call) -> None:
    folder, _ = trained
    (line,) = call("runs", "--dir", folder.parent, "--json").out.splitlines()
    run = json.loads(line)
    assert (run["path"], run["state"]) == (str(folder), "finished")
    assert (run["environment"], run["algorithm"], run["seed"]) == ("CartPole-v1", "ppo", 0)
    assert run["steps"] == run["total_steps"]
    assert run["best_evaluation"] > 0


def test_no_runs_yet(call, refused, tmp_path: Path) -> None:
    answer = call("runs")
    assert (answer.code, answer.out) == (0, "")
    assert "to begin: trimtab train CartPole-v1" in answer.err
    assert call("runs", "--json").out == ""
    assert "There is no folder" in refused("runs", "--dir", tmp_path / "none")
    assert "'here' was not expected" in refused("runs", "here")


def test_envs_lists_them_all(call) -> None:
    out = call("envs").out
    for entry in list_environments():
        assert entry.id in out
        assert entry.summary in out
    ids = [json.loads(line)["id"] for line in call("envs", "--json").out.splitlines()]
    assert ids == [entry.id for entry in list_environments()]


def test_envs_can_be_filtered(call, refused) -> None:
    found = [json.loads(line) for line in call("envs", "frozen", "--json").out.splitlines()]
    assert found
    assert all("frozen" in json.dumps(entry).lower() for entry in found)
    assert "Did you mean 'CartPole-v1'?" in refused("envs", "CartPol-v2")
