"""What is kept of one run: metrics, evaluations, and the checkpoints ``latest`` and ``best``.

A ledger never looks into the run that it keeps: it hands it to ``Records.save``.
"""

import dataclasses
import math
from collections import deque
from collections.abc import Mapping
from typing import Any, Protocol, final

import numpy as np

from trimtab.errors import EnvironmentFaultError, TrimtabError
from trimtab.log.writer import JsonLines
from trimtab.training.evaluate import Episodes, summary
from trimtab.training.step import FAULT_METRIC

RECENT_UPDATES = 20


class DivergedError(TrimtabError):
    """Training produced numbers that are not finite."""


@dataclasses.dataclass(frozen=True)
class Best:
    """The run at its best evaluation so far."""

    mean: float
    run: Any
    update: int
    written: bool


class Records:
    """The files of a run folder that the loop writes."""

    def __init__(self, metrics: JsonLines, evaluations: JsonLines, save: Any):
        self.metrics = metrics
        self.evaluations = evaluations
        self.save = save  # (name, run, update) -> None


class Keeper(Protocol):
    """What the loop asks of a ledger, be it of one run or of several."""

    @property
    def recent_return(self) -> float: ...
    def record(
        self, run: Any, done: int, columns: Mapping[str, np.ndarray], timing: Mapping[str, float]
    ) -> None: ...
    def evaluated(self, run: Any, done: int, episodes: Episodes) -> dict[str, float]: ...
    def save(self, run: Any, done: int) -> None: ...


@final
class Ledger:
    """The records of one run while it trains."""

    def __init__(self, records: Records, batch: int, best_mean: float = -math.inf):
        self._records = records
        self._batch = batch
        self._best: Best | None = None
        self._best_mean = best_mean
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_UPDATES)
        self._sound: tuple[Any, int] | None = None  # the last run whose numbers were all finite

    @property
    def recent_return(self) -> float:
        """The mean return of the episodes that ended lately; NaN before the first."""
        episodes = sum(number for _, number in self._recent)
        return sum(total for total, _ in self._recent) / episodes if episodes else math.nan

    def record(
        self,
        run: Any,
        done: int,
        columns: Mapping[str, np.ndarray],
        timing: Mapping[str, float],
    ) -> None:
        """Write the metrics of the updates after ``done``, which led to ``run``.

        If they are not finite, the run before them is saved and an error raised.
        """
        columns = dict(columns)
        faults = columns.pop(FAULT_METRIC)
        names, count = list(columns), len(faults)
        lists = [column.tolist() for column in columns.values()]
        rows = [
            {
                "update": done + row + 1,
                "steps": (done + row + 1) * self._batch,
                **dict(zip(names, values, strict=True)),
                **timing,
            }
            for row, values in enumerate(zip(*lists, strict=True))
        ]
        self._records.metrics.append(rows)
        try:
            check_finite(faults, columns, done)
        except TrimtabError:
            if self._sound is not None:
                self.save(*self._sound)
            raise
        self._sound = run, done + count
        returns, episodes = columns["rollout/return_mean"], columns["rollout/episodes"]
        self._recent.extend(
            (mean * number, number)
            for mean, number in zip(returns.tolist(), episodes.tolist(), strict=True)
            if number > 0
        )

    def evaluated(self, run: Any, done: int, episodes: Episodes) -> dict[str, float]:
        """Write an evaluation, and keep the run if it is the best so far."""
        figures = summary(episodes)
        steps = done * self._batch
        self._records.evaluations.append([{"update": done, "steps": steps, **figures}])
        if figures["mean"] > self._best_mean:
            self._best_mean = figures["mean"]
            self._best = Best(figures["mean"], run, done, written=False)
        return figures

    def save(self, run: Any, done: int) -> None:
        """Write ``latest``, and ``best`` if it is a new one. ``run`` must have been recorded."""
        self._records.save("latest", run, done)
        if self._best is not None and not self._best.written:
            self._records.save("best", self._best.run, self._best.update)
            self._best = dataclasses.replace(self._best, run=None, written=True)


def check_finite(faults: np.ndarray, columns: Mapping[str, np.ndarray], done: int) -> None:
    """Raise for the first update whose observations, rewards or losses are not finite."""
    for row in range(len(faults)):
        step, lane = faults[row].tolist()
        if lane >= 0:
            raise EnvironmentFaultError(
                f"The environment gave an observation or a reward that is not finite (NaN or "
                f"infinite) in lane {lane}, at step {step} of update {done + row + 1}. Training "
                f"stopped there; checkpoints hold the updates before. Check the environment's step "
                f"function at the bounds of its action space."
            )
        bad = [
            name
            for name, column in columns.items()
            if name.startswith("train/") and not np.isfinite(column[row])
        ]
        if bad:
            raise DivergedError(
                f"Training diverged in update {done + row + 1}: {', '.join(bad)} "
                f"{'is' if len(bad) == 1 else 'are'} not finite. Checkpoints hold the updates "
                f"before. A smaller learning_rate or max_grad_norm is the usual remedy."
            )
