"""What is kept of one run: metrics, evaluations, and the checkpoints ``latest`` and ``best``.

A ledger never looks into the run that it keeps: it hands it to ``Records``.
"""

import dataclasses
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, final

import numpy as np

from trimtab.errors import EnvironmentFaultError, TrimtabError
from trimtab.training.evaluate import Episodes, summary
from trimtab.training.evaluations import OF_BEST
from trimtab.training.records import Moment, Records
from trimtab.training.step import FAULT_METRIC

RECENT_UPDATES = 20


class DivergedError(TrimtabError):
    """Training produced numbers that are not finite."""


@dataclasses.dataclass(frozen=True)
class Best:
    """The run at its best evaluation so far, and what that said."""

    moment: Moment
    evaluation: Mapping[str, float]
    saved: bool


@dataclasses.dataclass(frozen=True)
class Gate:
    """When a run is worth an evaluation: once its recent return has reached a threshold."""

    from_return: float | None = None  # none: always
    last_update: int = 0  # which is evaluated in any case


class Keeper(Protocol):
    """What the loop asks of a ledger, be it of one run or of several."""

    @property
    def recent_return(self) -> float: ...
    @property
    def recent_episodes(self) -> float: ...
    def steps_at(self, done: int) -> int: ...
    def wants_evaluation(self, done: int) -> bool: ...
    @property
    def best_run(self) -> Any: ...
    def record(
        self, run: Any, done: int, columns: Mapping[str, np.ndarray], timing: Mapping[str, float]
    ) -> None: ...
    def evaluated(self, run: Any, done: int, episodes: Episodes) -> dict[str, float]: ...
    def evaluated_again(self, episodes: Episodes) -> None: ...
    def save(self, run: Any, done: int) -> None: ...
    def keep(self, run: Any, done: int) -> None: ...


@final
class Ledger:
    """The records of one run while it trains."""

    def __init__(
        self, records: Records, batch: int, best: Best | None = None, gate: Gate | None = None
    ):
        self._records = records
        self._batch = batch
        self._best = best
        self._gate = gate or Gate()
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_UPDATES)
        self._sound: Moment | None = None  # the last run whose numbers were all finite
        self._ahead = 0  # steps beyond update × batch, where rollouts are of whole episodes

    @property
    def best_run(self) -> Any:
        """The run at its best evaluation so far; None before the first."""
        return self._best.moment.run if self._best else None

    @property
    def recent_return(self) -> float:
        """The mean return of the episodes that ended lately; NaN before the first."""
        episodes = sum(number for _, number in self._recent)
        return sum(total for total, _ in self._recent) / episodes if episodes else math.nan

    @property
    def recent_episodes(self) -> float:
        """Episodes that ended in a rollout, of late; NaN before the first rollout."""
        updates = len(self._recent)
        return sum(number for _, number in self._recent) / updates if updates else math.nan

    def wants_evaluation(self, done: int) -> bool:
        """Whether an evaluation after that update is wanted. After the first, they all are."""
        threshold = self._gate.from_return
        if threshold is None or self._best is not None or done == self._gate.last_update:
            return True
        return self.recent_return >= threshold  # which NaN is not

    def steps_at(self, done: int) -> int:
        """Environment steps up to that update, which is the latest that was recorded."""
        return done * self._batch + self._ahead

    def recall(
        self, rows: Sequence[Mapping[str, Any]], notes: Mapping[str, Any] | None = None
    ) -> None:
        """Take up a run that goes on: its recent returns and the notes of its checkpoint."""
        if notes is not None:
            self._ahead = notes["steps"] - notes["update"] * self._batch
        for row in rows[-RECENT_UPDATES:]:
            self._remember(float(row["rollout/return_mean"]), row["rollout/episodes"])

    def _remember(self, mean: float, episodes: float) -> None:
        self._recent.append((mean * episodes if episodes else 0.0, episodes))

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
        ahead = columns.get("rollout/steps_ahead", np.zeros(count, int)).tolist()
        lists = [column.tolist() for column in columns.values()]
        rows = [
            {
                "update": done + row + 1,
                "steps": (done + row + 1) * self._batch + ahead[row],
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
                self._save(self._sound)
            raise
        self._ahead = ahead[-1]
        self._sound = self._moment(run, done + count)
        returns, episodes = columns["rollout/return_mean"], columns["rollout/episodes"]
        for mean, number in zip(returns.tolist(), episodes.tolist(), strict=True):
            self._remember(mean, number)

    def evaluated(self, run: Any, done: int, episodes: Episodes) -> dict[str, float]:
        """Write an evaluation, and keep the run if it is the best so far."""
        figures = summary(episodes)
        counts = {"update": done, "steps": self.steps_at(done)}
        self._records.evaluations.append([{**counts, **figures}])
        if self._best is None or figures["mean"] > self._best.evaluation["mean"]:
            # Alone, or the states of all runs of a group would be kept for the sake of one.
            moment = self._moment(self._records.alone(run), done)
            self._best = Best(moment, figures, saved=False)
        return figures

    def evaluated_again(self, episodes: Episodes) -> None:
        """Write an evaluation of ``best_run`` on seeds that did not choose it."""
        assert self._best is not None
        counts = _counts(self._best.moment)
        self._records.evaluations.append([{**counts, **OF_BEST, **summary(episodes)}])

    def save(self, run: Any, done: int) -> None:
        """Save ``latest``, and ``best`` if it is a new one. ``run`` must have been recorded."""
        self._save(self._moment(run, done))

    def keep(self, run: Any, done: int) -> None:
        """Save a checkpoint that no later one replaces. ``run`` must have been recorded."""
        moment = self._moment(self._records.alone(run), done)
        self._records.save(f"update-{done}", moment, {})

    def _save(self, moment: Moment) -> None:
        # The best comes first: evaluations that are in the latest have then left their best behind.
        best = self._best
        if best is not None and not best.saved:
            saved = self._records.save("best", best.moment, {"evaluation": best.evaluation})
            self._best = dataclasses.replace(best, saved=saved)
        latest = dataclasses.replace(moment, run=self._records.alone(moment.run))
        self._records.save("latest", latest, {})

    def _moment(self, run: Any, done: int) -> Moment:
        return self._records.moment(run, done, self.steps_at(done))


def _counts(moment: Moment) -> dict[str, int]:
    return {"update": moment.update, "steps": moment.steps}


def check_finite(faults: np.ndarray, columns: Mapping[str, np.ndarray], done: int) -> None:
    """Raise for the first update whose observations, rewards or losses are not finite."""
    learned = [column for name, column in columns.items() if name.startswith("train/")]
    if np.max(faults, initial=-1) < 0 and np.isfinite(np.asarray(learned)).all():
        return
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
