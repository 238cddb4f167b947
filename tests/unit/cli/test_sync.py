"""``trimtab sync``."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_sync_sends_a_run_that_was_not_tracked(call: Callable[..., Any], trained: Any) -> None:
    folder: Path = trained[0]
    answer = call("sync", folder, "--track", "tensorboard")
    assert answer.code == 0
    assert answer.out == f"tensorboard has all of {folder}\n"
    read = EventAccumulator(str(folder)).Reload()
    assert len(read.Scalars("train/entropy_loss")) == len(read.Scalars("time/fps")) > 0


def test_a_run_without_a_tracker_needs_to_be_told_which(
    refused: Callable[..., str], trained: Any
) -> None:
    assert "say which with --track" in refused("sync", trained[0])


def test_trackers_are_named_with_commas(refused: Callable[..., str]) -> None:
    sentence = refused("train", "CartPole-v1", "--track", "tensorboard,wanbd")
    assert sentence.startswith("--track tensorboard,wanbd is not valid")
    assert "Did you mean 'wandb'?" in sentence


def test_what_was_sent_as_json(call: Callable[..., Any], trained: Any) -> None:
    answer = call("sync", trained[0], "--track", "tensorboard", "--json")
    sent = json.loads(answer.out)
    assert sent == {"run": str(trained[0]), "trackers": ["tensorboard"], "failed": {}}
