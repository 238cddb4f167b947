"""A JAX environment as a ``HostEnv``: for tools that look at environments of either kind."""

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.collect.episodes import Finished, Lanes, step_lanes
from trimtab.envs.gymnasium_spaces import complaint_of
from trimtab.faults import LaneFault
from trimtab.spaces import Box, EnvSpec
from trimtab.types import Action, EnvState, JaxEnv, Observation, Step, Transition


@final
class JaxLanes:
    """N lanes of a JAX environment, stepped by one compiled call a step.

    Actions are as the environment takes them. Ends of episodes are the fused collector's
    (``step_lanes``). What is not finite, or not in its space, is told as a fault.
    """

    def __init__(self, env: JaxEnv, num_envs: int):
        self.spec: EnvSpec = env.spec
        self.num_envs = num_envs
        self.idle: np.ndarray | None = None
        self._env = _Verbatim(env)
        self._begin, self._advance = jax.jit(self._begin_program), jax.jit(self._step_program)
        self._faults: list[LaneFault] = []

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Begin an episode in every lane; a lane's seed names all of its random numbers."""
        self._keys = jnp.stack([jax.random.key(seed) for seed in seeds])
        self._time = 0
        self._lanes = self._begin(self._keys)
        obs = jax.tree.map(np.asarray, self._lanes.obs)
        self._look(obs, np.zeros(self.num_envs))
        return obs

    def step(self, actions: np.ndarray) -> Step:
        """One step of every lane, as ``HostEnv`` says."""
        self._time += 1
        given = np.asarray(actions)
        self._lanes, step = self._advance(self._lanes, given, self._keys, np.int32(self._time))
        step = jax.tree.map(np.asarray, step)
        self._look(step.next_obs, step.reward)
        return step

    def take_faults(self) -> list[LaneFault]:
        """Numbers that are not what the space promises, since the last call. None is mended."""
        faults, self._faults = self._faults, []
        return faults

    def close(self) -> None:
        """There is nothing to close."""

    def _begin_program(self, keys: Array) -> Lanes:
        state, obs = jax.vmap(self._env.reset)(keys)
        zeros = jnp.zeros(self.num_envs)
        index = jnp.arange(self.num_envs, dtype=jnp.int32)
        length = zeros.astype(jnp.int32)
        return Lanes(index, state, obs, (), zeros, length, Finished.none(self.num_envs))

    def _step_program(
        self, lanes: Lanes, actions: Array, keys: Array, time: Array
    ) -> tuple[Lanes, Step]:
        streams = [jax.vmap(lambda key, n=n: jax.random.fold_in(key, n))(keys) for n in (1, 2)]
        step_keys = jax.vmap(lambda key: jax.random.fold_in(key, time))(streams[0])
        return step_lanes(self._env, lanes, actions, step_keys, streams[1], time)

    def _look(self, observation: Any, reward: Any) -> None:
        rows = jax.tree.leaves(observation)
        for lane in range(self.num_envs):
            words = complaint_of(self.spec.observation, rows, lane)
            if not np.isfinite(reward[lane]):
                words = f"the reward is {reward[lane]}, which is not a finite float32."
            if words:
                self._faults.append(LaneFault("bad", self.spec.id, lane, 0, self._time, words))


@final
@dataclasses.dataclass(frozen=True, eq=False)
class _Verbatim:
    """An environment whose actions are its own already, so that none is scaled once more."""

    inner: JaxEnv

    @property
    def spec(self) -> EnvSpec:
        spec = self.inner.spec
        if not isinstance(spec.action, Box):
            return spec
        return dataclasses.replace(spec, action=Box(spec.action.shape, dtype=spec.action.dtype))

    def reset(self, key: Array) -> tuple[EnvState, Observation]:
        return self.inner.reset(key)

    def step(self, key: Array, state: EnvState, action: Action) -> tuple[EnvState, Transition]:
        return self.inner.step(key, state, action)
