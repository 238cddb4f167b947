"""Settings of a run that change what an environment is: repeated actions, and shorter episodes.

Each wrapper is a ``JaxEnv`` around another; equality and hash are those of identity.
"""

import dataclasses
from typing import Any, NamedTuple, final

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.extend.core import Literal

from trimtab.envs.spec_changes import limited, repeated
from trimtab.spaces import EnvSpec, zeros
from trimtab.types import Action, EnvState, JaxEnv, Observation, Transition


def wrapped(env: JaxEnv, action_repeat: int, max_episode_steps: int | None) -> JaxEnv:
    """The environment as the settings of a run want it; itself where they change nothing."""
    if action_repeat > 1:
        env = RepeatedActions(env, action_repeat)
    if max_episode_steps is not None:
        env = TimeLimit.of(env, max_episode_steps)
    return env


@final
@dataclasses.dataclass(frozen=True, eq=False)
class RepeatedActions:
    """Each action is taken ``times`` times, or until the episode ends; rewards are added up.

    To the policy that is one step, and so it is to everything that counts steps. The inner steps
    have random numbers of their own.
    """

    inner: JaxEnv
    times: int

    @property
    def spec(self) -> EnvSpec:
        return repeated(self.inner.spec, self.times)

    def reset(self, key: Array) -> tuple[EnvState, Observation]:
        return self.inner.reset(key)

    def step(self, key: Array, state: EnvState, action: Action) -> tuple[EnvState, Transition]:
        first = self.inner.step(jax.random.fold_in(key, 0), state, action)

        def once_more(
            carry: tuple[EnvState, Transition], number: Array
        ) -> tuple[tuple[EnvState, Transition], None]:
            state, so_far = carry
            going = ~(so_far.terminated | so_far.truncated)
            after, step = self.inner.step(jax.random.fold_in(key, number), state, action)
            step = step._replace(reward=so_far.reward + step.reward)
            return jax.tree.map(
                lambda new, old: jnp.where(going, new, old), (after, step), (state, so_far)
            ), None

        numbers = jnp.arange(1, self.times, dtype=jnp.int32)
        return lax.scan(once_more, first, numbers)[0]


class Clocked(NamedTuple):
    """A state, and the steps that its episode has taken."""

    inner: EnvState
    time: Array


@final
@dataclasses.dataclass(frozen=True, eq=False)
class TimeLimit:
    """Episodes are truncated after ``limit`` steps; what terminates there has terminated.

    What counts as solved is not known for shorter episodes.
    """

    inner: JaxEnv
    limit: int

    @staticmethod
    def of(env: JaxEnv, limit: int) -> "TimeLimit":
        limited(env.spec, limit)  # refuses a limit without effect
        return TimeLimit(env, limit)

    @property
    def spec(self) -> EnvSpec:
        return limited(self.inner.spec, self.limit)

    def reset(self, key: Array) -> tuple[Clocked, Observation]:
        state, obs = self.inner.reset(key)
        return Clocked(state, jnp.int32(0)), obs

    def step(self, key: Array, state: Clocked, action: Any) -> tuple[Clocked, Transition]:
        inner, after = self.inner.step(key, state.inner, action)
        time = state.time + jnp.int32(1)
        over = (time >= self.limit) & ~after.terminated
        return Clocked(inner, time), after._replace(truncated=after.truncated | over)


# ------------------------------------------------------------------------------ staggered starts


def has_fixed_length(env: JaxEnv) -> bool:
    """Whether only the clock ends episodes: ``terminated`` depends on nothing at all.

    Found by tracing a step, as a compiler would find it.
    """
    if env.spec.max_episode_steps is None:
        return False
    while isinstance(env, RepeatedActions | TimeLimit):  # which terminate where the inner one does
        env = env.inner
    key = jax.eval_shape(lambda: jax.random.key(0))
    state, _ = jax.eval_shape(env.reset, key)
    action = zeros(env.spec.action)
    step = jax.make_jaxpr(lambda *given: env.step(*given)[1].terminated)(key, state, action).jaxpr
    varying = set(step.invars)
    for equation in step.eqns:
        if any(given in varying for given in equation.invars if not isinstance(given, Literal)):
            varying.update(equation.outvars)
    (out,) = step.outvars
    return isinstance(out, Literal) or out not in varying


def first_cuts(env: JaxEnv, lanes: Array, num_envs: int) -> Array:
    """How long the first episode of each lane may be, so that lanes do not truncate in phase.

    Lane i of N is cut after L − ⌊i L / N⌋ of its L steps. It is a clock that runs out early, and
    not a state that is advanced: every step is one that the agent made, from a first state that
    the environment gave, and what follows the cut is bootstrapped. So it is right for any
    environment, one that is Markov only together with its clock among them.
    """
    longest = env.spec.max_episode_steps
    assert longest is not None
    return longest - (lanes * longest) // num_envs
