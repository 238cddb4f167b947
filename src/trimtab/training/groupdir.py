"""A group is a folder of run folders, with a ``group.json`` that says what they have in common.

    group.json                     the seeds, what is swept, how each run ended, the summary
    learning_rate=0.001-seed-0/    a run, like any other

No JAX here.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from trimtab.errors import RunFolderError
from trimtab.log.writer import from_json, to_json
from trimtab.training.members import Member
from trimtab.training.rundir import GROUP, unused_folder

SCHEMA_VERSION = 1


@final
class GroupFolder:
    """Where a group lives. Make one with ``create`` or ``open``."""

    def __init__(self, path: Path):
        self.path = path

    @classmethod
    def create(
        cls, path: Path | str | None, environment: str, algorithm: str, runs: int
    ) -> "GroupFolder":
        """A folder for a new group."""
        if path is None:
            return cls(unused_folder(environment, algorithm, f"{runs}-runs"))
        folder = Path(path).expanduser()
        if is_group(folder) or os.path.isfile(folder / "config.toml"):
            held = "group of runs" if is_group(folder) else "run"
            raise RunFolderError(
                f"The folder {folder} already holds a {held}. Give another with --run-dir, or go "
                f"on with what is there: trimtab resume {folder}"
            )
        return cls(folder)

    @classmethod
    def open(cls, path: Path | str) -> "GroupFolder":
        """The folder of a group that exists."""
        folder = Path(path).expanduser()
        if not is_group(folder):
            raise RunFolderError(f"{folder} is not the folder of a group: it has no {GROUP}.")
        return cls(folder)

    def run_path(self, member: Member) -> Path:
        return self.path / member.name

    def write(self, document: Mapping[str, Any]) -> None:
        """Write ``group.json``; whoever reads it sees the old one or the new one."""
        self.path.mkdir(parents=True, exist_ok=True)
        aside = self.path / f".{GROUP}.partial"
        whole = {"schema_version": SCHEMA_VERSION, **document}
        text = json.dumps(to_json(whole), indent=1, ensure_ascii=False) + "\n"
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(self.path / GROUP)

    def read(self) -> dict[str, Any]:
        """What ``group.json`` says."""
        path = self.path / GROUP
        try:
            document = from_json(json.loads(path.read_text(encoding="utf-8")))
            members_in(document)
        except OSError as error:
            raise RunFolderError(f"{path} cannot be read: {error.strerror}.") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RunFolderError(
                f"{path} does not describe a group of runs ({error}). Restore it from a copy; each "
                f"run beside it is whole, and `trimtab resume` goes on with one of them."
            ) from error
        return document


def is_group(folder: Path) -> bool:
    return os.path.isfile(folder / GROUP)


def members_in(document: Mapping[str, Any]) -> list[Member]:
    """The members that a group's document lists."""
    return [Member(int(one["seed"]), dict(one["values"])) for one in document["runs"]]
