"""A whole survey: every checkpoint, split and λ, kept as it goes, so that it can be continued."""

import dataclasses
import statistics
import time
from collections.abc import Callable
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np

from trimtab.algos.gradients import Gradient
from trimtab.algos.onpolicy import discount
from trimtab.collect.episodes import start_lanes
from trimtab.envs.tabular import TabularEnv
from trimtab.keys import Purpose, stream
from trimtab.lab import algorithms, minibatches
from trimtab.lab.advice import advise
from trimtab.lab.bias import Estimator, TabularSubject
from trimtab.lab.engine import Conditions, Laboratory, Measurement
from trimtab.lab.notebook import Notebook
from trimtab.lab.plan import Split
from trimtab.lab.reference import measure_reference
from trimtab.lab.results import Record, Truth, head_record
from trimtab.lab.subject import Moment, Subject
from trimtab.training.step import Run, one_update

# λ and T of the table of exact biases.
EXACT_TRACES = (0.0, 0.5, 0.9, 0.95, 1.0)
EXACT_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DRIFT_BATCHES = 20
TIMED_UPDATES = 5


@dataclasses.dataclass(frozen=True)
class Wanted:
    """What is to be measured at each checkpoint."""

    splits: tuple[Split, ...]
    traces: tuple[float | None, ...]  # None: the algorithm's own, or it has none


@final
class Survey:
    """Measures a subject, cell by cell."""

    def __init__(self, subject: Subject, wanted: Wanted, conditions: Conditions):
        self.subject = subject
        self.wanted = wanted
        self.laboratory = Laboratory(subject.env, subject.algorithm, conditions)
        self._seconds: dict[Split, float] = {}
        self._gradients: dict[str, Gradient] | None = None
        self._tabular: dict[str, TabularSubject] = {}

    @property
    def cells(self) -> list[tuple[Moment, Split, float | None]]:
        return [
            (moment, split, trace)
            for moment in self.subject.moments
            for split in self.wanted.splits
            for trace in self.wanted.traces
        ]

    def go(self, notebook: Notebook, watch: Callable[[int, int, str], None]) -> None:
        """Measure what the notebook does not hold yet; ``watch`` hears of each group of batches."""
        cells = self.cells
        for moment in self.subject.moments:
            if not notebook.has_moment(moment.name):
                notebook.add_moment(self.moment_record(moment))
        for place, (moment, split, trace) in enumerate(cells):
            if notebook.has_cell(moment.name, split, trace):
                continue

            def groups_done(done: int, groups: int, place: int = place, text: str = "") -> None:
                watch(place * groups + done, len(cells) * groups, text)

            text = f"{moment.name} {split}" + ("" if trace is None else f" λ {trace:g}")
            notebook.add_cell(
                self.cell_record(
                    moment,
                    split,
                    trace,
                    lambda done, groups, say=groups_done, what=text: say(done, groups, text=what),
                )
            )
        notebook.conclude(self.advice(notebook.cells))

    def moment_record(self, moment: Moment) -> Record:
        """What is known of a checkpoint apart from any split."""
        record: Record = {"name": moment.name, "update": moment.update, "steps": moment.steps}
        tabular = self.tabular(moment)
        if tabular is not None:
            record["expected_return"] = tabular.success()
            if "actor" in self.laboratory.conditions.heads:
                record["exact_grid"] = self.exact_grid(moment, tabular)
        if self.subject.algorithm.epochs * getattr(self.subject.algorithm, "minibatches", 1) > 1:
            record["drift"] = self.drift(moment)
        return record

    def cell_record(
        self,
        moment: Moment,
        split: Split,
        trace: float | None,
        watch: Callable[[int, int], None],
    ) -> Record:
        """One split at one λ of one checkpoint."""
        record: Record = {
            "checkpoint": moment.name,
            "lanes": split.lanes,
            "steps": split.steps,
            "trace": trace,
        }
        measured = self.laboratory.measure(moment.learner, split, trace, watch)
        record["episodes"], record["return_mean"] = measured.episodes, measured.return_mean
        record["update_seconds"] = self.update_seconds(moment, split)
        if measured.reward_range[0] == measured.reward_range[1] and self.rewards_vary():
            count = len(next(iter(measured.heads.values())).means) * split.samples
            record["refusal"] = (
                f"every one of {count:,} transitions had the reward {measured.reward_range[0]:g}: "
                "the gradient knows nothing of the task and is zero, or the critic's noise. Train "
                "first, and measure a checkpoint that succeeds in 5% of its episodes or more."
            )
            record["heads"] = {}
            return record
        truths = self.truths(moment, split, trace, measured)
        record["heads"] = {
            head: head_record(
                measured.heads[head],
                measured.first_batch[head],
                truths.get(head),
                getattr(self.subject.algorithm, "minibatches", 1),
            )
            for head in self.laboratory.conditions.heads
        }
        return record

    def rewards_vary(self) -> bool:
        """Whether the task has more than one reward, as far as that is known."""
        env = self.subject.env
        if not isinstance(env, TabularEnv):
            return True
        return len(np.unique(env.reward[env.probability > 0])) > 1

    # Truth

    def tabular(self, moment: Moment) -> TabularSubject | None:
        """The checkpoint for dynamic programming, where its gradient is one that this covers."""
        env, algorithm = self.subject.env, self.subject.algorithm
        if not isinstance(env, TabularEnv) or not algorithms.is_plain(algorithm):
            return None
        if moment.name not in self._tabular:
            network = moment.learner.parameters.network()
            self._tabular[moment.name] = TabularSubject.of(env, network)
        return self._tabular[moment.name]

    def estimator(self, split: Split, trace: float | None) -> Estimator:
        conditions = self.laboratory.conditions
        own = float(getattr(self.subject.algorithm, "gae_lambda", 1.0))
        return Estimator(
            split,
            float(discount(self.subject.algorithm)),
            own if trace is None else trace,
            conditions.start,
            conditions.warm_up,
        )

    def gradients(self, moment: Moment) -> dict[str, Gradient]:
        if self._gradients is None:
            self._gradients = self.laboratory.gradient_functions(moment.learner)
        return self._gradients

    def truths(
        self, moment: Moment, split: Split, trace: float | None, measured: Measurement
    ) -> dict[str, Truth]:
        """The true gradient of each head that has one."""
        tabular = self.tabular(moment)
        storage = {head: one.storage for head, one in measured.heads.items()}
        if tabular is None:
            found = measure_reference(
                self.laboratory, moment.learner, self.estimator(split, trace).discount, storage
            )
            return {
                head: Truth(one.gradient, one.variance, reference=one)
                for head, one in found.items()
            }
        truths = {}
        for head in ("actor", "critic"):
            if head in measured.heads and not storage[head].sketch:
                used = self.gradients(moment)[head].used
                exact = tabular.bias(head, used, self.estimator(split, trace))
                truths[head] = Truth(exact.practice, exact=exact)
        return truths

    def exact_grid(self, moment: Moment, tabular: TabularSubject) -> Record:
        """|bias| / |gradient| of the actor for λ × T, all by dynamic programming."""
        used = self.gradients(moment)["actor"].used
        own = self.estimator(self.subject.own_split, None)
        rows = []
        for trace in EXACT_TRACES:
            row = []
            for steps in EXACT_STEPS:
                estimator = dataclasses.replace(own, split=Split(1, steps), trace=trace)
                row.append(tabular.bias("actor", used, estimator).shares()["total"])
            rows.append(row)
        return {"traces": list(EXACT_TRACES), "steps": list(EXACT_STEPS), "bias": rows}

    # Minibatches and time

    def drift(self, moment: Moment) -> Record:
        """What one update's gradient steps do, over some batches of the run's own split."""
        laboratory, split = self.laboratory, self.subject.own_split
        algorithm = laboratory.at(moment.learner, None)

        @jax.jit
        def one(number: jax.Array) -> minibatches.Drift:
            samples = laboratory.batch(algorithm, moment.learner, split, number)
            rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
            key = stream(laboratory.root, Purpose.LAB, 5, number)
            return minibatches.drift(algorithm, moment.learner, rows, key)

        found = [jax.device_get(one(jnp.int32(number))) for number in range(DRIFT_BATCHES)]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
        return {
            name: [list(one) for one in column]
            for name, column in minibatches.drift_intervals(stacked).items()
        }

    def update_seconds(self, moment: Moment, split: Split) -> float:
        """The time of one whole update with that split, collecting included."""
        if split in self._seconds:
            return self._seconds[split]
        env = self.subject.env
        algorithm, learner = self.laboratory.at(moment.learner, None), moment.learner
        index = jnp.arange(split.lanes, dtype=jnp.int32)
        lanes = start_lanes(algorithm, env, algorithm.actor(learner), self.laboratory.root, index)
        run = Run(learner, lanes, self.laboratory.root, jnp.int32(0))
        update: Any = jax.jit(lambda algorithm, run: one_update(algorithm, env, split.steps, run))
        jax.block_until_ready(update(algorithm, run))
        times = []
        for _ in range(TIMED_UPDATES):
            before = time.perf_counter()
            jax.block_until_ready(update(algorithm, run))
            times.append(time.perf_counter() - before)
        self._seconds[split] = statistics.median(times)
        return self._seconds[split]

    def advice(self, cells: list[Record]) -> list[Record]:
        """A sentence for each checkpoint, λ and budget."""
        batches = self.laboratory.conditions.batches
        sentences = []
        for moment in self.subject.moments:
            for trace in self.wanted.traces:
                for samples in sorted({split.samples for split in self.wanted.splits}):
                    alike = [
                        cell
                        for cell in cells
                        if cell["checkpoint"] == moment.name
                        and cell["trace"] == trace
                        and cell["lanes"] * cell["steps"] == samples
                    ]
                    advice = advise(alike, batches)
                    sentences.append(
                        {
                            "checkpoint": moment.name,
                            "trace": trace,
                            "samples": samples,
                            **dataclasses.asdict(advice),
                        }
                    )
        return sentences
