"""The step of a run whose environments are outside of compiled programs: collect, then learn.

With ``overlap`` the next rollout is collected while a thread of its own makes an update, with the
policy from before that update. JAX lets go of Python's lock while it computes.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, Protocol, final

import jax
import numpy as np
from jax import Array

from trimtab.collect.host import Episode, episode_metrics
from trimtab.envs.state import UnsavableError
from trimtab.faults import LaneFault
from trimtab.keys import Purpose, stream
from trimtab.training.step import FAULT_METRIC, Run
from trimtab.types import HostEnv, Metrics, Rollout


class Collector(Protocol):
    """What rollouts come from: a ``HostCollector`` or a ``FirstComeCollector``."""

    def start(self, algorithm: Any, learner: Any, root: Array, update: int) -> None: ...
    def collect(self, algorithm: Any, learner: Any, root: Array, update: int) -> Rollout: ...
    def save(self) -> dict[str, np.ndarray]: ...
    def restore(self, saved: Mapping[str, np.ndarray]) -> None: ...
    def take_episodes(self) -> list[Episode]: ...
    def take_metrics(self) -> Mapping[str, float]: ...


@final
class HostStep:
    """``step(algorithm, run, count) -> (run, metrics)``: the host's form of the compiled step."""

    def __init__(self, env: HostEnv, collector: Collector, learn: Any, overlap: bool):
        self._env, self._collector, self._learn = env, collector, learn
        self._overlap = overlap
        self._started = False
        self._done = 0  # updates; to ask the run itself is to wait for it
        self._latest: Run | None = None
        self._before: Run | None = None  # the run before its latest update
        self._notices: list[str] = []
        self._told: set[str] = set()
        self._timed_at = 0.0

    def __call__(self, algorithm: Any, run: Run, count: Any) -> tuple[Run, Mapping[str, Any]]:
        if run is not self._latest:
            self._done, self._before = int(run.update), None
        if not self._started:
            self._timed_at = time.perf_counter()
            self._collector.start(algorithm, run.learner, run.root, self._done)
            self._take_up(run)
            run = run._replace(lanes=())
            self._started = True
        host_rows: list[dict[str, float]] = []
        learned: list[Future[tuple[Run, Metrics]]] = []
        latest = finished((run, {}))
        with ThreadPoolExecutor(1, "trimtab-learner") if self._overlap else ThisThread() as thread:
            for update in range(self._done, self._done + int(count)):
                behind = self._before if self._overlap else None
                acting = latest.result()[0] if behind is None else behind
                begun = time.perf_counter()
                rollout = self._collector.collect(algorithm, acting.learner, run.root, update)
                collected = time.perf_counter()
                host_metrics = self._host_metrics(policy_age=0 if behind is None else 1)
                self._before = latest.result()[0]
                latest = thread.submit(self._learn, algorithm, self._before, rollout)
                learned.append(latest)
                if not self._overlap:  # the next rollout would wait for it anyway
                    jax.block_until_ready(latest.result()[0].learner)
                spent = collected - begun, time.perf_counter() - collected
                steps = host_metrics.get("rollout/transitions", float(rollout.reward.size))
                host_rows.append({**host_metrics, **self._timing(steps, *spent)})
        run = latest.result()[0]
        self._done, self._latest = self._done + len(learned), run
        rows = [
            {**update.result()[1], **host_row}
            for update, host_row in zip(learned, host_rows, strict=True)
        ]
        columns: dict[str, Any] = {name: Column([row[name] for row in rows]) for name in rows[0]}
        # Adapters look at every number that an environment gives, and raise themselves.
        columns[FAULT_METRIC] = np.full((len(rows), 2), -1)
        return run, columns

    def whole(self, run: Run) -> Run:
        """The run with the state of its environments, where that can be saved."""
        if run is not self._latest or not self._started:
            return run
        try:
            return run._replace(lanes=self._saved())
        except UnsavableError:
            return run

    def _saved(self) -> dict[str, np.ndarray]:
        if self._overlap:
            raise UnsavableError("with overlap, a rollout is on its way while an update is")
        return self._collector.save()

    def _take_up(self, run: Run) -> None:
        """Go on with the episodes of a run that is resumed, or say why they are new."""
        if self._done == 0:
            return
        try:
            if run.lanes:
                self._collector.restore(run.lanes)
                return
            self._saved()
            why = "the checkpoint does not hold the state of its environments"
        except UnsavableError as error:
            why = str(error)
        self._notices.append(
            f"New episodes begin here, since {why}. From here on the run differs from one that "
            "never stopped; config.toml notes it."
        )

    def take_notices(self) -> list[str]:
        """What is to be said of the steps since the last call: which lanes were restarted, why."""
        notices, self._notices = self._notices, []
        return notices

    def _timing(self, steps: float, collecting: float, updating: float) -> dict[str, float]:
        """How fast the two parts of an update went, and their shares of the time since the last.

        With overlap an update has no time of its own.
        """
        now = time.perf_counter()
        whole, self._timed_at = now - self._timed_at, now
        parts = {"collect": collecting} | ({} if self._overlap else {"update": updating})
        figures = {f"time/{name}_share": seconds / whole for name, seconds in parts.items()}
        rates = {
            f"time/{name}_steps_per_second": steps / max(seconds, 1e-9)
            for name, seconds in parts.items()
        }
        return {**rates, **figures}

    def _host_metrics(self, policy_age: int) -> dict[str, float]:
        faults = self._env.take_faults()
        self._notices += map(self._words, faults)
        metrics = {
            **episode_metrics(self._collector.take_episodes()),
            **self._collector.take_metrics(),
            "rollout/restarts": float(len(faults)),
        }
        return metrics | ({"rollout/policy_age": float(policy_age)} if self._overlap else {})

    def _words(self, fault: LaneFault) -> str:
        """A fault in a sentence; the first of its kind with the traceback."""
        words = f"{str(fault).removesuffix('.')}. The lane begins a new episode."
        if not fault.traceback or fault.message in self._told:
            return words
        self._told.add(fault.message)
        return f"{words}\n{fault.traceback.rstrip()}"


@final
class ThisThread(Executor):
    """Makes an update at once, where nothing is to go on beside it."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return finished(fn(*args, **kwargs))


def finished(result: Any) -> Future[Any]:
    """A future that need not be waited for."""
    future: Future[Any] = Future()
    future.set_result(result)
    return future


@final
class Column:
    """A metric of several updates: an array once somebody asks, and nobody waits before that."""

    def __init__(self, values: list[Any]):
        self._values = values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.stack([np.asarray(value, dtype) for value in self._values])


def learn(algorithm: Any, run: Run, rollout: Rollout) -> tuple[Run, Metrics]:
    """One update from a rollout that was collected on the host."""
    key = stream(run.root, Purpose.SHUFFLE, run.update)
    learner, metrics = algorithm.update(run.learner, rollout, key)
    return run._replace(learner=learner, update=run.update + 1), metrics
