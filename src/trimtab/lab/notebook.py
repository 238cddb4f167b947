"""``lab.json``: what has been measured so far, rewritten whole after each cell.

A survey that is interrupted goes on where it stopped, as long as it is the same survey.
"""

import json
import os
from pathlib import Path
from typing import Any, final

from trimtab.errors import SettingError
from trimtab.lab.plan import Split
from trimtab.log.writer import from_json, to_json

FORMAT = 2


@final
class Notebook:
    """The file, and its content."""

    def __init__(self, path: Path, content: dict[str, Any]):
        self.path = path
        self.content = content

    @staticmethod
    def open(path: Path, settings: dict[str, Any], command: str) -> "Notebook":
        """A new notebook, or the one that is there if it is of the same survey."""
        fresh = {
            "format": FORMAT,
            "command": command,
            "settings": to_json(settings),
            "moments": [],
            "cells": [],
        }
        if not path.exists():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise SettingError(
                    f"{path.parent} cannot be made: {error.strerror}. Give another --out."
                ) from error
            return Notebook(path, fresh)
        try:
            found = from_json(json.loads(path.read_text()))
            same = found["format"] == FORMAT and to_json(found["settings"]) == fresh["settings"]
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SettingError(
                f"{path} is there already and cannot be read ({error}). Give another --out."
            ) from error
        if not same:
            raise SettingError(
                f"{path} holds another survey: {_differences(found, fresh)}. Give another --out, "
                "or remove the file."
            )
        return Notebook(path, found)

    @property
    def cells(self) -> list[dict[str, Any]]:
        return self.content["cells"]

    def has_moment(self, name: str) -> bool:
        return any(moment["name"] == name for moment in self.content["moments"])

    def has_cell(self, checkpoint: str, split: Split, trace: float | None) -> bool:
        wanted = (checkpoint, split.lanes, split.steps, trace)
        names = ("checkpoint", "lanes", "steps", "trace")
        return any(tuple(cell[name] for name in names) == wanted for cell in self.cells)

    def add_moment(self, record: dict[str, Any]) -> None:
        self.content["moments"].append(record)
        self.write()

    def add_cell(self, record: dict[str, Any]) -> None:
        self.cells.append(record)
        self.write()

    def conclude(self, advice: list[dict[str, Any]]) -> None:
        self.content["advice"] = advice
        self.write()

    def write(self) -> None:
        """All of it, to a file beside, which then takes the name."""
        aside = self.path.with_suffix(".partial")
        aside.write_text(json.dumps(to_json(self.content), ensure_ascii=False, allow_nan=False))
        os.replace(aside, self.path)


def _differences(found: dict[str, Any], fresh: dict[str, Any]) -> str:
    there, here = to_json(found.get("settings", {})), fresh["settings"]
    lines = [
        f"{name} was {there.get(name)}, and is {here.get(name)}"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]
    return "; ".join(lines) or "it is of another format"
