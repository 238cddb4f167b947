"""The words that all layers share: a step, a rollout, an environment, an algorithm.

Shapes: T is ``num_steps``, N is ``num_envs``. A JAX environment and an algorithm's ``act`` are
written for one lane; collectors ``vmap`` them over the N lanes.
"""

from typing import Any, NamedTuple, Protocol

from jax import Array

from trimtab.spaces import EnvSpec

Observation = Any
Action = Any
EnvState = Any
Metrics = dict[str, Array]


class Step(NamedTuple):
    """What one transition looks like from outside, after the reset that may have followed it."""

    obs: Observation  # what the policy sees next: the first observation if the episode ended
    reward: Array
    terminated: Array  # the task ended
    truncated: Array  # the clock ended
    next_obs: Observation  # the true successor, before any reset


class Rollout(NamedTuple):
    """The N×T transitions of one update; every leaf is [T, N, ...]. Observations are raw."""

    obs: Observation
    action: Action
    reward: Array
    terminated: Array
    truncated: Array
    next_obs: Observation
    extras: dict[str, Array]  # what the actor noted when it acted, such as the log-probability


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
