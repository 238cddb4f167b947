"""``trimtab export``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import trimtab


def test_export_writes_a_policy_that_needs_no_environment(
    call: Callable[..., Any], trained: Any, monkeypatch: Any
) -> None:
    def no_environment(*_: object) -> None:
        raise AssertionError("the environment was made")

    monkeypatch.setattr("trimtab.api.open_session", no_environment)
    folder: Path = trained[0]
    answer = call("export", folder, "--to", "numpy", "--out", "made.npz")
    assert answer.code == 0
    assert answer.out.startswith("made.npz: ")
    from trimtab.export.evaluate import evaluate
    from trimtab.export.weights import read

    obs = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    found = evaluate(read("made.npz")[0], {"obs": obs})["action"]
    run = trimtab.load(folder)
    np.testing.assert_array_equal(found, run.policy(obs))
    assert run.policy(list(obs[0])) == found[0]
    assert run.spec.id == "CartPole-v1"


def test_a_misspelt_format_is_a_sentence(refused: Callable[..., str], trained: Any) -> None:
    assert "Did you mean 'onnx'" in refused("export", trained[0], "--to", "onx")


def test_what_was_made_as_json(call: Callable[..., Any], trained: Any) -> None:
    answer = call("export", trained[0], "--to", "numpy", "--out", "made.npz", "--json")
    made = json.loads(answer.out)
    assert (made["path"], made["size"]) == ("made.npz", Path("made.npz").stat().st_size)
    assert made["samples"] > 0
