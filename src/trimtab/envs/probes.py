"""Five probe environments: so small that what an agent must learn can be written down.

Each asks for one more ability than the one before (after Andy Jones, "Debugging reinforcement
learning systems"), so the first that an algorithm fails names the part that is broken.

| probe | alias | what happens | optimal values |
|---|---|---|---|
| Probe1-v0 | ConstantReward | obs 0, one action, reward 1, end | V(0) = 1 |
| Probe2-v0 | RewardFromObservation | obs ±1, one action, reward = obs, end | V(o) = o |
| Probe3-v0 | DelayedReward | obs 0, reward 0; then obs 1, reward 1, end | V(0) = γ, V(1) = 1 |
| Probe4-v0 | RewardFromAction | obs 0, reward = the action, 0 or 1, end | V(0) = 1, by action 1 |
| Probe5-v0 | RewardFromBoth | obs ±1, reward 1 if the action fits it, else −1, end | V(o) = 1 |

They test, in order: the value loss; that values depend on observations; discounting; the policy
gradient; and all of it together. In Probe5, action 1 fits obs +1 and action 0 fits obs −1. All end
by termination: the value of the last observation must not count.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.envs.registry import entry_of
from trimtab.errors import SettingError
from trimtab.spaces import Box, Discrete, EnvSpec
from trimtab.types import Transition


class ProbeState(NamedTuple):
    """The observation, as a scalar, and how many steps were taken."""

    signal: Array
    time: Array


@final
@dataclasses.dataclass(frozen=True, eq=False)
class ProbeEnv:
    """An episode of ``length`` steps; equality and hash are those of identity."""

    spec: EnvSpec
    length: int
    random_signal: bool  # whether the first observation is −1 or +1 by chance, rather than 0
    reward: Callable[[Array, Array], Array]  # of the signal and the action, both float32
    value: Callable[[float, float], float]  # the optimal V of an observation and of γ

    def reset(self, key: Array) -> tuple[ProbeState, Array]:
        """The first state and observation."""
        signal = jnp.zeros((), jnp.float32)
        if self.random_signal:
            signal = jax.random.rademacher(key, (), jnp.float32)
        return ProbeState(signal, jnp.zeros((), jnp.int32)), signal.reshape(1)

    def step(self, key: Array, state: ProbeState, action: Any) -> tuple[ProbeState, Transition]:
        """One transition; the last one terminates."""
        del key
        choice = jnp.asarray(action).reshape(()).astype(jnp.float32)
        time = state.time + jnp.int32(1)
        # Probe3, the only one of two steps, shows 1 once it has shown 0.
        signal = state.signal if self.length == 1 else jnp.ones((), jnp.float32)
        return ProbeState(signal, time), Transition(
            obs=signal.reshape(1),
            reward=self.reward(state.signal, choice),
            terminated=time >= self.length,
            truncated=jnp.zeros((), bool),
        )


class _Probe(NamedTuple):
    actions: int
    length: int
    random_signal: bool
    reward: Callable[[Array, Array], Array]
    value: Callable[[float, float], float]


_PROBES = {
    "Probe1-v0": _Probe(1, 1, False, lambda o, a: jnp.ones_like(o), lambda o, gamma: 1.0),
    "Probe2-v0": _Probe(1, 1, True, lambda o, a: o, lambda o, gamma: o),
    "Probe3-v0": _Probe(1, 2, False, lambda o, a: o, lambda o, gamma: 1.0 if o else gamma),
    "Probe4-v0": _Probe(2, 1, False, lambda o, a: a, lambda o, gamma: 1.0),
    "Probe5-v0": _Probe(2, 1, True, lambda o, a: o * (2.0 * a - 1.0), lambda o, gamma: 1.0),
}


def make_probe(env_id: str, **options: Any) -> ProbeEnv:
    """A probe environment, by its id or its alias; there are no options."""
    if options:
        raise SettingError(f"{env_id} has no options, but was given {', '.join(options)}.")
    entry = entry_of(env_id)
    assert entry is not None  # make() found the id in the same table
    probe = _PROBES[entry.id]
    spec = EnvSpec(
        id=entry.id,
        observation=Box.of(-1.0, 1.0, (1,)),
        action=Discrete(probe.actions),
        max_episode_steps=probe.length,
        solved_at=entry.solved_at,
    )
    return ProbeEnv(spec, *probe[1:])
