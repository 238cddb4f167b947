"""``trimtab eval``."""

import json
import shutil
from pathlib import Path

import pytest

KEYS = {"mean", "median", "std", "iqr", "iqm", "episodes", "seed", "checkpoint"}


def test_it_says_the_figures(trained, call) -> None:
    folder, _ = trained
    answer = call("eval", folder, "--episodes", 5)
    assert answer.code == 0
    assert " over 5 episodes (475 counts as solved)\n" in answer.out
    assert all(f"{name} " in answer.out for name in ("median", "std", "iqr", "iqm"))
    assert answer.out.endswith("checkpoint best, seed 0, actions: the best\n")


def test_json_ends_with_one_object(trained, call) -> None:
    folder, _ = trained
    flags = ("--episodes", 3, "--seed", 7, "--checkpoint", "latest", "--stochastic", "--json")
    answer = call("eval", folder, *flags)
    figures = json.loads(answer.out.splitlines()[-1])
    assert set(figures) >= KEYS
    assert (figures["episodes"], figures["seed"]) == (3, 7)
    assert (figures["checkpoint"], figures["deterministic"]) == ("latest", False)
    assert answer.err == ""
    assert json.loads(call("eval", folder, *flags).out) == figures  # the seed decides it all


def test_a_checkpoint_may_be_named_by_its_folder(trained, call) -> None:
    folder, _ = trained
    by_folder = call("eval", folder, "--json", "--checkpoint", folder / "checkpoints" / "best")
    by_name = call("eval", folder, "--json")
    assert json.loads(by_folder.out)["mean"] == json.loads(by_name.out)["mean"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("--episodes 0", "out of bounds: expected a whole number at least 1"),
        ("--seed -1", "out of bounds"),
        ("--checkpoint lates", "has no checkpoint 'lates'"),
        ("--stochastc", "Did you mean --stochastic?"),
    ],
)
def test_bad_input(trained, refused, arguments: str, sentence: str) -> None:
    folder, _ = trained
    assert sentence in refused("eval", folder, *arguments.split())


def test_a_damaged_checkpoint_is_refused(trained, refused, tmp_path: Path) -> None:
    folder, _ = trained
    run = tmp_path / "copy"
    shutil.copytree(folder, run)
    file = run / "checkpoints" / "best" / "learner.npz"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert "learner.npz" in refused("eval", run)


def test_damaged_settings_are_refused(trained, refused, tmp_path: Path) -> None:
    folder, _ = trained
    run = tmp_path / "copy"
    shutil.copytree(folder, run)
    file = run / "config.toml"
    whole = file.read_text()
    for old, new, sentence in (
        ("num_envs = ", "num_evns = ", "num_evns"),
        ("gamma = ", "gamma = 1", "gamma"),
        ("single_thread = ", "threads = ", "[devices]"),
        ('id = "', 'id = "not-', "not-CartPole-v1"),
    ):
        file.write_text(whole.replace(old, new, 1))
        assert sentence in refused("eval", run)


def test_runs_without_their_best_checkpoint(trained, call, refused, tmp_path: Path) -> None:
    folder, _ = trained
    run = tmp_path / "copy"
    shutil.copytree(folder, run)
    shutil.rmtree(run / "checkpoints" / "best")
    answer = call("eval", run, "--json")
    assert json.loads(answer.out)["checkpoint"] == "latest"
    assert "no best checkpoint yet" in answer.err
    shutil.rmtree(run / "checkpoints")
    assert "stopped before it had saved anything" in refused("eval", run)
