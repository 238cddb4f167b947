"""A run whose environments are outside of compiled programs: collect on the host, then learn."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.collect.acting import ActingPrograms
from trimtab.collect.host import HostCollector, episode_metrics
from trimtab.collect.vectorize import vectorize
from trimtab.envs.sources import HostSource
from trimtab.errors import SettingError
from trimtab.faults import FaultPolicy
from trimtab.keys import Purpose, stream
from trimtab.spaces import num_bytes
from trimtab.training.config import TrainSettings
from trimtab.training.evaluate import Episodes
from trimtab.training.evaluate_host import make_host_evaluator
from trimtab.training.loop import Programs, Schedule, schedule_of
from trimtab.training.memory import check_memory, tree_bytes
from trimtab.training.step import FAULT_METRIC, Run
from trimtab.types import HostEnv, Metrics, Rollout

# Calls into the environments dominate: there is nothing to gain from many updates in one call of
# the step, and a stop should be quick.
TRANSITIONS_PER_CALL = 2048


@final
@dataclasses.dataclass(frozen=True)
class HostSession:
    """What a run is made of, once its configuration has been checked.

    A run's ``lanes`` are ``()``: the state of its environments is not in arrays of ours. A run that
    is resumed begins new episodes.
    """

    env: HostSource
    algorithm: Any
    settings: TrainSettings

    @property
    def schedule(self) -> Schedule:
        plain = schedule_of(self.settings)
        return dataclasses.replace(plain, transitions_per_call=TRANSITIONS_PER_CALL)

    def check(self) -> None:
        """Trace the learner without making it: unfit spaces and sizes show here."""
        settings, spec, own = self.settings, self.env.spec, self.env.num_envs
        if own not in (None, settings.num_envs):
            raise SettingError(
                f"num_envs = {settings.num_envs}, but the vector environment of {spec.id} has "
                f"{own} lanes: give num_envs = {own}."
            )
        refuse_what_is_compiled(settings)
        learner_bytes = tree_bytes(self.template)
        step_bytes = 2 * num_bytes(spec.observation) + num_bytes(spec.action) + 16
        check_memory(
            learner_bytes, settings.num_envs * step_bytes, settings.num_envs, settings.num_steps
        )

    @functools.cached_property
    def root(self) -> Array:
        return jax.random.key(self.settings.seed)

    @functools.cached_property
    def _begin(self) -> Any:
        def begin(algorithm: Any, root: Array) -> Run:
            learner = algorithm.init(stream(root, Purpose.INIT), self.env.spec)
            return Run(learner, (), root, jnp.int32(0))

        return jax.jit(begin)

    @functools.cached_property
    def template(self) -> Run:
        """The shapes of a run, to load a checkpoint into."""
        return jax.eval_shape(self._begin, self.algorithm, self.root)

    @functools.cached_property
    def _lanes(self) -> HostEnv:
        return vectorize(self.env, self.settings.num_envs, FaultPolicy())

    @functools.cached_property
    def _evaluators(self) -> dict[tuple[int, bool], Callable[..., Episodes]]:
        return {}

    def evaluator(self, episodes: int, deterministic: bool) -> Callable[..., Episodes]:
        """An ``evaluate(algorithm, learner, root)`` on environments of its own."""
        kind = (episodes, deterministic)
        if kind not in self._evaluators:
            self._evaluators[kind] = make_host_evaluator(
                lambda lanes: vectorize(self.env, lanes, FaultPolicy()),
                self.env.spec,
                episodes,
                deterministic,
            )
        return self._evaluators[kind]

    def compile(self) -> tuple[Run, Programs]:
        """The run before its first update, and the programs."""
        run = self._begin(self.algorithm, self.root)
        step = HostStep(self._lanes, self.algorithm, run, self.settings.num_steps)
        while_training = (self.settings.eval_episodes, not self.settings.eval_stochastic)
        return run, Programs(step, self.evaluator(*while_training))

    def place(self, run: Run) -> Run:
        """On the first device."""
        return jax.device_put(run, jax.devices()[0])

    def close(self) -> None:
        """Close the environments of training, if they were made."""
        if "_lanes" in self.__dict__:
            self._lanes.close()
            del self.__dict__["_lanes"]


def refuse_what_is_compiled(settings: TrainSettings) -> None:
    """Refuse settings of environments that are in the compiled program."""
    plain = TrainSettings()
    for name in ("action_repeat", "max_episode_steps", "staggered_starts"):
        value = getattr(settings, name)
        if value != getattr(plain, name):
            raise SettingError(
                f"{name} = {value} is for environments in compiled programs: wrap this one, as in "
                f"gymnasium.wrappers.TimeLimit, and leave the setting out."
            )


@final
class HostStep:
    """``step(algorithm, run, count) -> (run, metrics)``: the host's form of the compiled step."""

    def __init__(self, env: HostEnv, algorithm: Any, run: Run, num_steps: int):
        self._env = env
        self._num_steps = num_steps
        self._programs = ActingPrograms(
            algorithm, run.learner, env.spec.action, env.num_envs, num_steps
        )
        rollout = self._programs.compile(algorithm, run.learner, env.spec.observation)
        self._learn = jax.jit(learn).lower(algorithm, run, rollout).compile()
        self._collector: HostCollector | None = None

    def __call__(self, algorithm: Any, run: Run, count: Any) -> tuple[Run, Mapping[str, Any]]:
        if self._collector is None:
            self._collector = HostCollector(self._env, self._programs, self._num_steps)
            self._collector.start(algorithm, run.learner, run.root, int(run.update))
        rows = []
        first = int(run.update)
        for update in range(first, first + int(count)):
            rollout = self._collector.collect(algorithm, run.learner, run.root, update)
            run, metrics = self._learn(algorithm, run, rollout)
            rows.append({**metrics, **episode_metrics(self._collector.tally.take())})
        columns = {name: np.stack([row[name] for row in rows]) for name in rows[0]}
        # Adapters look at every number that an environment gives, and raise themselves.
        columns[FAULT_METRIC] = np.full((len(rows), 2), -1)
        return run, columns


def learn(algorithm: Any, run: Run, rollout: Rollout) -> tuple[Run, Metrics]:
    """One update from a rollout that was collected on the host."""
    key = stream(run.root, Purpose.SHUFFLE, run.update)
    learner, metrics = algorithm.update(run.learner, rollout, key)
    return run._replace(learner=learner, update=run.update + 1), metrics
