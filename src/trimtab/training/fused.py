"""A run whose environment is in the compiled program: collecting and learning are one call."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any, final

import jax
import numpy as np
from jax import Array
from jax.sharding import NamedSharding, PartitionSpec

from trimtab.collect.settings import refuse_host_settings
from trimtab.collect.whole import collects_whole, rows_for
from trimtab.envs.wrappers import has_fixed_length
from trimtab.errors import SettingError
from trimtab.spaces import num_bytes
from trimtab.training.config import TrainSettings
from trimtab.training.devices import DevicePlan
from trimtab.training.evaluate import make_evaluator
from trimtab.training.kept import KeptPrograms, Name, description_of
from trimtab.training.loop import Programs, Schedule, schedule_of
from trimtab.training.memory import check_memory, check_network, tree_bytes
from trimtab.training.step import LANES_AXIS, Run, begin, lanes_mesh, make_step
from trimtab.types import JaxEnv


@dataclasses.dataclass(frozen=True)
class Origin:
    """Where an environment comes from: its id and options, and the packages of its code."""

    env_id: str
    options: Mapping[str, Any]
    packages: tuple[str, ...]


@final
@dataclasses.dataclass(frozen=True)
class FusedSession:
    """What a run is made of, once its configuration has been checked."""

    env: JaxEnv
    algorithm: Any
    settings: TrainSettings
    devices: DevicePlan
    # What names the environment, and the packages that its code is in; None where that is not
    # known for certain. Its programs are then not kept for other processes.
    origin: Origin | None = None

    @property
    def schedule(self) -> Schedule:
        return schedule_of(self.settings)

    def settled(self) -> tuple["FusedSession", Mapping[str, Any]]:
        """Itself: the compiled program is the only way to step these."""
        return self, {}

    def check(self) -> None:
        """Trace the first state of the run without making it: unfit spaces and sizes show here."""
        refuse_host_settings(self.settings, self.env.spec.id)
        if self.settings.staggered_starts == "on" and self.env.spec.max_episode_steps is None:
            raise SettingError(
                f"staggered_starts has no effect on {self.env.spec.id}, whose episodes have no "
                f"time limit: leave it at auto, or give max_episode_steps."
            )
        rows = self.settings.num_steps
        if collects_whole(self.algorithm):
            rows = rows_for(self.env.spec, rows)
            if self.settings.staggered_starts == "on":
                raise SettingError(
                    "staggered_starts has no effect with episodes = whole, of which each rollout "
                    "begins its own: leave it at auto."
                )
        check_network(tree_bytes(self.template.learner))
        lanes = self.template.lanes
        obs_bytes = tree_bytes(lanes.obs)
        action_bytes = self.settings.num_envs * num_bytes(self.env.spec.action)
        # Beside the observation, its successor and the action: reward, flags, log-probability.
        step_bytes = 2 * obs_bytes + action_bytes + 16 * self.settings.num_envs
        check_memory(tree_bytes(lanes), step_bytes, self.settings.num_envs, rows)

    @functools.cached_property
    def root(self) -> Array:
        return jax.random.key(self.settings.seed)

    @functools.cached_property
    def staggered(self) -> bool:
        """Whether lanes' first episodes are cut short, so that later ones are out of phase."""
        wanted = self.settings.staggered_starts
        if collects_whole(self.algorithm):
            return False
        return wanted == "on" or (wanted == "auto" and has_fixed_length(self.env))

    @functools.cached_property
    def _begin(self) -> Any:
        # One jitted function for shapes and for compiling: it is traced once.
        lanes, staggered = self.settings.num_envs, self.staggered
        return jax.jit(lambda algorithm, root: begin(algorithm, self.env, lanes, root, staggered))

    @functools.cached_property
    def _programs(self) -> KeptPrograms:
        settings, origin, description = self.settings, self.origin, None
        if origin is not None:
            changes = settings.action_repeat, settings.max_episode_steps
            whole = origin, changes, self.devices
            description = description_of(origin.packages, self.algorithm, whole)
        return KeptPrograms(description, self._lowered)

    # The names of programs hold what sets them apart from others of the same algorithm.

    @property
    def _begin_name(self) -> Name:
        return "begin", self.settings.num_envs, self.staggered

    @property
    def _step_name(self) -> Name:
        # What the template holds depends on settings too: on staggered starts, for one.
        sizes = self.settings.num_steps, self.schedule.capacity
        return "step", *sizes, repr(jax.tree.flatten(self.template))

    def _lowered(self, name: Name) -> Any:
        """A program as XLA is given it."""
        if name == self._begin_name:
            return self._begin.lower(self.algorithm, self.root)
        if name == self._step_name:
            mesh = lanes_mesh(self.devices.devices)
            step: Any = make_step(self.env, self.settings.num_steps, self.schedule.capacity, mesh)
            return step.lower(self.algorithm, self.place(self.template), np.int32(1))
        _, episodes, deterministic = name
        evaluate: Any = make_evaluator(self.env, episodes, deterministic)
        return evaluate.lower(self.algorithm, self.template.learner, self.root)

    def begin(self) -> Run:
        """The run before its first update."""
        return self._programs.all_of([self._begin_name])[0](self.algorithm, self.root)

    @functools.cached_property
    def template(self) -> Run:
        """The shapes of a run, to load a checkpoint into."""
        kept = self._programs.kept(self._begin_name)
        if kept is None:
            return jax.eval_shape(self._begin, self.algorithm, self.root)
        return jax.tree.map(lambda one: jax.ShapeDtypeStruct(one.shape, one.dtype), kept.out_info)

    def evaluator(self, episodes: int, deterministic: bool) -> Any:
        """A compiled ``evaluate(algorithm, learner, root)``, kept for the next time."""
        return self._programs.all_of([("evaluate", episodes, deterministic)])[0]

    def compile(self) -> tuple[Run, Programs]:
        """The run before its first update, and the compiled programs."""
        settings = self.settings
        evaluate = ("evaluate", settings.eval_episodes, not settings.eval_stochastic)
        # The step is traced longest: the others are compiled meanwhile.
        names = self._begin_name, evaluate, self._step_name
        _, evaluator, step = self._programs.all_of(names)
        return self.place(self.begin()), Programs(step, evaluator)

    def place(self, run: Run) -> Run:
        """The run's arrays (or shapes) with the placement that the compiled step expects."""
        mesh = lanes_mesh(self.devices.devices)
        if mesh is None:
            sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
            shardings = jax.tree.map(lambda _: sharding, run)
        else:
            shared = NamedSharding(mesh, PartitionSpec())
            split = NamedSharding(mesh, PartitionSpec(LANES_AXIS))
            shardings = jax.tree.map(lambda _: shared, run)._replace(
                lanes=jax.tree.map(lambda _: split, run.lanes)
            )

        def put(leaf: Any, sharding: Any) -> Any:
            if isinstance(leaf, jax.ShapeDtypeStruct):
                return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
            return jax.device_put(leaf, sharding)

        return jax.tree.map(put, run, shardings)

    def close(self) -> None:
        """Nothing is open."""
