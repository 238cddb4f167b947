"""A group: several runs that are trained at once, each of which is kept as a run of its own.

The loop is that of a single run. It is given the compiled programs of all runs together, and a
ledger that hands each run its own rows, evaluations and checkpoints.
"""

import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding

from trimtab.errors import RunFolderError, TrimtabError
from trimtab.log.progress import Progress
from trimtab.training.evaluate import Episodes
from trimtab.training.fused import FusedSession
from trimtab.training.ledger import Ledger
from trimtab.training.loop import Loop, Outcome, Programs, Schedule
from trimtab.training.rundir import RunFolder
from trimtab.training.saver import Saver
from trimtab.training.seeds import (
    OF_EACH,
    begin_seeds,
    make_seeds_evaluator,
    make_seeds_step,
    one_of,
    seeds_mesh,
    stacked,
)
from trimtab.training.session import (
    Manner,
    SavedPoint,
    open_ledger,
    point_before,
    saved_point,
)
from trimtab.training.statistics import standard_error
from trimtab.training.step import Run
from trimtab.training.tracking import tracked


@dataclasses.dataclass(frozen=True)
class GroupSession:
    """What a group is made of: a session that all runs have in common, and what differs."""

    common: FusedSession
    algorithms: Sequence[Any]  # of each run, alike but for their floats
    seeds: Sequence[int]
    devices: int

    @property
    def runs(self) -> int:
        return len(self.seeds)

    @property
    def schedule(self) -> Schedule:
        return dataclasses.replace(self.common.schedule, runs=self.runs)

    @property
    def _places(self) -> list[int]:
        """The run at each place of the program: the last one fills what devices have left over."""
        places = -(-self.runs // self.devices) * self.devices
        return [min(place, self.runs - 1) for place in range(places)]

    @functools.cached_property
    def stacked(self) -> Any:
        return self._placed(stacked([self.algorithms[place] for place in self._places]))

    def _placed(self, tree: Any) -> Any:
        mesh = seeds_mesh(self.devices)
        if mesh is None:
            return jax.device_put(tree, jax.devices()[0])
        return jax.device_put(tree, NamedSharding(mesh, OF_EACH))

    def compile(self) -> tuple[Run, Programs]:
        """The runs before their first updates, and the compiled programs."""
        settings, env, mesh = self.common.settings, self.common.env, seeds_mesh(self.devices)
        seeds = jnp.asarray([self.seeds[place] for place in self._places], jnp.uint32)
        start = jax.jit(
            functools.partial(
                begin_seeds,
                env=env,
                num_envs=settings.num_envs,
                staggered=self.common.staggered,
            )
        )
        runs = self._placed(start(self.stacked, seeds=seeds))
        step: Any = make_seeds_step(env, settings.num_steps, self.schedule.capacity, mesh)
        evaluate: Any = make_seeds_evaluator(
            env, settings.eval_episodes, not settings.eval_stochastic, mesh
        )
        with ThreadPoolExecutor(2) as pool:
            stepping = pool.submit(step.lower(self.stacked, runs, np.int32(1)).compile)
            evaluating = pool.submit(evaluate.lower(self.stacked, runs.learner, runs.root).compile)
            return runs, Programs(stepping.result(), evaluating.result())

    def joined(self, runs: Sequence[Run]) -> Run:
        """Runs that were kept apart, as the program has them."""
        here = jax.device_put([runs[place] for place in self._places], jax.devices()[0])
        return self._placed(jax.tree.map(lambda *leaves: jnp.stack(leaves), *here))


@final
class GroupLedger:
    """The ledgers of a group's runs, as the loop of one run sees them.

    A run whose numbers stop being finite is saved as it was before, and left out from then on;
    the others go on.
    """

    def __init__(
        self,
        ledgers: Sequence[Ledger],
        joined: Callable[[Sequence[Run]], Run],
        say: Callable[[int, TrimtabError], None],
    ):
        self._ledgers = ledgers
        self._joined = joined
        self._say = say
        self.failures: dict[int, TrimtabError] = {}

    @property
    def recent_return(self) -> float:
        """The mean of the runs' recent returns; NaN where none has one yet."""
        returns = [ledger.recent_return for _, ledger in self._sound()]
        known = [value for value in returns if not math.isnan(value)]
        return sum(known) / len(known) if known else math.nan

    @property
    def recent_episodes(self) -> float:
        """Of the run that has the fewest."""
        return min(ledger.recent_episodes for _, ledger in self._sound())

    def steps_at(self, done: int) -> int:
        """Of the run that has made the fewest."""
        return min(ledger.steps_at(done) for _, ledger in self._sound())

    def wants_evaluation(self, done: int) -> bool:
        return any(ledger.wants_evaluation(done) for _, ledger in self._sound())

    def record(
        self, run: Run, done: int, columns: Mapping[str, np.ndarray], timing: Mapping[str, float]
    ) -> None:
        """Write each run's metrics; an error only if no run is left."""
        for place, ledger in self._sound():
            own = {name: column[:, place] for name, column in columns.items()}
            try:
                ledger.record((run, place), done, own, timing)
            except TrimtabError as error:
                self.failures[place] = error
                self._say(place, error)
        if len(self.failures) == len(self._ledgers):
            raise next(iter(self.failures.values()))

    def evaluated(self, run: Run, done: int, episodes: Episodes) -> dict[str, float]:
        """Write the evaluation of each run that wants one; the mean over runs of their means."""
        means = []
        for place, ledger in self._sound():
            if ledger.wants_evaluation(done):
                own = ledger.evaluated((run, place), done, _of_one(episodes, place))
                means.append(own["mean"])
        of_runs = np.asarray(means)
        return {"mean": float(of_runs.mean()), "standard_error": standard_error(of_runs)}

    @property
    def best_run(self) -> Run | None:
        """Each run's best, together; in place of one that has none stands another's."""
        known = [ledger.best_run for ledger in self._ledgers if ledger.best_run is not None]
        if not known:
            return None
        return self._joined(
            [known[0] if ledger.best_run is None else ledger.best_run for ledger in self._ledgers]
        )

    def evaluated_again(self, episodes: Episodes) -> None:
        for place, ledger in self._sound():
            if ledger.best_run is not None:
                ledger.evaluated_again(_of_one(episodes, place))

    def save(self, run: Run, done: int) -> None:
        for place, ledger in self._sound():
            ledger.save((run, place), done)

    def keep(self, run: Run, done: int) -> None:
        for place, ledger in self._sound():
            ledger.keep((run, place), done)

    def _sound(self) -> list[tuple[int, Ledger]]:
        return [
            (place, ledger)
            for place, ledger in enumerate(self._ledgers)
            if place not in self.failures
        ]


def _of_one(episodes: Episodes, place: int) -> Episodes:
    return Episodes(*(np.asarray(leaf)[place] for leaf in episodes))


@dataclasses.dataclass(frozen=True)
class GroupOutcome:
    """How a group ended."""

    outcome: Outcome
    compile_seconds: float
    failures: Mapping[int, TrimtabError]  # of runs by their place


def run_group(
    session: GroupSession, folders: Sequence[RunFolder], progress: Progress, manner: Manner
) -> GroupOutcome:
    """Compile, train, and keep every run's folder up to date."""
    progress.compiling()
    before = time.perf_counter()
    runs, programs = session.compile()
    compile_seconds = time.perf_counter() - before
    progress.compiled(compile_seconds)
    points = [saved_point(session.common, folder, progress, manner) for folder in folders]
    saved = _together(session, folders, [point for point in points if point is not None])
    if saved:
        runs = session.joined([point.run for point in saved])

    def say(place: int, error: TrimtabError) -> None:
        progress.say(f"{folders[place].path.name}: {error} The other runs go on.")

    with Saver() as saver:
        ledgers = [
            open_ledger(session.common, folder, saver, point, alone=lambda held: one_of(*held))
            for folder, point in zip(folders, saved or [None] * len(folders), strict=True)
        ]
        ledger = GroupLedger(ledgers, session.joined, say)
        schedule = dataclasses.replace(session.schedule, stop_after=manner.stop_after)
        resumed_at = max((point.notes["steps"] for point in saved), default=0)
        with tracked(folders, session.common.settings.track, resumed_at, progress) as watched:
            loop = Loop(session.stacked, programs, schedule, ledger, saver, watched)
            return GroupOutcome(loop.go(runs, manner.grace), compile_seconds, ledger.failures)


def _together(
    session: GroupSession, folders: Sequence[RunFolder], points: Sequence[SavedPoint]
) -> list[SavedPoint]:
    """The points, at one and the same update; refused if there is none that all have.

    A kill amid the saves of a group leaves some runs one checkpoint ahead of the others: they go
    on from the one before.
    """
    if not points:
        return []
    common = min(point.notes["update"] for point in points)
    together = [
        point if point.notes["update"] == common else point_before(session.common, folder, point)
        for folder, point in zip(folders, points, strict=False)
    ]
    done = {point.notes["update"] for point in together}
    if len(done) > 1 or len(points) < len(folders):
        raise RunFolderError(
            f"The runs of the group do not stand at the same update ({min(done)} to {max(done)}; "
            f"{len(folders) - len(points)} have none), so that they cannot go on together. Go on "
            f"with each by itself, as in: trimtab resume {folders[0].path}"
        )
    return together
