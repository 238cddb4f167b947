"""A run that is killed again and again ends as one that never was."""

import os
import random
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kills
import pytest

import trimtab
from trimtab.configuration import Configuration
from trimtab.log.progress import Quiet
from trimtab.opening import device_plan, make_session, write_config
from trimtab.training.devices import start_jax
from trimtab.training.rundir import RunFolder
from trimtab.training.session import Manner, run_session

KILL, TERM = signal.SIGKILL, signal.SIGTERM


@pytest.mark.parametrize(
    ("signals", "updates"),
    [
        ([KILL] * 6, 150),
        ([TERM] * 3, 100),
        pytest.param([KILL] * 50, 1000, marks=pytest.mark.slow),
        pytest.param([TERM] * 50, 1000, marks=pytest.mark.slow),
    ],
    ids=["SIGKILL-6", "SIGTERM-3", "SIGKILL-50", "SIGTERM-50"],
)
def test_a_process_that_is_killed_at_random_instants(
    tmp_path: Path, signals: list[signal.Signals], updates: int
) -> None:
    kills.whole_run(tmp_path / "whole", updates)
    killed = kills.killed_run(tmp_path / "killed", updates, signals, seed=len(signals))
    assert killed.kills >= 0.8 * len(signals)
    assert killed.while_training > 0
    assert kills.outcome(tmp_path / "killed") == kills.outcome(tmp_path / "whole")


# The same in this process, where a kill is a disk that does nothing any more from some operation
# on: so each of them can be hit, and no program is compiled again.


class DeadError(BaseException):
    """The process is gone: nothing that it still tries has an effect."""


class Disk:
    """Counts the operations that change the disk, and refuses all after so many."""

    OPERATIONS = ("rename", "replace", "fsync", "mkdir", "unlink", "rmdir", "write", "ftruncate")

    def __init__(self, patch: pytest.MonkeyPatch):
        self.done, self.most = 0, float("inf")
        for name in self.OPERATIONS:
            patch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            self.done += 1
            if self.done > self.most:
                raise DeadError
            return operation(*arguments, **keywords)

        return call


class Compiled:
    """A session whose programs are at hand."""

    def __init__(self, session: Any):
        self._session = session
        self._compiled = session.compile()

    def compile(self) -> Any:
        return self._compiled

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


@pytest.fixture(scope="module")
def configuration() -> Configuration:
    from trimtab.api import configuration_of

    algorithm = trimtab.PPO(minibatches=2, hidden_sizes=(8,), learning_rate_schedule="linear")
    settings = {
        "num_envs": 4,
        "num_steps": 16,
        "total_steps": 64 * 12,
        "eval_every": 4,
        "eval_episodes": 2,
        "checkpoint_every": 2,
    }
    plain = configuration_of("CartPole-v1", algorithm, {})
    return plain.with_values(settings, "test").checked()


@pytest.fixture(scope="module")
def session(configuration: Configuration) -> Any:
    devices = start_jax(device_plan(configuration, "CartPole-v1"))
    return Compiled(make_session(configuration, "CartPole-v1", devices))


@pytest.fixture
def disk() -> Iterator[Disk]:
    with pytest.MonkeyPatch.context() as patch:
        yield Disk(patch)


def train(session: Any, configuration: Configuration, path: Path) -> None:
    """Begin the run in the folder, or go on with it."""
    path.mkdir(exist_ok=True)
    folder = RunFolder(path)
    with folder.lock():
        if not folder.config_path.exists():
            write_config(folder, configuration, session.devices)
        run_session(session, folder, Quiet(), Manner(resumed=True))


def test_a_kill_at_any_of_its_writes(
    tmp_path: Path, session: Any, configuration: Configuration, disk: Disk
) -> None:
    train(session, configuration, tmp_path / "whole")
    wanted, operations = kills.outcome(tmp_path / "whole"), disk.done
    assert operations > 50  # fewer or more, as saves that wait for the disk are joined
    chance = random.Random(0)
    survived = 0
    for number in range(50):
        path = tmp_path / f"run{number}"
        for _ in range(1 + number % 3):  # some are killed again as they go on
            disk.done, disk.most = 0, chance.randrange(1, operations)
            try:
                train(session, configuration, path)
            except DeadError:
                survived += 1
        disk.most = float("inf")
        train(session, configuration, path)
        assert kills.outcome(path) == wanted, f"killed at operation {number}"
    assert survived >= 50
