"""Weights & Biases. Where it sends to is said by its own variables, such as WANDB_MODE=offline."""

import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from secrets import token_hex
from typing import Any, final

import wandb

from trimtab.log.sinks import Point, RunRecord

_STEP = "global_step"
_LONGEST_TAG = 64
_NOT_IN_NAMES = re.compile(r"[^\w\-.]")  # of artifacts


@final
class WeightsAndBiases:
    """One run of W&B, which goes on under the same id after a resume."""

    rewinds = False

    def open(self, record: RunRecord, memory: dict[str, Any], steps: int) -> int | None:
        memory.setdefault("id", token_hex(6))
        # Of this machine, W&B gets nothing that it was not given: no arguments, console or code.
        quiet = wandb.Settings(
            silent=True,
            console="off",
            disable_code=True,
            disable_git=True,
            x_disable_meta=True,
            x_disable_stats=True,
            init_timeout=30,
        )
        self._run = wandb.init(
            project=record.project,
            id=memory["id"],
            name=record.name,
            resume="allow",
            reinit="create_new",
            config=dict(record.settings),
            tags=[tag[:_LONGEST_TAG] for tag in record.tags] or None,
            dir=str(record.folder / "trackers"),
            settings=quiet,
        )
        self._run.define_metric("*", step_metric=_STEP)
        self._run.define_metric(_STEP, summary="max")
        if not self._run.resumed:
            return None
        has = dict(self._run.summary.get(_STEP) or {}).get("max")
        return None if has is None else int(has)

    def write(self, points: Sequence[Point]) -> None:
        for steps, values in points:
            self._run.log({**values, _STEP: steps})

    def attach(self, name: str, path: Path) -> None:
        if path.suffix == ".png" and find_spec("PIL"):  # without Pillow it is a file like others
            self._run.log({name: wandb.Image(str(path))})
            return
        if path.suffix == ".html":
            self._run.log({name: wandb.Html(path.read_text(encoding="utf-8"))})
            return
        kind = "model" if path.is_dir() else "figure"
        plain = _NOT_IN_NAMES.sub("-", f"{self._run.id}-{name}")
        artifact = wandb.Artifact(plain, type=kind)
        artifact.add_dir(str(path)) if path.is_dir() else artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def refuses(self, error: Exception) -> bool:
        return isinstance(error, (TypeError, ValueError))

    def close(self) -> None:
        self._run.finish()
