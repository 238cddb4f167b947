"""Run folders: refused before training when they cannot be used, and readable in any state."""

import contextlib
import errno
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from trimtab.errors import CheckpointError, RunFolderError, SettingError
from trimtab.training import checkpoint, rundir
from trimtab.training.rundir import RunFolder, git_state, list_runs


@pytest.fixture(autouse=True)
def work_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def config(**changes: Any) -> dict[str, Any]:
    return {
        "training": {"seed": 3, "total_steps": 1000, "num_envs": 4, "num_steps": 25},
        "algorithm": {"learning_rate": 1e-05, "hidden_sizes": (64, 64)},
        "environment": {"id": "CartPole-v1", "options": {"size": 4}},
        "algorithm_name": "ppo",
        "devices": {"devices": 1, "single_thread": True},
    } | changes


def new_run(path: str = "runs/one", **changes: Any) -> RunFolder:
    folder = RunFolder.create(path, "CartPole-v1", "ppo", 3)
    folder.write_config(**config(**changes))
    return folder


# Creating


def test_the_default_folder_says_what_it_holds():
    folder = RunFolder.create(None, "CartPole-v1", "ppo", 7)
    assert re.fullmatch(r"runs/CartPole-v1-ppo-7-\d{8}-\d{6}", str(folder.path))
    assert list(folder.path.iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "start"),
    [
        ("gymnax:CartPole-v1", "gymnax_CartPole-v1-ppo-0-"),
        ("ALE/Pong-v5", "ALE_Pong-v5-ppo-0-"),
        ("../../etc/passwd", "_.._etc_passwd-ppo-0-"),
        ("..", "environment-ppo-0-"),
        ("-rf *\n", "rf_-ppo-0-"),
        ("x" * 500, "x" * 80 + "-ppo-0-"),
    ],
)
def test_any_environment_id_makes_a_plain_name(environment: str, start: str):
    folder = RunFolder.create(None, environment, "ppo", 0)
    assert folder.path.name.startswith(start)
    assert folder.path.parent == Path("runs")


def test_two_runs_of_the_same_second_differ(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(time, "strftime", lambda _: "20300101-000000")
    paths = [RunFolder.create(None, "CartPole-v1", "ppo", 0).path.name for _ in range(3)]
    stem = "CartPole-v1-ppo-0-20300101-000000"
    assert paths == [stem, f"{stem}-2", f"{stem}-3"]


def test_missing_parents_are_made_and_empty_folders_are_used():
    assert RunFolder.create("a/b/c", "CartPole-v1", "ppo", 0).path.is_dir()
    assert RunFolder.create("a/b/c", "CartPole-v1", "ppo", 0).path.is_dir()


def test_the_home_folder_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert RunFolder.create("~/mine", "CartPole-v1", "ppo", 0).path == tmp_path / "mine"


@pytest.mark.parametrize("held", ["config.toml", "metrics.jsonl", "checkpoints"])
def test_a_folder_that_holds_a_run_is_refused(held: str):
    Path("mine").mkdir()
    Path("mine", held).touch()
    with pytest.raises(RunFolderError, match=r"already holds a run.*: trimtab resume mine"):
        RunFolder.create("mine", "CartPole-v1", "ppo", 0)


def test_paths_that_cannot_be_written_are_refused():
    Path("file").write_text("")
    for path, reason in [
        ("file", "File exists"),
        ("file/run", "Not a directory"),
        ("x" * 300, "File name too long"),
        ("a\0b", "null"),
    ]:
        with pytest.raises(RunFolderError, match=f"cannot be written: .*{reason}.*--run-dir"):
            RunFolder.create(path, "CartPole-v1", "ppo", 0)
    Path("runs").write_text("")
    with pytest.raises(RunFolderError, match="runs cannot be written: File exists"):
        RunFolder.create(None, "CartPole-v1", "ppo", 0)


@pytest.mark.parametrize("code", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_a_folder_that_takes_no_files_is_refused(monkeypatch: pytest.MonkeyPatch, code: int):
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(rundir.tempfile, "TemporaryFile", refuse)
    for path in ("mine", None):
        with pytest.raises(RunFolderError, match=f"cannot be written: {os.strerror(code)}"):
            RunFolder.create(path, "CartPole-v1", "ppo", 0)


# Opening


def test_open():
    made = new_run()
    assert RunFolder.open("runs/one") == made
    assert RunFolder.open(Path("runs/one/")) == made


def test_what_is_no_run_folder_is_named():
    Path("empty").mkdir()
    Path("file").touch()
    for path, reason in [
        ("nowhere", "does not exist"),
        ("empty", "has no config.toml"),
        ("file", "is a file"),
        ("x" * 300, "does not exist"),
        ("a\0b", "does not exist"),
    ]:
        with pytest.raises(RunFolderError, match=f"{path} is not a run folder: it {reason}"):
            RunFolder.open(path)


def test_the_run_that_was_probably_meant_is_offered():
    new_run("runs/CartPole-v1-ppo-0-20300101-000000")
    for given, words in [
        ("runs/CartPole-v1-ppo-1-20300101-000000", "Did you mean 'runs/CartPole-v1-ppo-0-2030"),
        ("CartPole-v1-ppo-0-20300101-000000", "Did you mean 'runs/CartPole-v1-ppo-0-2030"),
        ("runs", "The newest run near it is 'runs/CartPole-v1-ppo-0-2030"),
        (
            "runs/CartPole-v1-ppo-0-20300101-000000/checkpoints/best",
            "It is inside a run; give that: /.*/runs/CartPole-v1-ppo-0-20300101-000000",
        ),
    ]:
        with pytest.raises(RunFolderError, match=words):
            RunFolder.open(given)


def test_paths():
    folder = new_run()
    assert folder.config_path == Path("runs/one/config.toml")
    assert folder.metrics_path == Path("runs/one/metrics.jsonl")
    assert folder.evaluations_path == Path("runs/one/evaluations.jsonl")
    assert folder.checkpoint_path("latest") == Path("runs/one/checkpoints/latest")


def test_checkpoints_by_name_and_path():
    folder = new_run()
    assert folder.checkpoint_path("best") == Path("runs/one/checkpoints/best")
    inside = Path("runs/one/checkpoints")
    checkpoint.write(inside / "update-7", [], {})
    assert folder.checkpoint_path("update-7") == inside / "update-7"
    assert folder.checkpoint_path(inside / "update-7") == inside / "update-7"
    assert folder.checkpoint_path(str((inside / "update-7").absolute())).is_absolute()
    for name in ("lastest", "nowhere/else", "", "x" * 300, "a\0b"):
        with pytest.raises(CheckpointError, match="expected latest, best, or the path"):
            folder.checkpoint_path(name)
    with pytest.raises(CheckpointError, match="Did you mean 'latest'"):
        folder.checkpoint_path("lastest")


# Locking

HOLD = """
import sys, time
from trimtab.training.rundir import RunFolder
with RunFolder.open(sys.argv[1]).lock():
    print("held", flush=True)
    time.sleep(60)
"""


@contextlib.contextmanager
def held_by_another_process(folder: RunFolder) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", HOLD, str(folder.path)]
    source = str(Path(rundir.__file__).parents[2])  # a relative PYTHONPATH would not lead there
    environment = {**os.environ, "PYTHONPATH": source}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_second_process_is_refused_until_the_first_is_gone():
    folder = new_run()
    with held_by_another_process(folder) as process:
        assert folder.is_locked()
        with (
            pytest.raises(RunFolderError, match=f"in use by process {process.pid}\\."),
            folder.lock(),
        ):
            pass
        process.send_signal(signal.SIGKILL)  # no clean-up of its own
        process.wait()
        assert not folder.is_locked()
        with folder.lock():
            assert (folder.path / "lock").read_text().startswith(f"{os.getpid()} ")


def test_a_second_lock_in_one_process_is_refused():
    folder = new_run()
    with folder.lock():
        assert folder.is_locked()
        with pytest.raises(RunFolderError, match=f"process {os.getpid()}"), folder.lock():
            pass
        assert folder.is_locked()
    assert not folder.is_locked()
    with folder.lock():
        pass


def test_the_lock_is_released_by_an_error():
    folder = new_run()
    with pytest.raises(ZeroDivisionError), folder.lock():
        _ = 1 / 0
    with folder.lock():
        pass


def test_a_holder_elsewhere_is_named(monkeypatch: pytest.MonkeyPatch):
    folder = new_run()
    with monkeypatch.context() as patch:
        patch.setattr(rundir.socket, "gethostname", lambda: "node7")
        held = folder.lock()
        held.__enter__()
    with pytest.raises(RunFolderError, match=f"process {os.getpid()} on node7"), folder.lock():
        pass
    held.__exit__(None, None, None)


def test_a_file_system_without_locks_is_used_with_a_warning(monkeypatch: pytest.MonkeyPatch):
    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    folder = new_run()
    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.warns(UserWarning, match="cannot be locked"), folder.lock():
        assert not folder.is_locked()


def test_a_lock_file_that_cannot_be_made():
    folder = RunFolder(Path("gone"))
    with pytest.raises(RunFolderError, match="gone cannot be written"), folder.lock():
        pass


# Settings


def test_config_round_trip():
    folder = new_run()
    read = folder.read_config()
    given = config()
    assert read["training"] == given["training"]
    assert read["algorithm"] == {"learning_rate": 1e-05, "hidden_sizes": [64, 64]}
    assert read["environment"] == given["environment"]
    assert read["algorithm_name"] == "ppo"
    assert read["devices"] == given["devices"]
    assert read["schema_version"] == rundir.SCHEMA_VERSION
    assert {"python", "jax", "numpy"} <= set(read["versions"])
    assert "extra" not in read
    names = sorted(path.name for path in folder.path.iterdir())
    assert names == ["config.toml"]


def test_config_with_extra_and_none():
    folder = new_run(extra={"note": "ü"}, algorithm={"target": None, "gamma": 0.5})
    assert folder.read_config()["extra"] == {"note": "ü"}
    assert folder.read_config()["algorithm"] == {"gamma": 0.5}


def test_what_config_cannot_hold_leaves_the_old_one():
    folder = new_run()
    before = folder.config_path.read_text()
    with pytest.raises(SettingError, match=r"environment\.options\.hook = <function"):
        folder.write_config(**config(environment={"id": "x", "options": {"hook": test_open}}))
    assert folder.config_path.read_text() == before


def test_config_that_cannot_be_written():
    with pytest.raises(RunFolderError, match="gone cannot be written: No such file"):
        RunFolder(Path("gone")).write_config(**config())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("oops", "is not valid TOML"),
        ("x = \xff", "is not valid TOML"),
        ("schema_version = 99", "has the schema version 99.*Install a newer trimtab"),
        ("", "schema_version, algorithm_name, environment, training, algorithm, devices are miss"),
        ("schema_version = true", "schema_version, algorithm_name"),
    ],
)
def test_config_that_cannot_be_used(text: str, words: str):
    folder = new_run()
    folder.config_path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RunFolderError, match=words):
        folder.read_config()


def test_config_without_an_environment_id():
    with pytest.raises(RunFolderError, match=r"environment\.id is missing or of the wrong type"):
        new_run(environment={"id": 3}).read_config()
    with pytest.raises(RunFolderError, match="cannot be read: No such file"):
        RunFolder(Path("gone")).read_config()


# Git


def git(*arguments: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", *identity, "-c", "commit.gpgsign=false", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_git_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state() == {}
    git("init", "--quiet")
    assert git_state() == {}  # no commit yet
    Path("file").write_text("one")
    git("add", "file")
    git("commit", "--quiet", "--message=one")
    commit = git("rev-parse", "HEAD")
    assert git_state() == {"commit": commit, "dirty": False}
    Path("file").write_text("two")
    assert git_state() == {"commit": commit, "dirty": True}
    assert new_run().read_config()["git"] == {"commit": commit, "dirty": True}


def test_git_that_is_missing_or_hangs(monkeypatch: pytest.MonkeyPatch):
    def missing(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError("git")

    def hanging(*_: Any, **__: Any) -> Any:
        raise subprocess.TimeoutExpired("git", 3)

    for answer in (missing, hanging):
        monkeypatch.setattr(subprocess, "run", answer)
        assert git_state() == {}
        assert "git" not in new_run(f"runs/{answer.__name__}").read_config()


# Listing


def write_lines(path: Path, *records: dict[str, Any]) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


def test_list_runs():
    first = new_run("runs/first")
    write_lines(
        first.metrics_path,
        {"update": 1, "steps": 100, "rollout/return_mean": 20.5},
        {"update": 2, "steps": 200, "rollout/return_mean": "NaN"},
    )
    write_lines(first.evaluations_path, {"mean": 30.0}, {"mean": 50.0}, {"mean": 40.0})
    checkpoint.write(first.checkpoint_path("latest"), [], {"steps": 100})
    second = new_run("runs/second")
    write_lines(second.metrics_path, {"steps": 1000, "rollout/return_mean": 7})
    checkpoint.write(second.checkpoint_path("latest"), [], {"steps": 1000})
    os.utime(first.config_path, (1, 1))

    newest, oldest = list_runs()
    assert oldest == rundir.RunSummary(
        path=Path("runs/first"),
        state="interrupted",
        environment="CartPole-v1",
        algorithm="ppo",
        seed=3,
        steps=200,
        total_steps=1000,
        last_return=20.5,
        best_evaluation=50.0,
    )
    assert (newest.path.name, newest.state, newest.last_return) == ("second", "finished", 7)
    with first.lock():
        assert [run.state for run in list_runs("runs")] == ["finished", "running"]


def test_finished_is_what_the_checkpoint_says():
    folder = new_run()
    write_lines(folder.metrics_path, {"steps": 1000})
    assert [run.state for run in list_runs()] == ["interrupted"]  # killed before the last save
    checkpoint.write(folder.checkpoint_path("latest"), [], {"steps": 1000})
    assert [run.state for run in list_runs()] == ["finished"]


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: folder.config_path.write_text("oops"),
        lambda folder: folder.config_path.write_bytes(b"\xff"),
        lambda folder: folder.config_path.write_text("schema_version = 99"),
        lambda folder: folder.write_config(**config(training={"num_envs": -1, "seed": "x"})),
        lambda folder: folder.write_config(**config(training={"invented": 1})),
        lambda folder: folder.metrics_path.write_text('{"steps": 3, "x"'),
        lambda folder: folder.metrics_path.write_text('[]\n{"steps": "many"}\n\n'),
        lambda folder: folder.metrics_path.mkdir(),
        lambda folder: folder.evaluations_path.write_bytes(b'{"mean": null}\n\xff\n'),
        lambda folder: (folder.path / "lock").mkdir(),
        lambda folder: checkpoint.write(folder.checkpoint_path("latest"), [], {"steps": "all"}),
        lambda folder: (folder.path / "checkpoints").write_text(""),
    ],
)
def test_list_runs_whatever_became_of_them(damage: Callable[[RunFolder], Any]):
    damage(new_run())
    (run,) = list_runs()
    assert run.path == Path("runs/one")
    assert run.state == "interrupted"
    assert run.steps == 0


def test_what_is_no_run_is_not_listed():
    assert list_runs("nowhere") == []
    Path("runs/empty").mkdir(parents=True)
    Path("runs/file").touch()
    assert list_runs() == []
    assert list_runs("runs/file") == []
