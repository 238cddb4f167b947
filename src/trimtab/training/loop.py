"""The training loop: calls of the compiled step, and what is done between them.

The loop knows nothing of algorithms or environments but ``step: Run -> (Run, Metrics)``. While
the device works on one call, the host records the metrics of the one before.
"""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax import Array

from trimtab.errors import RunFolderError
from trimtab.keys import Purpose, stream
from trimtab.log.progress import Progress, Status
from trimtab.training.config import TrainSettings, batch_size, eval_cadence, num_updates
from trimtab.training.ledger import RECENT_UPDATES, Keeper
from trimtab.training.saver import Saver
from trimtab.training.signals import StopRequest
from trimtab.training.step import Run
from trimtab.training.telemetry import Telemetry

# A call of the compiled step covers about this many transitions: long enough to hide the cost of
# calling, short enough that the display moves and a stop is quick.
TRANSITIONS_PER_CALL = 32_768
MOST_UPDATES_PER_CALL = 64


@dataclasses.dataclass(frozen=True)
class Schedule:
    """When things happen, in updates."""

    updates: int
    batch: int
    eval_every: int
    checkpoint_every: int  # 0: by time
    keep_every: int = 0  # 0: no checkpoint but the latest and the best is kept
    checkpoint_seconds: float = 30.0
    runs: int = 1  # that a call advances
    transitions_per_call: int = TRANSITIONS_PER_CALL
    stop_after: int | None = None  # updates; a run that is stopped there is not done

    @property
    def end(self) -> int:
        """The updates that are done when the loop ends."""
        return self.updates if self.stop_after is None else min(self.stop_after, self.updates)

    @property
    def capacity(self) -> int:
        """Updates in one call of the step, at most."""
        of_all = self.batch * self.runs
        return max(1, min(MOST_UPDATES_PER_CALL, self.transitions_per_call // of_all))

    def next_call(self, done: int) -> int:
        """How many updates the next call makes: none past an evaluation or a checkpoint."""
        stops = [self.end, done + self.capacity]
        stops += [done + every - done % every for every in self._cadences()]
        return min(stops) - done

    def evaluates(self, done: int) -> bool:
        return done == self.updates or (self.eval_every > 0 and done % self.eval_every == 0)

    def saves(self, done: int, seconds_since: float) -> bool:
        """Whether a checkpoint is due; at its end a run is saved in any case."""
        if done == self.end:
            return False
        if self.checkpoint_every:
            return done % self.checkpoint_every == 0
        return seconds_since >= self.checkpoint_seconds

    def keeps(self, done: int) -> bool:
        """Whether the checkpoint of this update is kept for good."""
        return self.keep_every > 0 and done % self.keep_every == 0

    def _cadences(self) -> list[int]:
        cadences = self.eval_every, self.checkpoint_every, self.keep_every
        return [every for every in cadences if every > 0]


@dataclasses.dataclass(frozen=True)
class Programs:
    """The compiled programs of a run."""

    step: Any  # (algorithm, run, count) -> (run, metrics)
    evaluate: Any  # (algorithm, learner, root) -> Episodes
    # What is to be said of the steps since it was last asked, a sentence each.
    take_notices: Callable[[], Sequence[str]] = tuple
    # The run as a checkpoint holds it, with what is outside of the programs.
    whole: Callable[[Run], Run] = lambda run: run


@dataclasses.dataclass
class Outcome:
    """How a run ended."""

    run: Run
    seconds: float  # of training, without compiling
    stopped_by: str | None  # the signal that ended it early


class Loop:
    """One run's loop. ``go`` is the whole of it; the other methods are its sentences."""

    def __init__(
        self,
        algorithm: Any,
        programs: Programs,
        schedule: Schedule,
        ledger: Keeper,
        saver: Saver,
        progress: Progress,
    ):
        self._algorithm = algorithm
        self._programs = programs
        self._schedule = schedule
        self._ledger = ledger
        self._saver = saver
        self._progress = progress
        self._unrecorded: tuple[int, int, Run, dict[str, Array]] | None = None
        self._warned = False

    def go(self, run: Run, grace: float | None = None) -> Outcome:
        """Train from ``run`` to the end of the schedule, or until a signal; see ``StopRequest``."""
        schedule = self._schedule
        done = updates_done(run)
        self._telemetry = Telemetry()
        self._saved_at = self._telemetry.begun
        self._first_update = done
        with StopRequest(grace) as stop:
            while done < schedule.end and stop.requested is None:
                count = schedule.next_call(done)
                run, metrics = self._programs.step(self._algorithm, run, np.int32(count))
                for words in self._programs.take_notices():
                    self._progress.say(words)
                self._record()
                self._unrecorded = (done, count, run, metrics)
                done += count
                if schedule.evaluates(done):
                    self._record()
                    if self._ledger.wants_evaluation(done):
                        self._evaluate(run, done)
                if schedule.saves(done, time.perf_counter() - self._saved_at):
                    self._save(run, done)
                if schedule.keeps(done):
                    self._record()
                    self._ledger.keep(run, done)
                self._tell()
            self._record()
            seconds = time.perf_counter() - self._telemetry.begun
            # A run that was at its end already has been evaluated again before it was saved.
            if done == schedule.updates > self._first_update:
                self._evaluate_best()
            self._save(run, done)
            self._saver.wait()
            self._tell()
        self._progress.close()
        require_written(self._saver.refused)
        return Outcome(run, seconds, stop.requested.name if stop.requested else None)

    def _record(self) -> None:
        """Write the metrics of the last call, once the device has them."""
        if self._unrecorded is None:
            return
        done, count, run, metrics = self._unrecorded
        self._unrecorded = None
        columns = {name: np.asarray(values)[:count] for name, values in metrics.items()}
        taken = columns.get("rollout/transitions", np.full(count, self._schedule.batch))
        timing = self._telemetry.of_call(float(taken.mean()) * count)
        self._ledger.record(run, done, columns, timing)
        self._progress.updated(self._status(done + count))
        self._warn_of_few_episodes(done + count)

    def _warn_of_few_episodes(self, done: int) -> None:
        """Say once that a rollout holds too few episodes for what the algorithm makes of them."""
        wanted = getattr(self._algorithm, "fewest_episodes", 0)
        known = done >= min(RECENT_UPDATES, self._schedule.updates)
        if self._warned or not known or not self._ledger.recent_episodes < wanted:
            return
        self._warned = True
        self._progress.say(
            f"A rollout held {self._ledger.recent_episodes:.1f} finished episodes of late. With "
            f"fewer than {wanted} a return is mostly chance: more num_envs, or a longer num_steps, "
            f"is the remedy."
        )

    def _status(self, done: int) -> Status:
        steps = (done - self._first_update) * self._schedule.batch
        seconds = self._telemetry.recorded_at - self._telemetry.begun
        return Status(
            update=done,
            updates=self._schedule.updates,
            steps=self._ledger.steps_at(done),
            total_steps=self._schedule.updates * self._schedule.batch,
            steps_per_second=steps / max(seconds, 1e-9),
            recent_return=self._ledger.recent_return,
        )

    def _tell(self) -> None:
        for path, error in self._saver.news().items():
            self._progress.say(
                f"{path} could not be written ({error.strerror or error}). What is there is kept, "
                "what is new is tried again, and training goes on."
            )

    def _evaluation(self, run: Run, number: int) -> Any:
        root = evaluation_root(run, number)
        return self._programs.evaluate(self._algorithm, on_one_device(run.learner), root)

    def _evaluate_best(self) -> None:
        best = self._ledger.best_run
        if best is not None:
            # While training an evaluation's number is that of its update, which is never 0.
            self._ledger.evaluated_again(self._evaluation(best, 0))

    def _evaluate(self, run: Run, done: int) -> None:
        figures = self._ledger.evaluated(run, done, self._evaluation(run, done))
        steps = self._ledger.steps_at(done)
        self._progress.evaluated(steps, figures["mean"], figures["standard_error"])

    def _save(self, run: Run, done: int) -> None:
        """Save the run; nothing unchecked ever is."""
        self._record()
        self._ledger.save(self._programs.whole(run), done)
        self._saved_at = time.perf_counter()


def updates_done(run: Run) -> int:
    """Of a run, or of the several that advance together."""
    return int(np.asarray(run.update).flat[0])


def evaluation_root(run: Run, done: int) -> Array:
    """The root of the random streams of an evaluation, of a run or of each of several."""

    def derived(root: Array) -> Array:
        return stream(root, Purpose.EVALUATION, done)

    return jax.vmap(derived)(run.root) if run.root.ndim else derived(run.root)


def require_written(refused: Mapping[Path, OSError]) -> None:
    """An error if the end of a run is not on the disk."""
    if not refused:
        return
    reasons = [f"{path} ({error.strerror or error})" for path, error in refused.items()]
    raise RunFolderError(
        f"Training has ended, but its end could not be written: {', '.join(reasons)}. The "
        "checkpoint before it is kept. Make room, and go on from there with: trimtab resume RUN"
    )


def on_one_device(tree: Any) -> Any:
    """Replicated arrays as they are on the first device; others as they are."""
    return jax.tree.map(
        lambda leaf: leaf.addressable_data(0) if leaf.is_fully_replicated else leaf, tree
    )


def schedule_of(settings: TrainSettings) -> Schedule:
    """The schedule that the settings ask for."""
    return Schedule(
        updates=num_updates(settings),
        batch=batch_size(settings),
        eval_every=eval_cadence(settings),
        checkpoint_every=settings.checkpoint_every,
        keep_every=settings.keep_every,
    )
