"""The words that all layers share: a step, a rollout, an environment, an algorithm.

Shapes: T is ``num_steps``, N is ``num_envs``. A JAX environment and an algorithm's ``act`` are
written for one lane; collectors ``vmap`` them over the N lanes.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from jax import Array

from trimtab.faults import LaneFault
from trimtab.ops.across import Across
from trimtab.spaces import EnvSpec

if TYPE_CHECKING:
    import numpy as np

Observation = Any
Action = Any
EnvState = Any
Memory = Any
Actor = Any
Learner = Any
Samples = Any
Metrics = dict[str, Array]


class Step(NamedTuple):
    """What one transition looks like from outside, after the reset that may have followed it.

    Its arrays, and those of a ``Rollout``, are JAX's, or numpy's where an environment is on the
    host.
    """

    obs: Observation  # what the policy sees next: the first observation if the episode ended
    reward: Any
    terminated: Any  # the task ended
    truncated: Any  # the clock ended
    next_obs: Observation  # the true successor, before any reset


class Rollout(NamedTuple):
    """The N×T transitions of one update; leaves are [T, N, ...]. Observations are raw."""

    obs: Observation
    action: Action
    reward: Any
    terminated: Any
    truncated: Any
    next_obs: Observation
    extras: dict[str, Array]  # what the actor noted when it acted, such as the log-probability
    memory: Memory = ()  # what each lane remembered before the first of these steps: [N, ...]

    @classmethod
    def row(
        cls, obs: Observation, action: Action, extras: dict[str, Array], step: Step
    ) -> "Rollout":
        """One step of all lanes; leaves are [N, ...]."""
        ends = step.terminated, step.truncated
        return cls(obs, action, step.reward, *ends, step.next_obs, extras)


class Transition(NamedTuple):
    """What a JAX environment answers to an action; it does not reset itself."""

    obs: Observation
    reward: Array
    terminated: Array
    truncated: Array


class JaxEnv(Protocol):
    """A pure environment for one lane. Resetting after an end is the collector's work."""

    @property
    def spec(self) -> EnvSpec: ...
    def reset(self, key: Array) -> tuple[EnvState, Observation]: ...
    def step(self, key: Array, state: EnvState, action: Action) -> tuple[EnvState, Transition]: ...


class Algorithm(Protocol):
    """Hyperparameters with pure methods; all that changes is in the Learner.

    What a lane remembers from one step to the next is its memory: a recurrent policy's hidden
    state, the discounted return so far; ``()`` where nothing is remembered. Methods about acting
    are for one lane, and callers ``vmap`` them.
    """

    def init(self, key: Array, spec: EnvSpec) -> Learner: ...
    def actor(self, learner: Learner) -> Actor: ...
    def first_memory(self, actor: Actor) -> Memory:
        """The memory at the beginning of an episode."""
        ...

    def noise(self, actor: Actor, key: Array, num_steps: int) -> Array:
        """The random numbers of ``num_steps`` actions."""
        ...

    def act(
        self, actor: Actor, memory: Memory, obs: Observation, noise: Array
    ) -> tuple[Action, dict[str, Array], Memory]:
        """An action, what is to be noted of it, and the memory after it."""
        ...

    def best_action(
        self, actor: Actor, memory: Memory, obs: Observation
    ) -> tuple[Action, Memory]: ...

    def after_step(self, actor: Actor, memory: Memory, reward: Array, ended: Array) -> Memory:
        """The memory once the environment has answered; a new one where the episode ended."""
        ...

    def update(
        self, learner: Learner, rollout: Rollout, key: Array, across: Across = ...
    ) -> tuple[Learner, Metrics]: ...


@runtime_checkable
class HostEnv(Protocol):
    """N environments outside of compiled programs: stateful, numpy in and numpy out.

    ``step`` begins a new episode in each lane whose episode ended, and emits no transition for
    that. Its ``Step`` has numpy leaves: ``reward`` is float32 [N], the flags are bool [N],
    ``truncated`` is False where ``terminated`` is True, and observations are arrays [N, ...], or
    dicts of such. They are the caller's until the next call; no longer, because an environment may
    write the next ones into the same memory.

    ``idle`` is None, or says in which lanes the last step was no transition: a lane whose
    environment was restarted after a fault, or one that its vector environment spent on a reset.
    Such a row is dropped, and its ``obs`` is the first of a new episode. If the lane's episode had
    not ended before, it is lost: its fragment is cut there and counts in no statistics.
    ``take_faults`` tells what was mended in that way since it was last asked.
    """

    @property
    def spec(self) -> EnvSpec: ...
    @property
    def num_envs(self) -> int: ...
    @property
    def idle(self) -> "np.ndarray | None": ...
    def reset(self, seeds: Sequence[int]) -> Observation: ...
    def step(self, actions: "np.ndarray") -> Step: ...
    def take_faults(self) -> list[LaneFault]: ...
    def close(self) -> None: ...


@runtime_checkable
class SavableEnv(Protocol):
    """A ``HostEnv`` whose state can be kept in a checkpoint, so that a resumed run is exact.

    ``save_state`` is called between two steps, and gives arrays by name; it may raise
    ``UnsavableError``. ``load_state`` is called after a ``reset``, and gives the observations that
    the lanes were at.
    """

    def save_state(self) -> "dict[str, np.ndarray]": ...
    def load_state(self, saved: "Mapping[str, np.ndarray]") -> Observation: ...
