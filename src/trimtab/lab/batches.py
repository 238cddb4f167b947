"""Where independent batches of transitions come from: one question, two kinds of environment."""

import dataclasses
import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol, final

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.collect.episodes import start_lanes
from trimtab.keys import Purpose, stream
from trimtab.lab.collecting import Facts, collect_group
from trimtab.lab.plan import Split, Start
from trimtab.spaces import EnvSpec
from trimtab.training.step import Run, one_update
from trimtab.types import JaxEnv, Rollout

TIMED_UPDATES, TIMED_SECONDS = 10, 2.0


@dataclasses.dataclass(frozen=True)
class Request:
    """``groups`` times ``batches`` batches side by side, from lanes that begin as ``start`` says.

    Lanes that begin ``fresh`` are at the first step of an episode; those that are ``carried`` on
    have done ``warm_up`` steps since, all the same number; ``stationary`` ones more than that, not
    all the same number, so that their episodes are out of step.
    """

    split: Split
    batches: int
    groups: int
    start: Start
    warm_up: int


class Batches(Protocol):
    """A source of batches."""

    @property
    def spec(self) -> EnvSpec: ...

    @property
    def env(self) -> Any: ...

    @property
    def side_by_side(self) -> int:
        """How many more batches may be had where one is needed: as many as cost little."""
        ...

    @property
    def reference_batches(self) -> int:
        """How many batches of a measured reference are worth their time: a multiple of 20."""
        ...

    def groups(
        self, algorithm: Any, learner: Any, root: Array, request: Request
    ) -> Iterator[tuple[Rollout, Facts]]:
        """Each group's rollout, leaves [T, batches × N, ...], and what is worth knowing of it."""
        ...

    def shapes(self, algorithm: Any, learner: Any) -> Rollout:
        """Those of a rollout of one step in one lane."""
        ...

    def update_seconds(self, algorithm: Any, learner: Any, split: Split) -> float:
        """The time of one whole update with that split at best, collecting included."""
        ...


@final
class FusedBatches:
    """From an environment inside of compiled programs."""

    def __init__(self, env: JaxEnv):
        self.env = env

    @property
    def spec(self) -> EnvSpec:
        return self.env.spec

    @property
    def side_by_side(self) -> int:
        return 8

    @property
    def reference_batches(self) -> int:
        return 160

    def groups(
        self, algorithm: Any, learner: Any, root: Array, request: Request
    ) -> Iterator[tuple[Rollout, Facts]]:
        program = self._program(dataclasses.replace(request, groups=1))
        for group in range(request.groups):
            yield program(algorithm, learner, stream(root, Purpose.LAB, 3, group))

    @functools.cache  # noqa: B019 (it lives as long as its programs are wanted)
    def _program(self, request: Request) -> Any:
        return jax.jit(
            lambda algorithm, learner, root: collect_group(
                algorithm,
                self.env,
                learner,
                root,
                request.split,
                request.batches,
                request.start,
                request.warm_up,
            )
        )

    def shapes(self, algorithm: Any, learner: Any) -> Rollout:
        program = self._program(Request(Split(1, 1), 1, 1, "fresh", 0))
        return jax.eval_shape(program, algorithm, learner, jax.random.key(0))[0]

    def update_seconds(self, algorithm: Any, learner: Any, split: Split) -> float:
        root = jax.random.key(0)
        index = jnp.arange(split.lanes, dtype=jnp.int32)
        lanes = start_lanes(algorithm, self.env, algorithm.actor(learner), root, index)
        run = Run(learner, lanes, root, jnp.int32(0))
        update: Any = jax.jit(
            lambda algorithm, run: one_update(algorithm, self.env, split.steps, run)
        )
        return shortest_seconds(lambda: update(algorithm, run))


def shortest_seconds(work: Callable[[], Any]) -> float:
    """Of some calls, after one that may compile: whatever else the machine does only adds."""
    jax.block_until_ready(work())
    times: list[float] = []
    while len(times) < TIMED_UPDATES and sum(times) < TIMED_SECONDS:
        before = time.perf_counter()
        jax.block_until_ready(work())
        times.append(time.perf_counter() - before)
    return min(times)


def batches_of(env: Any, settings: Any) -> Batches:
    """The source for what a session has: a JAX environment, or where others come from."""
    if hasattr(env, "step"):
        return FusedBatches(env)
    from trimtab.lab.host_batches import HostBatches

    return HostBatches(env, settings)
