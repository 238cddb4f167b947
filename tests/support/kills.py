"""A training process that is killed at random instants, and goes on each time.

The command line is used as a scheduler would: the same command, with ``--resume auto``, again and
again. Used by the tests of faults, and at length by ``bench/kills.py``. No JAX here.
"""

import dataclasses
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from trimtab.log.names import MEASURED
from trimtab.log.writer import read_jsonl, read_last

# Few weights and a checkpoint with each update: a save is under way at almost any instant.
SMALL = ("--num-envs", "4", "--num-steps", "16", "--minibatches", "2", "--hidden-sizes", "8")
OFTEN = ("--checkpoint-every", "1", "--eval-every", "40", "--eval-episodes", "2")
BATCH = 64
MOST_SECONDS = 120.0


@dataclasses.dataclass(frozen=True)
class Killed:
    """How often a run was killed, and when: before it trained, or while."""

    kills: int
    while_training: int
    saves_torn: int  # kills that left a half-written checkpoint behind


def command(folder: Path, updates: int) -> list[str]:
    own = ["--run-dir", str(folder), "--resume", "auto", "--total-steps", str(BATCH * updates)]
    return [sys.executable, "-m", "trimtab", "train", "CartPole-v1", *own, *SMALL, *OFTEN]


def start(folder: Path, updates: int) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(folder, updates), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def whole_run(folder: Path, updates: int) -> None:
    """One that nobody kills."""
    process = start(folder, updates)
    _, errors = process.communicate(timeout=MOST_SECONDS)
    assert process.returncode == 0, errors


def killed_run(
    folder: Path, updates: int, signals: Sequence[signal.Signals], seed: int, apart: int = 12
) -> Killed:
    """Train with a kill by each of the signals, up to ``apart`` updates after each start."""
    chance = random.Random(seed)
    kills = while_training = torn = 0
    for number in signals:
        process = start(folder, updates)
        training = _wait(process, folder, _saved(folder) + chance.randrange(apart))
        time.sleep(chance.uniform(0.0, 0.02))
        process.send_signal(number)
        _, errors = process.communicate(timeout=MOST_SECONDS)
        if process.returncode == 0:  # it was done before the signal came
            break
        wanted = -9 if number == signal.SIGKILL else 128 + number
        # A signal that comes while Python still starts finds no handler.
        assert process.returncode in (wanted, -number), errors
        kills += 1
        while_training += training
        torn += any(folder.glob("checkpoints/.*.partial-*"))
    whole_run(folder, updates)
    return Killed(kills, while_training, torn)


def _saved(folder: Path) -> int:
    """The update of the latest checkpoint."""
    for name in ("latest", "latest.previous"):
        try:
            text = (folder / "checkpoints" / name / "manifest.json").read_text(encoding="utf-8")
            return int(json.loads(text)["update"])
        except (OSError, ValueError, KeyError):
            continue
    return 0


def _wait(process: "subprocess.Popen[str]", folder: Path, update: int) -> bool:
    """Until the process has recorded more updates than that, or has ended; whether it has."""
    begun, metrics = time.time(), folder / "metrics.jsonl"
    deadline = time.monotonic() + MOST_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        try:
            if os.stat(metrics).st_mtime > begun:
                rows = read_last(metrics, 8192)
                if rows and rows[-1]["update"] > update:
                    return True
        except OSError:
            pass
        time.sleep(0.002)
    return False


def outcome(folder: Path) -> dict[str, Any]:
    """All that must be the same in two runs: every number, and the digests of the final state."""
    manifest = json.loads((folder / "checkpoints" / "latest" / "manifest.json").read_text())
    metrics = [
        {name: repr(value) for name, value in row.items() if not name.startswith(MEASURED)}
        for row in read_jsonl(folder / "metrics.jsonl")
    ]
    return {
        "update": manifest["update"],
        "files": {name: entry["sha256"] for name, entry in manifest["files"].items()},
        "metrics": metrics,
        "evaluations": read_jsonl(folder / "evaluations.jsonl"),
    }
