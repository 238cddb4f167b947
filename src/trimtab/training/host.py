"""A run whose environments are outside of compiled programs: collect on the host, then learn."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.collect.acting import ActingPrograms
from trimtab.collect.first_come import FirstComeCollector
from trimtab.collect.host import HostCollector
from trimtab.collect.modes import choose
from trimtab.collect.vectorize import check_fits, for_evaluation, vectorize
from trimtab.collect.whole import collects_whole, rows_for
from trimtab.collect.whole_host import WholeCollector
from trimtab.collect.workers import WorkerPool
from trimtab.envs.sources import HostSource
from trimtab.errors import SettingError
from trimtab.keys import Purpose, stream
from trimtab.spaces import num_bytes
from trimtab.training.config import TrainSettings
from trimtab.training.evaluate import Episodes
from trimtab.training.evaluate_host import make_host_evaluator
from trimtab.training.host_step import Collector, HostStep, learn
from trimtab.training.loop import Programs, Schedule, schedule_of
from trimtab.training.memory import check_memory, check_network, tree_bytes
from trimtab.training.step import Run
from trimtab.types import HostEnv, Rollout

# Calls into the environments dominate: there is nothing to gain from many updates in one call of
# the step, and a stop should be quick.
TRANSITIONS_PER_CALL = 2048
# But for overlap: it ends with each call.
OVERLAPPED_UPDATES_PER_CALL = 16


@final
@dataclasses.dataclass(frozen=True)
class HostSession:
    """What a run is made of, once its configuration has been checked.

    A run's ``lanes`` are ``()``: the state of its environments is not in arrays of ours. Only a
    checkpoint has it, as arrays by name, where the environments can be saved (``SavableEnv``).
    """

    env: HostSource
    algorithm: Any
    settings: TrainSettings

    @property
    def schedule(self) -> Schedule:
        plain = schedule_of(self.settings)
        least = OVERLAPPED_UPDATES_PER_CALL * plain.batch if self.settings.overlap else 0
        most = max(TRANSITIONS_PER_CALL, least)
        return dataclasses.replace(plain, transitions_per_call=most)

    def settled(self) -> tuple["HostSession", Mapping[str, Any]]:
        """With the mode that is the fastest, where that was left open, and what was measured."""
        settings = self.settings
        if settings.vectorization != "auto":
            return self, {}
        choice = choose(self.env, settings.num_envs, settings, settings.total_steps)
        settled = dataclasses.replace(self, settings=choice.settled(settings))
        return settled, choice.record()

    def check(self) -> None:
        """Trace the learner without making it: unfit spaces and sizes show here."""
        settings, spec, own = self.settings, self.env.spec, self.env.num_envs
        if own not in (None, settings.num_envs):
            raise SettingError(
                f"num_envs = {settings.num_envs}, but the vector environment of {spec.id} has "
                f"{own} lanes: give num_envs = {own}."
            )
        refuse_what_is_compiled(settings)
        check_fits(self.env, settings)
        if collects_whole(self.algorithm):
            refuse_older_policies(settings)
        learner_bytes = tree_bytes(self.template)
        check_network(learner_bytes)
        step_bytes = 2 * num_bytes(spec.observation) + num_bytes(spec.action) + 16
        check_memory(learner_bytes, settings.num_envs * step_bytes, settings.num_envs, self._rows)

    @functools.cached_property
    def root(self) -> Array:
        return jax.random.key(self.settings.seed)

    @functools.cached_property
    def _begin(self) -> Any:
        def begin(algorithm: Any, root: Array) -> Run:
            learner = algorithm.init(stream(root, Purpose.INIT), self.env.spec)
            return Run(learner, (), root, jnp.int32(0))

        return jax.jit(begin)

    def begin(self) -> Run:
        """The run before its first update."""
        return self._begin(self.algorithm, self.root)

    @functools.cached_property
    def template(self) -> Run:
        """The shapes of a run, to load a checkpoint into."""
        return jax.eval_shape(self._begin, self.algorithm, self.root)

    @property
    def _rows(self) -> int:
        """Of a rollout, in each lane."""
        steps = self.settings.num_steps
        return rows_for(self.env.spec, steps) if collects_whole(self.algorithm) else steps

    @functools.cached_property
    def _lanes(self) -> HostEnv:
        return vectorize(self.env, self.settings.num_envs, self.settings)

    @functools.cached_property
    def _evaluators(self) -> dict[tuple[int, bool], Callable[..., Episodes]]:
        return {}

    def evaluator(self, episodes: int, deterministic: bool) -> Callable[..., Episodes]:
        """An ``evaluate(algorithm, learner, root)`` on environments of its own."""
        kind = (episodes, deterministic)
        played = self.env.evaluation or self.env
        if kind not in self._evaluators:
            self._evaluators[kind] = make_host_evaluator(
                lambda lanes: vectorize(played, lanes, for_evaluation(self.settings, lanes)),
                played.spec,
                episodes,
                deterministic,
            )
        return self._evaluators[kind]

    def compile(self) -> tuple[Run, Programs]:
        """The run before its first update, and the programs."""
        run = self._begin(self.algorithm, self.root)
        collector, rollout = self._collector(run.learner)
        compiled = jax.jit(learn).lower(self.algorithm, run, rollout).compile()
        step = HostStep(self._lanes, collector, compiled, self.settings.overlap)
        while_training = (self.settings.eval_episodes, not self.settings.eval_stochastic)
        return run, Programs(step, self.evaluator(*while_training), step.take_notices, step.whole)

    def _collector(self, learner: Any) -> tuple[Collector, Rollout]:
        """What collects, with its programs compiled, and the shapes of its rollouts."""
        env, settings, steps = self._lanes, self.settings, self._rows

        def programs(lanes: int) -> tuple[ActingPrograms, Rollout]:
            made = ActingPrograms(self.algorithm, learner, env.spec.action, lanes, steps)
            return made, made.compile(self.algorithm, learner, env.spec.observation)

        if settings.vectorization == "async" and isinstance(env, WorkerPool):
            of_worker, part = programs(env.num_envs // env.num_workers)
            first_come = FirstComeCollector(env, of_worker, steps, settings.max_staleness)
            return first_come, first_come.shapes(part)
        of_all, rollout = programs(env.num_envs)
        if collects_whole(self.algorithm):
            return WholeCollector(env, of_all, settings.num_steps, steps), rollout
        return HostCollector(env, of_all, steps), rollout

    def place(self, run: Run) -> Run:
        """On the first device, but for what is the environments'."""
        placed = jax.device_put(run._replace(lanes=()), jax.devices()[0])
        return placed._replace(lanes=run.lanes)

    def close(self) -> None:
        """Close the environments of training, if they were made."""
        if "_lanes" in self.__dict__:
            self._lanes.close()
            del self.__dict__["_lanes"]


def refuse_older_policies(settings: TrainSettings) -> None:
    """Whole episodes are those of one policy, the newest: refuse to collect with an older one."""
    for name, asked in (
        ("overlap", settings.overlap),
        ("vectorization = async", settings.vectorization == "async"),
    ):
        if asked:
            raise SettingError(
                f"{name} collects with a policy that is older than the learner's, and episodes = "
                "whole is for episodes of the newest: leave out one of them."
            )


def refuse_what_is_compiled(settings: TrainSettings) -> None:
    """Refuse settings of environments that are in the compiled program."""
    if settings.staggered_starts != TrainSettings().staggered_starts:
        raise SettingError(
            f"staggered_starts = {settings.staggered_starts} is for environments in compiled "
            "programs: leave the setting out."
        )
