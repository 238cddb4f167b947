"""The training loop: calls of the compiled step, and what is done between them.

The loop knows nothing of algorithms or environments but ``step: Run -> (Run, Metrics)``. While
the device works on one call, the host records the metrics of the one before.
"""

import dataclasses
import math
import time
from collections import deque
from typing import Any

import jax
import numpy as np
from jax import Array

from trimtab.errors import EnvironmentFaultError, TrimtabError
from trimtab.keys import Purpose, stream
from trimtab.log.progress import Progress, Status
from trimtab.log.writer import JsonLines
from trimtab.training.evaluate import Episodes, summary
from trimtab.training.signals import StopRequest
from trimtab.training.step import FAULT_METRIC, Run

# A call of the compiled step covers about this many transitions: long enough to hide the cost of
# calling, short enough that the display moves and a stop is quick.
TRANSITIONS_PER_CALL = 32_768
MOST_UPDATES_PER_CALL = 64
RECENT_UPDATES = 20


class DivergedError(TrimtabError):
    """Training produced numbers that are not finite."""


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When things happen, in updates."""

    updates: int
    batch: int
    eval_every: int
    checkpoint_every: int  # 0: by time
    checkpoint_seconds: float = 30.0

    @property
    def capacity(self) -> int:
        """Updates in one call of the compiled step, at most."""
        return max(1, min(MOST_UPDATES_PER_CALL, TRANSITIONS_PER_CALL // self.batch))

    def next_call(self, done: int) -> int:
        """How many updates the next call makes: none past an evaluation or a checkpoint."""
        stops = [self.updates, done + self.capacity]
        stops += [done + every - done % every for every in self._cadences()]
        return min(stops) - done

    def evaluates(self, done: int) -> bool:
        return done == self.updates or (self.eval_every > 0 and done % self.eval_every == 0)

    def saves(self, done: int, seconds_since: float) -> bool:
        if self.checkpoint_every:
            return done % self.checkpoint_every == 0
        return seconds_since >= self.checkpoint_seconds

    def _cadences(self) -> list[int]:
        return [every for every in (self.eval_every, self.checkpoint_every) if every > 0]


@dataclasses.dataclass(frozen=True)
class Programs:
    """The compiled programs of a run."""

    step: Any  # (algorithm, run, count) -> (run, metrics)
    evaluate: Any  # (algorithm, learner, root) -> Episodes


@dataclasses.dataclass(frozen=True)
class Best:
    """The run at its best evaluation so far."""

    mean: float
    run: Run
    update: int
    written: bool


@dataclasses.dataclass
class Outcome:
    """How a run ended."""

    run: Run
    seconds: float  # of training, without compiling
    stopped_by: str | None  # the signal that ended it early


class Records:
    """The files of a run folder that the loop writes."""

    def __init__(self, metrics: JsonLines, evaluations: JsonLines, save: Any):
        self.metrics = metrics
        self.evaluations = evaluations
        self.save = save  # (name, run, update, offsets) -> None


class Loop:
    """One run's loop. ``go`` is the whole of it; the other methods are its sentences."""

    def __init__(
        self,
        algorithm: Any,
        programs: Programs,
        schedule: Schedule,
        records: Records,
        progress: Progress,
        best_mean: float = -math.inf,
    ):
        self._algorithm = algorithm
        self._programs = programs
        self._schedule = schedule
        self._records = records
        self._progress = progress
        self._best: Best | None = None
        self._best_mean = best_mean
        self._recent: deque[tuple[float, float]] = deque(maxlen=RECENT_UPDATES)
        self._unrecorded: tuple[int, int, Run, dict[str, Array]] | None = None
        self._sound: tuple[Run, int] | None = None  # the last run whose numbers were all finite

    def go(self, run: Run) -> Outcome:
        """Train from ``run`` to the end of the schedule, or until a signal."""
        schedule = self._schedule
        done = int(run.update)
        self._started = self._recorded_at = self._saved_at = time.perf_counter()
        self._first_update = done
        with StopRequest() as stop:
            while done < schedule.updates and stop.requested is None:
                count = schedule.next_call(done)
                run, metrics = self._programs.step(self._algorithm, run, np.int32(count))
                self._record()
                self._unrecorded = (done, count, run, metrics)
                done += count
                if schedule.evaluates(done):
                    self._record()
                    self._evaluate(run, done)
                if schedule.saves(done, time.perf_counter() - self._saved_at):
                    self._save(run, done)
            self._record()
            seconds = time.perf_counter() - self._started
            self._save(run, done)
        self._progress.close()
        return Outcome(run, seconds, stop.requested.name if stop.requested else None)

    def _record(self) -> None:
        """Write the metrics of the last call, once the device has them."""
        if self._unrecorded is None:
            return
        done, count, run, metrics = self._unrecorded
        self._unrecorded = None
        columns = {name: np.asarray(values)[:count] for name, values in metrics.items()}
        faults = columns.pop(FAULT_METRIC)
        now = time.perf_counter()
        rate = count * self._schedule.batch / max(now - self._recorded_at, 1e-9)
        self._recorded_at = now
        names = list(columns)
        rows = [
            {
                "update": done + row + 1,
                "steps": (done + row + 1) * self._schedule.batch,
                **dict(zip(names, values, strict=True)),
                "time/steps_per_second": rate,
                "time/seconds": now - self._started,
            }
            for row, values in enumerate(
                zip(*(column.tolist() for column in columns.values()), strict=True)
            )
        ]
        self._records.metrics.append(rows)
        try:
            check_finite(faults, columns, done)
        except TrimtabError:
            if self._sound is not None:
                self._write(*self._sound)
            raise
        self._sound = run, done + count
        returns, episodes = columns["rollout/return_mean"], columns["rollout/episodes"]
        self._recent.extend(
            (mean * number, number)
            for mean, number in zip(returns, episodes, strict=True)
            if number > 0
        )
        self._progress.updated(self._status(done + count))

    def _status(self, done: int) -> Status:
        returns, episodes = (
            (sum(column) for column in zip(*self._recent, strict=True))
            if (self._recent)
            else (math.nan, 1)
        )
        steps = (done - self._first_update) * self._schedule.batch
        return Status(
            update=done,
            updates=self._schedule.updates,
            steps=done * self._schedule.batch,
            total_steps=self._schedule.updates * self._schedule.batch,
            steps_per_second=steps / max(self._recorded_at - self._started, 1e-9),
            recent_return=returns / episodes,
        )

    def _evaluate(self, run: Run, done: int) -> None:
        root = stream(run.root, Purpose.EVALUATION, done)
        episodes: Episodes = self._programs.evaluate(
            self._algorithm, on_one_device(run.learner), root
        )
        figures = summary(episodes)
        steps = done * self._schedule.batch
        self._records.evaluations.append([{"update": done, "steps": steps, **figures}])
        self._progress.evaluated(steps, figures["mean"], figures["standard_error"])
        if figures["mean"] > self._best_mean:
            self._best_mean = figures["mean"]
            self._best = Best(figures["mean"], run, done, written=False)

    def _save(self, run: Run, done: int) -> None:
        """Write ``latest``, and ``best`` if it is a new one; nothing unchecked is ever saved."""
        self._record()
        self._write(run, done)
        self._saved_at = time.perf_counter()

    def _write(self, run: Run, done: int) -> None:
        self._records.save("latest", run, done)
        if self._best is not None and not self._best.written:
            self._records.save("best", self._best.run, self._best.update)
            self._best = dataclasses.replace(self._best, written=True)


def on_one_device(tree: Any) -> Any:
    """Replicated arrays as they are on the first device."""
    return jax.tree.map(lambda leaf: leaf.addressable_data(0), tree)


def check_finite(faults: np.ndarray, columns: dict[str, np.ndarray], done: int) -> None:
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


def default_eval_every(updates: int) -> int:
    """About five evaluations in a run."""
    return max(1, -(-updates // 5))
