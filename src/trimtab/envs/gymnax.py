"""Gymnax environments, without their auto-reset.

Gymnax's ``step`` resets a finished lane by itself; the collector does that in trimtab, because
only there is the true successor kept. So the adapter calls the parts under ``step``:
``step_env``, ``is_truncated`` and ``reset_env``.

Gymnax states mix Python numbers, weakly typed arrays and differing dtypes, so that a program
traced for a reset's state would be traced again for a step's. Here both answer with the same
strongly typed leaves: float32, int32 or bool.
"""

import dataclasses
import inspect
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.envs.light_import import import_gymnax
from trimtab.envs.registry import list_environments
from trimtab.errors import (
    EnvironmentFaultError,
    SettingError,
    UnsupportedSpaceError,
    did_you_mean,
)
from trimtab.spaces import Box, Discrete, EnvSpec, Space
from trimtab.types import EnvState, Observation, Transition

# Gymnax has no infinity in its bounds: the largest float32 stands for it.
_UNBOUNDED = float(np.finfo(np.float32).max)

# These override ``step`` only to keep tallies over resets; their ``step_env`` is the dynamics.
_STEP_KEEPS_TALLIES_ONLY = frozenset({"DeepSea"})


def canonical_dtype(*dtypes: Any) -> Any:
    """The dtype that a leaf keeps: float32, int32 or bool; keys and unsigned integers stay."""
    with jax.numpy_dtype_promotion("standard"):
        dtype = jnp.result_type(*dtypes)
    if jnp.issubdtype(dtype, jnp.floating):
        return jnp.dtype(jnp.float32)
    if jnp.issubdtype(dtype, jnp.signedinteger):
        return jnp.dtype(jnp.int32)
    return dtype


def cast(leaf: Any, dtype: Any) -> Array:
    """``leaf`` as a strongly typed array of ``dtype``; a typed key is left alone."""
    if jnp.issubdtype(dtype, jax.dtypes.prng_key):
        return leaf
    # asarray alone keeps a weak type that is of the right dtype already.
    return jax.lax.convert_element_type(jnp.asarray(leaf), dtype)


def space_from_gymnax(env_id: str, role: str, space: Any) -> Space:
    """A gymnax space as ours, or an error that names the environment and the space."""
    kind = type(space).__name__
    if kind == "Discrete":
        return Discrete(int(space.n))
    if kind == "Box":
        shape = tuple(int(size) for size in np.atleast_1d(np.asarray(space.shape, int)))
        low, high = (np.asarray(bound, np.float64) for bound in (space.low, space.high))
        low = np.where(low <= -_UNBOUNDED, -np.inf, low)
        high = np.where(high >= _UNBOUNDED, np.inf, high)
        return Box.of(low, high, shape)
    raise UnsupportedSpaceError(
        f"{env_id}: its {role} space is {space!r}; trimtab supports Discrete and Box. "
        "Wrap the environment so that it flattens the space, or choose another environment."
    )


@final
@dataclasses.dataclass(frozen=True, eq=False)
class GymnaxEnv:
    """One gymnax environment as a trimtab ``JaxEnv``; make it with ``make`` or ``of``.

    Equality and hash are those of identity, so that it can be static in a compiled program.
    """

    spec: EnvSpec
    environment: Any  # gymnax.environments.environment.Environment
    params: Any  # its EnvParams
    state_dtypes: tuple[Any, ...]  # of the state's leaves, in the order of jax.tree.leaves

    @staticmethod
    def make(env_id: str, **options: Any) -> "GymnaxEnv":
        """The gymnax environment of that id; options go to its constructor or its parameters."""
        registration = import_gymnax().registration
        factory = registration._registry[env_id]
        accepted = set(inspect.signature(factory).parameters)
        environment = factory(**{k: v for k, v in options.items() if k in accepted})
        fields = {field.name for field in dataclasses.fields(environment.default_params)}
        changes = {k: v for k, v in options.items() if k not in accepted}
        for name in changes:
            if name not in fields:
                known = sorted(accepted | fields)
                raise SettingError(
                    f"{env_id} has no option {name!r}.{did_you_mean(name, known)} "
                    f"It has: {', '.join(known)}."
                )
        return GymnaxEnv.of(environment, environment.default_params.replace(**changes), env_id)

    @staticmethod
    def of(environment: Any, params: Any = None, env_id: str | None = None) -> "GymnaxEnv":
        """Adapt a gymnax environment object, registered or not."""
        params = environment.default_params if params is None else params
        env_id = environment.name if env_id is None else env_id
        base = next(c for c in type(environment).__mro__ if c.__name__ == "Environment")
        own_step = type(environment).step is not base.step
        if own_step and type(environment).__name__ not in _STEP_KEEPS_TALLIES_ONLY:
            raise EnvironmentFaultError(
                f"{env_id}: {type(environment).__name__} overrides step(), but trimtab calls "
                "step_env(), is_truncated() and reset_env(). Move the dynamics to step_env()."
            )
        spec = EnvSpec(
            id=env_id,
            observation=space_from_gymnax(
                env_id, "observation", environment.observation_space(params)
            ),
            action=space_from_gymnax(env_id, "action", environment.action_space(params)),
            max_episode_steps=int(params.max_steps_in_episode),
            solved_at=_solved_at(env_id),
        )
        return GymnaxEnv(spec, environment, params, _state_dtypes(environment, params, spec))

    def reset(self, key: Array) -> tuple[EnvState, Observation]:
        """The first state and observation of an episode."""
        with jax.numpy_dtype_promotion("standard"):
            obs, state = self.environment.reset_env(key, self.params)
        return self._canonical_state(state), self._canonical_obs(obs)

    def step(self, key: Array, state: EnvState, action: Any) -> tuple[EnvState, Transition]:
        """One transition, with no reset after an end. If both ends fall together, terminated
        wins, so that nothing is bootstrapped from beyond a terminal state.
        """
        with jax.numpy_dtype_promotion("standard"):
            obs, state, reward, terminated, _ = self.environment.step_env(
                key, state, _canonical_action(self.spec.action, action), self.params
            )
            truncated = self.environment.is_truncated(state, self.params)
        terminated = cast(terminated, jnp.bool_).reshape(())
        truncated = cast(truncated, jnp.bool_).reshape(()) & ~terminated
        return self._canonical_state(state), Transition(
            obs=self._canonical_obs(obs),
            reward=cast(reward, jnp.float32).reshape(()),
            terminated=terminated,
            truncated=truncated,
        )

    def _canonical_state(self, state: Any) -> Any:
        leaves, treedef = jax.tree.flatten(state)
        return treedef.unflatten(map(cast, leaves, self.state_dtypes))

    def _canonical_obs(self, obs: Any) -> Array:
        space = self.spec.observation
        dtype = jnp.int32 if isinstance(space, Discrete) else jnp.float32
        return cast(obs, dtype).reshape(space.shape)


def _canonical_action(space: Space, action: Any) -> Array:
    dtype = jnp.int32 if isinstance(space, Discrete) else jnp.float32
    return cast(action, dtype).reshape(space.shape)


def _solved_at(env_id: str) -> float | None:
    return next((e.solved_at for e in list_environments() if e.id == env_id), None)


def _state_dtypes(environment: Any, params: Any, spec: EnvSpec) -> tuple[Any, ...]:
    """For each leaf of the state, the dtype that holds what a reset and what a step give."""
    key = jax.random.key(0)
    action = _canonical_action(spec.action, np.zeros(spec.action.shape))

    def step(key: Array, state: Any) -> Any:
        return environment.step_env(key, state, action, params)[1]

    with jax.numpy_dtype_promotion("standard"):
        first = jax.eval_shape(lambda key: environment.reset_env(key, params)[1], key)
        second = jax.eval_shape(step, key, first)
    if jax.tree.structure(first) != jax.tree.structure(second) or [
        leaf.shape for leaf in jax.tree.leaves(first)
    ] != [leaf.shape for leaf in jax.tree.leaves(second)]:
        raise EnvironmentFaultError(
            f"{spec.id}: reset_env() and step_env() give states of different structure or shape: "
            f"{first} and {second}. They must agree."
        )
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return tuple(canonical_dtype(before.dtype, after.dtype) for before, after in leaves)
