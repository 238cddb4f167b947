"""A run's folder with figures, made without training."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab.log.writer import JsonLines
from trimtab.training import checkpoint
from trimtab.training.rundir import RunFolder

BATCH = 10


class ExampleRun:
    """A run folder in which updates and evaluations appear when a test says so."""

    def __init__(self, path: Path, **training: Any):
        self.folder = RunFolder.create(path, "CartPole-v1", "ppo", 0)
        self.folder.write_config(
            training={"track": ["tensorboard"], "tags": ["first", "a:b"], **training},
            algorithm={"learning_rate": 0.5},
            environment={"id": "CartPole-v1"},
            algorithm_name="ppo",
            devices={"devices": 1, "single_thread": True},
        )
        self.updates = 0

    def train(self, updates: int) -> None:
        """The next updates, then an evaluation."""
        first, self.updates = self.updates + 1, self.updates + updates
        with JsonLines(self.folder.metrics_path) as lines:
            lines.append(map(row, range(first, self.updates + 1)))
        with JsonLines(self.folder.evaluations_path) as lines:
            counters = {"update": self.updates, "steps": self.updates * BATCH}
            lines.append([{**counters, "mean": float(self.updates), "length_mean": 3.0}])

    def go_back(self, update: int) -> None:
        """As a resume from a checkpoint of that update does."""
        for path in (self.folder.metrics_path, self.folder.evaluations_path):
            kept = [line for line in path.read_bytes().splitlines(True) if _update(line) <= update]
            path.write_bytes(b"".join(kept))
        self.updates = update

    def save_best(self) -> None:
        tree = {"weights": np.arange(3.0)}
        checkpoint.save(self.folder.path / "checkpoints" / "best", tree, {"steps": 1})


def row(update: int) -> dict[str, Any]:
    return {
        "update": update,
        "steps": update * BATCH,
        "rollout/return_mean": 1.5 * update,
        "rollout/return_max": math.nan,
        "train/entropy": 0.25,
        "time/seconds": 0.1 * update,
    }


def _update(line: bytes) -> int:
    import json

    return json.loads(line)["update"]


@pytest.fixture
def example(tmp_path: Path) -> Callable[..., ExampleRun]:
    return lambda **training: ExampleRun(tmp_path / "example-run", **training)
