"""MLflow: to the server or database that MLFLOW_TRACKING_URI names, or to ``mlflow.db`` here."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, final

# Its own defaults wait for many minutes until a server that is gone is said to be.
os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1")

from mlflow.entities import Metric, Param, RunTag
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from trimtab.log.sinks import Point, RunRecord

_DEFAULT = "sqlite:///mlflow.db"
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")
_LONGEST_VALUE = 500
_METRICS_IN_A_BATCH, _OTHERS_IN_A_BATCH = 1000, 100
_REFUSALS = ("INVALID_PARAMETER_VALUE", "BAD_REQUEST", "MALFORMED_REQUEST")


@final
class MLflow:
    """One run of the experiment that is called as the project."""

    rewinds = False

    def open(self, record: RunRecord, memory: dict[str, Any], steps: int) -> int | None:
        self._memory = memory
        self._client = MlflowClient(os.environ.get("MLFLOW_TRACKING_URI") or _DEFAULT)
        params = {_name(path): _value(value) for path, value in _leaves(record.settings)}
        if "id" in memory:
            self._id = memory["id"]
            self._client.update_run(self._id, status="RUNNING")
            self._note_changes(params)
            return self._last_steps()
        experiment = self._client.get_experiment_by_name(record.project)
        place = (
            experiment.experiment_id
            if experiment
            else self._client.create_experiment(record.project)
        )
        tags = {_name(tag): "true" for tag in record.tags}
        self._id = self._client.create_run(place, tags=tags, run_name=record.name).info.run_id
        memory["id"] = self._id
        items = [Param(name, value) for name, value in params.items()]
        for start in range(0, len(items), _OTHERS_IN_A_BATCH):
            self._client.log_batch(self._id, params=items[start : start + _OTHERS_IN_A_BATCH])
        return None

    def _note_changes(self, params: Mapping[str, str]) -> None:
        """MLflow never changes a parameter: what a resume changed becomes a tag."""
        known = self._client.get_run(self._id).data.params
        changed = {name: value for name, value in params.items() if known.get(name) != value}
        tags = [RunTag(f"changed/{name}", value) for name, value in changed.items()]
        for start in range(0, len(tags), _OTHERS_IN_A_BATCH):
            self._client.log_batch(self._id, tags=tags[start : start + _OTHERS_IN_A_BATCH])

    def _last_steps(self) -> int | None:
        """Of the metric that every update has: what else was sent with it has arrived too."""
        if "watched" not in self._memory:
            return None
        history = self._client.get_metric_history(self._id, self._memory["watched"])
        return max((point.step for point in history), default=None)

    def write(self, points: Sequence[Point]) -> None:
        now = int(time.time() * 1000)
        for point in points:
            self._memory.setdefault("watched", _name(next(iter(point.values))))
        for part in _parts(points):
            batch = [
                Metric(_name(name), value, now, steps)
                for steps, values in part
                for name, value in values.items()
            ]
            self._client.log_batch(self._id, metrics=batch)

    def attach(self, name: str, path: Path) -> None:
        if path.is_dir():
            self._client.log_artifacts(self._id, str(path), name)
        else:
            self._client.log_artifact(self._id, str(path), str(Path(name).parent))

    def refuses(self, error: Exception) -> bool:
        return isinstance(error, MlflowException) and error.error_code in _REFUSALS

    def close(self) -> None:
        self._client.set_terminated(self._id)


def _parts(points: Sequence[Point]) -> Iterator[list[Point]]:
    """Whole points, as many as one call may hold."""
    part: list[Point] = []
    size = 0
    for point in points:
        if part and size + len(point.values) > _METRICS_IN_A_BATCH:
            yield part
            part, size = [], 0
        part.append(point)
        size += len(point.values)
    if part:
        yield part


def _name(name: str) -> str:
    """As MLflow admits it: letters, digits and ``_ - . / `` and spaces."""
    return _NOT_IN_NAMES.sub("_", name)


def _value(value: Any) -> str:
    return str(value)[:_LONGEST_VALUE]


def _leaves(tables: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tables.items():
        where = f"{path}.{name}" if path else str(name)
        if isinstance(value, Mapping):
            yield from _leaves(value, where)
        else:
            yield where, value
