"""Gymnax environments, without their auto-reset.

Gymnax's ``step`` resets a finished lane by itself; the collector does that in trimtab, because
only there is the true successor kept. So the adapter calls the parts under ``step``:
``step_env``, ``is_truncated`` and ``reset_env``.

Gymnax states mix Python numbers, weakly typed arrays and differing dtypes, so that a program
traced for a reset's state would be traced again for a step's. Here both answer with the same
strongly typed leaves: float32, int32 or bool. Its code relies on implicit promotion of dtypes,
which stays allowed inside it and nowhere else.
"""

import dataclasses
import inspect
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.envs.corrections import CORRECTIONS, HIGHEST_OBSERVED
from trimtab.envs.light_import import import_gymnax
from trimtab.envs.registry import entry_of
from trimtab.errors import (
    EnvironmentFaultError,
    SettingError,
    UnsupportedSpaceError,
    did_you_mean,
)
from trimtab.spaces import Box, Discrete, EnvSpec, Space, zeros
from trimtab.types import EnvState, Observation, Transition

# Gymnax has no infinity in its bounds: the largest float32 stands for it.
_UNBOUNDED = float(np.finfo(np.float32).max)

# DeepSea overrides ``step`` only to carry its tallies of bad episodes over an auto-reset. Nobody
# here reads them; its dynamics are in ``step_env`` as everywhere.
_STEP_KEEPS_TALLIES_ONLY = frozenset({"DeepSea"})


def canonical_dtype(*dtypes: Any) -> Any:
    """The dtype that a leaf keeps: float32, int32 or bool; keys and unsigned integers stay."""
    if any(jnp.issubdtype(dtype, jax.dtypes.prng_key) for dtype in dtypes):
        return dtypes[0]
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


def cast_to_space(value: Any, space: Space) -> Array:
    """An observation or an action in the dtype and the shape of its space."""
    example = zeros(space)
    return cast(value, example.dtype).reshape(example.shape)


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
        """The gymnax environment of that id; options go to its constructor or its parameters.

        ``max_episode_steps`` is its ``max_steps_in_episode``, by the name it has elsewhere.
        """
        factory = import_gymnax().registration._registry[env_id]
        accepted = set(inspect.signature(factory).parameters)
        with jax.numpy_dtype_promotion("standard"):
            environment = factory(**{k: v for k, v in options.items() if k in accepted})
            params = environment.default_params
        renamed = {"max_steps_in_episode": "max_episode_steps"}
        fields = {field.name for field in dataclasses.fields(params)}
        known = sorted(accepted | {renamed.get(name, name) for name in fields})
        for name in options:
            if name not in known:
                raise SettingError(
                    f"{env_id} has no option {name!r}.{did_you_mean(name, known)} "
                    f"It has {', '.join(known)}."
                )
        changes = {k: v for k, v in options.items() if k not in accepted}
        if "max_episode_steps" in changes:
            changes["max_steps_in_episode"] = changes.pop("max_episode_steps")
        env = GymnaxEnv.of(environment, params.replace(**changes), env_id)
        entry = entry_of(env_id)
        if options or entry is None:  # another task: the mark for "solved" is not known to fit it
            return env
        spec = dataclasses.replace(env.spec, solved_at=entry.solved_at)
        return dataclasses.replace(env, spec=spec)

    @staticmethod
    def of(environment: Any, params: Any = None, env_id: str = "") -> "GymnaxEnv":
        """Adapt a gymnax environment object, registered or not."""
        base = import_gymnax().environments.environment.Environment
        if not isinstance(environment, base):
            raise EnvironmentFaultError(
                f"A {type(environment).__name__} is not a gymnax environment: expected an instance "
                "of gymnax.environments.environment.Environment, without wrappers."
            )
        env_id = env_id or environment.name
        own_step = type(environment).step is not base.step
        if own_step and type(environment).__name__ not in _STEP_KEEPS_TALLIES_ONLY:
            raise EnvironmentFaultError(
                f"{env_id}: {type(environment).__name__} overrides step(), but trimtab calls "
                "step_env(), is_truncated() and reset_env(). Move the dynamics to step_env()."
            )
        with jax.numpy_dtype_promotion("standard"):
            params = environment.default_params if params is None else params
            observation = environment.observation_space(params)
            action = environment.action_space(params)
        seen = space_from_gymnax(env_id, "observation", observation)
        highest = HIGHEST_OBSERVED.get(type(environment).__name__)
        if highest is not None and isinstance(seen, Box):
            seen = dataclasses.replace(seen, high=(highest,))
        spec = EnvSpec(
            id=env_id,
            observation=seen,
            action=space_from_gymnax(env_id, "action", action),
            max_episode_steps=int(params.max_steps_in_episode),
        )
        return GymnaxEnv(spec, environment, params, _state_dtypes(environment, params, spec))

    def reset(self, key: Array) -> tuple[EnvState, Observation]:
        """The first state and observation of an episode."""
        with jax.numpy_dtype_promotion("standard"):
            obs, state = self.environment.reset_env(key, self.params)
        return self._canonical_state(state), cast_to_space(obs, self.spec.observation)

    def step(self, key: Array, state: EnvState, action: Any) -> tuple[EnvState, Transition]:
        """One transition, with no reset after an end.

        If the task ends as the clock does, terminated wins: nothing is bootstrapped from beyond it.
        """
        action = cast_to_space(action, self.spec.action)
        correct = CORRECTIONS.get(type(self.environment).__name__)
        with jax.numpy_dtype_promotion("standard"):
            obs, state, reward, terminated, _ = self.environment.step_env(
                key, state, action, self.params
            )
            if correct is not None:
                state = correct(self.params, state)
                obs = self.environment.observe(key, state, action, self.params)
            truncated = self.environment.is_truncated(state, self.params)
        terminated = cast(terminated, jnp.bool_).reshape(())
        truncated = cast(truncated, jnp.bool_).reshape(()) & ~terminated
        return self._canonical_state(state), Transition(
            obs=cast_to_space(obs, self.spec.observation),
            reward=cast(reward, jnp.float32).reshape(()),
            terminated=terminated,
            truncated=truncated,
        )

    def _canonical_state(self, state: Any) -> Any:
        leaves, treedef = jax.tree.flatten(state)
        return treedef.unflatten(map(cast, leaves, self.state_dtypes))


def _state_dtypes(environment: Any, params: Any, spec: EnvSpec) -> tuple[Any, ...]:
    """For each leaf of the state, the dtype that holds what a reset and what a step give."""

    def reset(key: Array) -> Any:
        return environment.reset_env(key, params)[1]

    def step(key: Array, state: Any) -> Any:
        return environment.step_env(key, state, zeros(spec.action), params)[1]

    with jax.numpy_dtype_promotion("standard"):
        key = jax.eval_shape(lambda: jax.random.key(0))  # its shape alone: nothing is compiled
        first = jax.eval_shape(reset, key)
        second = jax.eval_shape(step, key, first)
    befores, afters = jax.tree.leaves(first), jax.tree.leaves(second)
    same_tree = jax.tree.structure(first) == jax.tree.structure(second)
    if not same_tree or [x.shape for x in befores] != [x.shape for x in afters]:
        raise EnvironmentFaultError(
            f"{spec.id}: reset_env() and step_env() must give states of the same structure and "
            f"shapes, but they give {first} and {second}."
        )
    return tuple(
        canonical_dtype(before.dtype, after.dtype)
        for before, after in zip(befores, afters, strict=True)
    )
