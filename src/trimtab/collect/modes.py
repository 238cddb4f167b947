"""How fast an environment is in each way of stepping it, and which of them ``auto`` takes.

What is measured is thrown away: training begins with environments of its own. So what is trained is
the same in every mode, and how it was chosen leaves no trace in it.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, final

import numpy as np

from trimtab.collect.random_actions import random_actions
from trimtab.collect.settings import HostSettings, workers_for
from trimtab.collect.vectorize import vectorize
from trimtab.envs.patience import at_most
from trimtab.envs.sources import HostSource
from trimtab.errors import EnvironmentFaultError
from trimtab.types import HostEnv

# Below this a step costs less than sharing it: a wake-up and an answer take about as long for each
# worker, and lanes in process save both.
CHEAP_STEP = 30e-6
# Starting workers takes seconds. A run that is over sooner than this gains nothing by them.
SHORT_RUN = 10.0
MEASURED_STEPS, MEASURED_SECONDS = 300, 0.4
# An environment that spends more of its time than this without computing is waiting for something.
WAITING = 0.5
_MOST_WAITING_WORKERS = 16


@final
@dataclasses.dataclass(frozen=True)
class Measured:
    """One way of stepping, and its speed."""

    mode: str
    steps_per_second: float  # environment steps, over all lanes
    start_seconds: float  # until every lane had its first observation
    computing: float  # share of the time in which this process computed
    typical_step: float  # seconds of one lane's step: the median, which a busy machine shifts less
    num_workers: int = 0


@final
@dataclasses.dataclass(frozen=True)
class Choice:
    """What ``auto`` took, and why."""

    vectorization: str
    num_workers: int
    why: str
    measured: list[Measured]

    def settled(self, settings: Any) -> Any:
        """The settings with what was chosen; deadlines are of workers alone."""
        chosen = {"vectorization": self.vectorization, "num_workers": self.num_workers}
        if self.vectorization != "workers":
            plain = HostSettings()
            chosen |= {name: getattr(plain, name) for name in ("step_deadline", "start_deadline")}
        return dataclasses.replace(settings, **chosen)

    def record(self) -> dict[str, Any]:
        """For the folder of the run."""
        rates = {one.mode: round(one.steps_per_second, 1) for one in self.measured}
        return {"asked": "auto", "why": self.why, "steps_per_second": rates}


def choose(source: HostSource, num_envs: int, settings: HostSettings, total_steps: int) -> Choice:
    """The fastest mode for a run, from a few hundred steps of each that is worth a try."""
    if source.make_env is None:
        name = "envpool" if source.make_host is not None else "in-process"
        return Choice(name, 0, f"{source.spec.id} steps its lanes itself", [])
    if num_envs == 1:
        return Choice("in-process", 0, "there is one lane", [])
    try:
        alone = measure_mode(source, num_envs, settings, "in-process")
    except EnvironmentFaultError as error:
        why = f"in process it broke while it was measured: {str(error).splitlines()[0]}"
        return Choice("workers", workers_for(settings, num_envs), why, [])
    each, length = alone.typical_step, total_steps * alone.typical_step
    if each < CHEAP_STEP:
        why = f"a step takes {1e6 * each:.0f} µs, too little to be worth sharing"
        return Choice("in-process", 0, why, [alone])
    if length < SHORT_RUN:
        why = f"{total_steps:,} steps take {length:.1f} s in process: workers are not worth a start"
        return Choice("in-process", 0, why, [alone])
    workers = workers_worth_trying(num_envs, settings, alone)
    shared = measure_mode(source, num_envs, settings, "workers", workers)
    measured = [alone, shared]
    rates = " and ".join(f"{one.mode} {one.steps_per_second:,.0f} steps/s" for one in measured)
    if shared.steps_per_second > alone.steps_per_second:
        return Choice("workers", workers, rates, measured)
    return Choice("in-process", 0, rates, measured)


def workers_worth_trying(num_envs: int, settings: HostSettings, alone: Measured) -> int:
    """One for each core; one for each lane if lanes wait for something that is no core."""
    if alone.computing < WAITING:
        return min(num_envs, _MOST_WAITING_WORKERS)
    return workers_for(settings, num_envs)


def measure_mode(
    source: HostSource, num_envs: int, settings: HostSettings, mode: str, num_workers: int = 0
) -> Measured:
    """The speed of the source's lanes in one mode, under random actions."""
    # Nothing is mended: a step that hangs would hang again in the lane that replaced it.
    asked = dataclasses.replace(
        settings, vectorization=mode, num_workers=num_workers, max_restarts=0
    )

    def stepper() -> tuple[Callable[[], Any], Callable[[], None]]:
        env = vectorize(source, num_envs, asked)
        try:
            obs = env.reset(list(range(num_envs)))
            actions = _actions(env, obs)
        except BaseException:
            env.close()
            raise
        return (lambda: env.step(next(actions))), env.close

    with _patience(settings, mode, source.spec.id):
        return measure(mode, num_envs, stepper, num_workers)


def measure(
    mode: str,
    num_envs: int,
    stepper: Callable[[], tuple[Callable[[], Any], Callable[[], None]]],
    num_workers: int = 0,
) -> Measured:
    """``stepper()`` begins, and gives what steps all lanes and what closes them."""
    begun = time.perf_counter()
    step, close = stepper()
    started = time.perf_counter()
    try:
        step()  # the first may load what the others find
        computed, before = time.process_time(), time.perf_counter()
        ends = [before]
        while len(ends) <= 3 or (
            len(ends) <= MEASURED_STEPS and ends[-1] - before < MEASURED_SECONDS
        ):
            step()
            ends.append(time.perf_counter())
        seconds = ends[-1] - before
        computing = (time.process_time() - computed) / seconds
    finally:
        close()
    rate, typical = (len(ends) - 1) * num_envs / seconds, float(np.median(np.diff(ends)))
    return Measured(mode, rate, started - begun, computing, typical / num_envs, num_workers)


def _patience(
    settings: HostSettings, mode: str, name: str
) -> contextlib.AbstractContextManager[None]:
    """Workers have deadlines of their own; lanes in this process are given them here."""
    if mode == "workers":
        return contextlib.nullcontext()
    seconds = settings.start_deadline + settings.step_deadline
    return at_most(seconds, f"{name}: measuring a few steps in process")


def _actions(env: HostEnv, obs: Any) -> Iterator[np.ndarray]:
    """Random actions without end; drawn ahead, so that drawing them is not measured.

    Those of an environment that masks actions are for its first observation.
    """
    rng = np.random.default_rng(0)
    drawn = [random_actions(env.spec, obs, env.num_envs, rng) for _ in range(64)]
    while True:
        yield from drawn
