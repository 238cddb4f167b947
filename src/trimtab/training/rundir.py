"""A run is a folder: its settings, metrics, evaluations and checkpoints, and a lock.

    config.toml         every setting after defaults, schema version, package versions, git state
    metrics.jsonl       one object for each update
    evaluations.jsonl   one object for each evaluation
    checkpoints/        latest/ and best/, and update-N/ where they were to be kept
    lock                held by the process that trains

No JAX here: folders are listed and mistakes are answered before it loads.
"""

import contextlib
import dataclasses
import fcntl
import math
import os
import re
import socket
import subprocess
import tempfile
import time
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO, final

from trimtab.errors import CheckpointError, RunFolderError, SettingError, did_you_mean
from trimtab.log.writer import read_last
from trimtab.settings import checked, replaced
from trimtab.training import checkpoint, tomlfile
from trimtab.training.config import TrainSettings, batch_size, num_updates
from trimtab.training.evaluations import while_training
from trimtab.training.npzfile import is_plain_path

SCHEMA_VERSION = 1
RUNS = Path("runs")
CHECKPOINT_NAMES = ("latest", "best")
GROUP = "group.json"  # in a folder that holds the folders of several runs
_CONFIG, _METRICS, _CHECKPOINTS, _LOCK = "config.toml", "metrics.jsonl", "checkpoints", "lock"
_SCHEMA: dict[str, type] = {
    "schema_version": int,
    "algorithm_name": str,
    **dict.fromkeys(("environment", "training", "algorithm", "devices"), dict),
}
PACKAGES = ("trimtab", "jax", "jaxlib", "numpy", "gymnasium", "gymnax", "brax")
_LOCK_ATTEMPTS = 10  # `list_runs` holds the lock for an instant when it looks whether it is free
_LONGEST_ENVIRONMENT_NAME = 80


@final
@dataclasses.dataclass(frozen=True)
class RunFolder:
    """Where a run lives. Make one with ``create`` or ``open``."""

    path: Path

    @classmethod
    def create(
        cls, path: Path | str | None, environment: str, algorithm: str, seed: int
    ) -> "RunFolder":
        """A folder for a new run, or an error before any training is lost to it."""
        if path is None:
            folder = unused_folder(environment, algorithm, str(seed))
        else:
            folder = Path(path).expanduser()
            if any(os.path.exists(folder / name) for name in (_CONFIG, _METRICS, _CHECKPOINTS)):
                raise RunFolderError(
                    f"The run folder {folder} already holds a run. Give another folder with "
                    f"--run-dir, or go on with that run: trimtab resume {folder}"
                )
            with _refusing(folder):
                folder.mkdir(parents=True, exist_ok=True)
        with _refusing(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as probe:
            probe.write(b"\n")
        return cls(folder)

    @classmethod
    def open(cls, path: Path | str) -> "RunFolder":
        """The folder of a run that exists."""
        folder = Path(path).expanduser()
        if os.path.isfile(folder / _CONFIG):  # Path.is_file raises for a name that is too long
            return cls(folder)
        found = "does not exist"
        if os.path.exists(folder):
            found = f"has no {_CONFIG}" if folder.is_dir() else "is a file"
        raise RunFolderError(f"{folder} is not a run folder: it {found}.{_nearest_runs(folder)}")

    @property
    def config_path(self) -> Path:
        return self.path / _CONFIG

    @property
    def metrics_path(self) -> Path:
        return self.path / _METRICS

    @property
    def evaluations_path(self) -> Path:
        return self.path / "evaluations.jsonl"

    @property
    def checkpoints_path(self) -> Path:
        return self.path / _CHECKPOINTS

    def checkpoint_path(self, name: str | Path) -> Path:
        """The folder of a checkpoint: ``latest`` or ``best``, or another that exists."""
        inside = self.checkpoints_path
        if name in CHECKPOINT_NAMES:
            return inside / name
        if is_plain_path(str(name)) and checkpoint.exists(inside / name):
            return inside / name
        if str(name) and checkpoint.exists(Path(name)):
            return Path(name)
        raise CheckpointError(
            f"The run {self.path} has no checkpoint {str(name)!r}: expected latest, best, or the "
            f"path of a checkpoint's folder.{did_you_mean(str(name), CHECKPOINT_NAMES)}"
        )

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the folder for this process; released when it ends, however it ends."""
        with contextlib.ExitStack() as stack:
            with _refusing(self.path):
                file = stack.enter_context((self.path / _LOCK).open("a+", encoding="utf-8"))
            self._take(file)
            with contextlib.suppress(OSError):  # a full disk: the lock holds all the same
                file.truncate(0)
                file.write(f"{os.getpid()} {socket.gethostname()}\n")
                file.flush()
            yield

    def _take(self, file: TextIO) -> None:
        for _ in range(_LOCK_ATTEMPTS):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.01)
            except OSError as error:  # some network file systems have no locks
                warnings.warn(
                    f"The run folder {self.path} cannot be locked ({error.strerror}): nothing "
                    "stops a second process from writing to it.",
                    stacklevel=4,
                )
                return
        file.seek(0)
        pid, _, host = file.read().strip().partition(" ")
        elsewhere = f" on {host}" if host and host != socket.gethostname() else ""
        raise RunFolderError(
            f"The run folder {self.path} is in use by process {pid or 'unknown'}{elsewhere}. "
            "Wait for it or stop it, or give another folder with --run-dir."
        )

    def is_locked(self) -> bool:
        """Whether a process trains here just now."""
        try:
            with (self.path / _LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def write_config(
        self,
        *,
        training: Mapping[str, Any],
        algorithm: Mapping[str, Any],
        environment: Mapping[str, Any],
        algorithm_name: str,
        devices: Mapping[str, Any],
        machine: Mapping[str, Any] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        """Write ``config.toml``, with the package versions and the git state of this moment.

        ``environment`` has an ``id`` and may have ``options``. TOML has no None: such a value is
        left out, and means the default when the file is read.
        """
        document = {
            "schema_version": SCHEMA_VERSION,
            "algorithm_name": algorithm_name,
            "environment": environment,
            "training": training,
            "algorithm": algorithm,
            "devices": devices,
            "extra": _without_none(extra),
            "versions": checkpoint.library_versions(*PACKAGES),
            "machine": _without_none(machine),
            "git": git_state() or None,
        }
        self._replace_config(document)

    def _replace_config(self, document: Mapping[str, Any]) -> None:
        text = tomlfile.dumps(document)
        aside = self.path / f".{_CONFIG}.partial"
        with _refusing(self.path), aside.open("w", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
            aside.replace(self.config_path)

    def note_resume(self, entry: Mapping[str, Any]) -> None:
        """Keep in ``config.toml`` that the run went on otherwise than it had begun.

        ``entry`` has the ``steps`` at which it did. What was noted of later steps is forgotten:
        they have been taken back.
        """
        document = self.read_config()
        earlier = [one for one in self.resumed if one["steps"] < entry["steps"]]
        same = [one for one in self.resumed if one["steps"] == entry["steps"]]
        merged = {key: value for one in [*same, entry] for key, value in one.items()}
        document["extra"] = {**document.get("extra", {}), "resumed": [*earlier, merged]}
        self._replace_config(document)

    @property
    def resumed(self) -> list[dict[str, Any]]:
        """Where the run went on otherwise than it had begun, as ``note_resume`` noted it."""
        return list(self.read_config().get("extra", {}).get("resumed", []))

    def read_config(self) -> dict[str, Any]:
        """What ``config.toml`` says: at least what ``write_config`` must be given."""
        document = _read_toml(self.config_path)
        version = document.get("schema_version")
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise RunFolderError(
                f"{self.config_path} has the schema version {version}, and this trimtab reads up "
                f"to {SCHEMA_VERSION}. Install a newer trimtab."
            )
        wrong = [name for name, kind in _SCHEMA.items() if type(document.get(name)) is not kind]
        if not wrong and type(document["environment"].get("id")) is not str:
            wrong = ["environment.id"]
        if wrong:
            raise RunFolderError(
                f"{self.config_path} is not a run's configuration: {', '.join(wrong)} "
                f"{'is' if len(wrong) == 1 else 'are'} missing or of the wrong type. "
                "Restore the file from a copy, or start a new run."
            )
        return document


def _without_none(table: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What is left of a table; None, which is not written, if that is nothing."""
    return {name: value for name, value in (table or {}).items() if value is not None} or None


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(
            f"{path} is not valid TOML: {error}. Mend it, or start a new run."
        ) from error


@contextlib.contextmanager
def _refusing(folder: Path) -> Iterator[None]:
    """What the system says against the folder, as a sentence with what to do."""
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a null character in the path
        reason = getattr(error, "strerror", None) or error
        raise RunFolderError(
            f"The run folder {folder} cannot be written: {reason}. "
            "Give a folder that can be written with --run-dir."
        ) from error


def unused_folder(environment: str, algorithm: str, rest: str) -> Path:
    """A new folder in ``runs/``, named after what is in it and after the time."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", environment)[:_LONGEST_ENVIRONMENT_NAME].lstrip(".-")
    stem = f"{name or 'environment'}-{algorithm}-{rest}-{time.strftime('%Y%m%d-%H%M%S')}"
    folder, number = RUNS / stem, 1
    with _refusing(RUNS):
        RUNS.mkdir(exist_ok=True)
        while True:
            try:
                folder.mkdir()
                return folder
            except FileExistsError:  # another run began in this second
                number += 1
                folder = RUNS / f"{stem}-{number}"


def _nearest_runs(folder: Path) -> str:
    """Half a sentence about the run that was probably meant."""
    for parent in folder.absolute().parents:
        if os.path.isfile(parent / _CONFIG):
            return f" It is inside a run; give that: {parent}"
    places = dict.fromkeys([folder if os.path.isdir(folder) else folder.parent, RUNS])
    runs = [str(run.path) for place in places for run in list_runs(place)]
    near = did_you_mean(str(folder), runs)
    if not near and runs:
        return f" The newest run near it is {runs[0]!r}; list all with: trimtab runs"
    return near


def git_state(directory: Path | None = None) -> dict[str, Any]:
    """The commit of the working directory and whether files differ from it; {} outside of git."""
    command = ["git", "-c", "core.fsmonitor=false", "status", "--porcelain=v2", "--branch"]
    try:
        answer = subprocess.run(
            [*command, "--untracked-files=no"],
            cwd=directory,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=3,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    lines = answer.stdout.decode(errors="replace").splitlines()
    commits = [line.split()[-1] for line in lines if line.startswith("# branch.oid ")]
    if not commits or commits[0] == "(initial)":
        return {}
    return {"commit": commits[0], "dirty": any(not line.startswith("#") for line in lines)}


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSummary:
    """One line of ``trimtab runs``; None where the folder does not say."""

    path: Path
    state: str  # running, finished or interrupted
    environment: str | None
    algorithm: str | None
    seed: int | None
    steps: int
    total_steps: int | None
    last_return: float | None
    best_evaluation: float | None


def list_runs(base: Path | str = RUNS) -> list[RunSummary]:
    """The runs in a folder and in its groups, newest first, whatever state they were left in."""
    started: dict[Path, float] = {}
    with contextlib.suppress(OSError):
        for place in Path(base).iterdir():
            for path in place.iterdir() if (place / GROUP).is_file() else (place,):
                with contextlib.suppress(OSError):
                    started[path] = (path / _CONFIG).stat().st_mtime
    newest_first = sorted(started, key=lambda path: (-started[path], path.name))
    return [summary(RunFolder(path)) for path in newest_first]


def summary(folder: RunFolder) -> RunSummary:
    """What a run's folder says of it, as far as it can be read."""
    config: dict[str, Any] = {}
    total_steps = None
    with contextlib.suppress(RunFolderError, SettingError):
        config = folder.read_config()
        settings = checked(replaced(TrainSettings(), config["training"], _CONFIG))
        total_steps = num_updates(settings) * batch_size(settings)
    metrics = _records(folder.metrics_path)
    evaluations = while_training(_records(folder.evaluations_path))
    steps = _numbers(metrics, "steps")
    returns = _numbers(metrics, "rollout/return_mean")
    saved = None  # metrics may be ahead of what a resume would start from
    with contextlib.suppress(CheckpointError):
        saved = checkpoint.read_manifest(folder.checkpoint_path("latest")).get("steps")
    is_finished = total_steps is not None and isinstance(saved, int) and saved >= total_steps
    return RunSummary(
        path=folder.path,
        state="running" if folder.is_locked() else "finished" if is_finished else "interrupted",
        environment=config["environment"]["id"] if config else None,
        algorithm=config["algorithm_name"] if config else None,
        seed=_whole(config["training"].get("seed")) if config else None,
        steps=int(steps[-1]) if steps else 0,
        total_steps=total_steps,
        last_return=returns[-1] if returns else None,
        best_evaluation=max(_numbers(evaluations, "mean"), default=None),
    )


def _records(path: Path) -> list[dict[str, Any]]:
    with contextlib.suppress(OSError):
        return read_last(path)
    return []


def _numbers(records: list[dict[str, Any]], name: str) -> list[float]:
    values = [record.get(name) for record in records]
    return [v for v in values if isinstance(v, (int, float)) and math.isfinite(v)]


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None
