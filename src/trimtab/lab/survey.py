"""A whole survey: every checkpoint, split and λ, kept as it goes, so that it can be continued."""

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, final

import jax
import numpy as np

from trimtab.algos.gradients import Gradient
from trimtab.algos.onpolicy import discount
from trimtab.envs.tabular import TabularEnv
from trimtab.keys import Purpose, stream
from trimtab.lab import algorithms, minibatches
from trimtab.lab.advice import advise
from trimtab.lab.batches import batches_of
from trimtab.lab.bias import Estimator, TabularSubject
from trimtab.lab.distance import Truth
from trimtab.lab.engine import Conditions, Laboratory, Measurement
from trimtab.lab.notebook import Notebook
from trimtab.lab.plan import Split, Storage, grouping
from trimtab.lab.reference import Reference, measure_reference
from trimtab.lab.results import Known, Record, head_record
from trimtab.lab.subject import Moment, Subject
from trimtab.lab.surrogate import measure_surrogate, relative_squares

# λ and T of the table of exact biases.
EXACT_TRACES = (0.0, 0.5, 0.9, 0.95, 1.0)
EXACT_STEPS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DRIFT_BATCHES = 20
Watch = Callable[[int, int, str], None]
Beat = Callable[[], None]


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
        source = batches_of(subject.env, subject.configuration.training)
        self.laboratory = Laboratory(source, subject.algorithm, conditions)
        self._seconds: dict[Split, float] = {}
        self._references: dict[Any, dict[str, Reference]] = {}
        self._gradients: dict[str, Gradient] | None = None
        self._tabular: dict[str, TabularSubject] = {}

    @property
    def kinds(self) -> list[tuple[Split, float | None]]:
        """What is measured at each checkpoint."""
        return list(itertools.product(self.wanted.splits, self.wanted.traces))

    @property
    def size(self) -> int:
        """How many measurements it has."""
        return len(self.subject.moments) * len(self.kinds)

    def go(self, notebook: Notebook, watch: Watch) -> None:
        """Measure what the notebook does not hold yet; ``watch`` hears of each group of batches."""
        groups, _ = grouping(self.laboratory.conditions.batches)
        whole = len(self.subject.moments) * (1 + len(self.kinds)) * groups
        done = 0
        for moment in self.subject.moments:
            if not notebook.has_moment(moment.name):

                def beat(at: int = done, what: str = moment.name) -> None:
                    watch(at, whole, what)

                beat()
                notebook.add_moment(self.moment_record(moment, beat))
            done += groups
            for split, trace in self.kinds:
                if not notebook.has_cell(moment.name, split, trace):
                    text = f"{moment.name} {split}" + ("" if trace is None else f" λ {trace:g}")
                    watch(done, whole, text)

                    def group_done(group: int, _: int, at: int = done, what: str = text) -> None:
                        watch(at + group, whole, what)

                    notebook.add_cell(self.cell_record(moment, split, trace, group_done))
                done += groups
        notebook.conclude(self.advice(notebook.cells))

    def moment_record(self, moment: Moment, beat: Beat) -> Record:
        """What is known of a checkpoint apart from any split; ``beat`` is called now and then."""
        record: Record = {"name": moment.name, "update": moment.update, "steps": moment.steps}
        tabular = self.tabular(moment)
        if tabular is not None:
            record["expected_return"] = tabular.success()
            if "actor" in self.laboratory.conditions.heads:
                record["exact_grid"] = self.exact_grid(moment, tabular)
        if self.subject.algorithm.epochs * getattr(self.subject.algorithm, "minibatches", 1) > 1:
            record["drift"] = self.drift(moment, beat)
            record["surrogate"] = self.surrogate(moment, beat)
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
        reason = nothing_to_learn(measured, self.laboratory.conditions.batches)
        if reason is not None:
            return {**record, "refusal": reason, "heads": {}}
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
    ) -> dict[str, Known]:
        """The true gradient of each head that has one."""
        tabular = self.tabular(moment)
        storage = {head: one.storage for head, one in measured.heads.items()}
        if tabular is None:
            found = self.reference(moment, storage)
            return {head: Known(one.truth, reference=one) for head, one in found.items()}
        truths = {}
        for head in ("actor", "critic"):
            if head in measured.heads and not storage[head].sketch:
                used = self.gradients(moment)[head].used
                estimator = self.estimator(split, trace)
                exact = tabular.bias(head, used, estimator)
                starts = tabular.starts(head, used, estimator)
                truths[head] = Known(Truth(exact.practice), exact, starts)
        return truths

    def reference(self, moment: Moment, storage: dict[str, Storage]) -> dict[str, Reference]:
        """The checkpoint's, which no split or λ changes; once for each way of keeping gradients."""
        kept = (moment.name, tuple(one.sketch for one in storage.values()))
        if kept not in self._references:
            gamma = float(discount(self.subject.algorithm))
            self._references[kept] = measure_reference(
                self.laboratory, moment.learner, gamma, storage
            )
        return self._references[kept]

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

    def drift(self, moment: Moment, beat: Beat) -> Record:
        """What one update's gradient steps do, over some batches of the run's own split."""
        laboratory, split = self.laboratory, self.subject.own_split
        algorithm, learner = laboratory.at(moment.learner, None), moment.learner

        @jax.jit
        def one(algorithm: Any, learner: Any, rollout: Any, key: Any) -> minibatches.Drift:
            samples, _ = algorithm.prepare(learner, rollout)
            rows = jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:]), samples)
            return minibatches.drift(algorithm, learner, rows, key)

        rollouts = laboratory.rollouts(algorithm, learner, split, DRIFT_BATCHES, 0)
        found = []
        for number, rollout in enumerate(rollouts):
            key = stream(laboratory.root, Purpose.LAB, 5, number)
            found.append(jax.device_get(one(algorithm, learner, rollout, key)))
            beat()
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
        return {
            name: [list(one) for one in column]
            for name, column in minibatches.drift_intervals(stacked).items()
        }

    def surrogate(self, moment: Moment, beat: Beat) -> Record:
        """Bias at the end of an update, by source."""
        split = self.subject.own_split
        found, _ = measure_surrogate(self.laboratory, moment.learner, split, beat=beat)
        return {name: list(one) for name, one in relative_squares(found).items()}

    def update_seconds(self, moment: Moment, split: Split) -> float:
        """The time of one whole update with that split, which no checkpoint changes."""
        if split not in self._seconds:
            algorithm = self.laboratory.at(moment.learner, None)
            source = self.laboratory.source
            self._seconds[split] = source.update_seconds(algorithm, moment.learner, split)
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


def nothing_to_learn(measured: Measurement, batches: int) -> str | None:
    """Why these transitions say nothing of what is better and what worse; None if they do."""
    low, high = measured.reward_range
    if low != high or (low != 0 and measured.terminations):
        return None
    ended = "" if low == 0 else " and no episode was terminated"
    return (
        f"every one of {batches * measured.split.samples:,} transitions had the reward {low:g}"
        f"{ended}: the gradient knows nothing of the task and is zero, or the critic's noise. "
        "Train first, and measure a checkpoint that succeeds in 5% of its episodes or more."
    )
