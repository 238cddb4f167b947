"""Trackers: TensorBoard, W&B and MLflow behind one small protocol.

A sink may block, fail or crash: it lives in a process of its own (``training.follow``), which reads
the run's files. The package of a tracker is imported by the sink's module alone.
"""

import dataclasses
import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

from trimtab.errors import SettingError

TrackerName = Literal["tensorboard", "wandb", "mlflow"]

# The module and the class of each sink, the packages it needs, and the extra that has them.
_SINKS: dict[str, tuple[str, str, tuple[str, ...], str]] = {
    "tensorboard": ("trimtab.log.sinks.tensorboard", "TensorBoard", ("tensorboardX",), ""),
    "wandb": ("trimtab.log.sinks.wandb", "WeightsAndBiases", ("wandb",), "wandb"),
    "mlflow": ("trimtab.log.sinks.mlflow", "MLflow", ("mlflow", "sqlalchemy", "alembic"), "mlflow"),
}


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """What a tracker is told of a run before its first figure."""

    folder: Path
    project: str
    tags: tuple[str, ...]
    settings: Mapping[str, Any]  # tables, as in config.toml

    @property
    def name(self) -> str:
        return self.folder.resolve().name


class Point(NamedTuple):
    """The figures of one update or evaluation, all of them finite."""

    steps: int
    values: Mapping[str, float]


class Sink(Protocol):
    """A connection to one tracker, for one run. Any method may raise, block, or never return."""

    rewinds: bool
    """Whether points after some step can be taken back, as a run that is resumed needs."""

    def open(self, record: RunRecord, memory: dict[str, Any], steps: int) -> int | None:
        """Connect, for points after ``steps``.

        ``memory`` is what the sink noted the last time, such as the run's id; changes are kept.
        Returns the steps of the last point that the tracker has, where it can be asked.
        """
        ...

    def write(self, points: Sequence[Point]) -> None: ...

    def attach(self, name: str, path: Path) -> None:
        """Keep a file or a folder with the run."""
        ...

    def refuses(self, error: Exception) -> bool:
        """Whether the error is about what was sent, so that sending it again would not help."""
        ...

    def close(self) -> None:
        """Wait until the tracker has it all."""
        ...


def missing(tracker: str) -> str:
    """A sentence with the command that installs what a tracker needs; empty if it is there."""
    _, _, packages, extra = _SINKS[tracker]
    absent = [name for name in packages if importlib.util.find_spec(name) is None]
    if not absent:
        return ""
    wanted = f"'trimtab[{extra}]'" if extra else absent[0]
    return f"The tracker {tracker} needs the package {absent[0]}: pip install {wanted}"


def make_sink(tracker: str) -> Sink:
    """A sink that is not connected yet."""
    if sentence := missing(tracker):
        raise SettingError(sentence)
    module, name, _, _ = _SINKS[tracker]
    return getattr(importlib.import_module(module), name)()
