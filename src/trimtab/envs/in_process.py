"""Environments in this process, stepped one after another: the quickest way for cheap ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from trimtab.envs.gymnasium_spaces import tree_of
from trimtab.envs.lane_group import LaneBuffers, LaneGroup
from trimtab.envs.state import packed, unpacked
from trimtab.faults import FaultPolicy, LaneFault
from trimtab.spaces import EnvSpec
from trimtab.types import Observation, Step


@final
class InProcessEnv:
    """N Gymnasium environments as a ``HostEnv``; ``make_env`` is called N times."""

    def __init__(self, make_env: Callable[[], Any], num_envs: int, policy: FaultPolicy):
        self.num_envs = num_envs
        self._group = LaneGroup(make_env, range(num_envs), policy)
        self._buffers = LaneBuffers.of(self.spec, num_envs)
        self._group.attach(self._buffers)
        buffers, observation = self._buffers, self.spec.observation
        self._obs = tree_of(observation, buffers.obs)
        next_obs = tree_of(observation, buffers.next_obs)
        # The same arrays are written in every step.
        self._step = Step(
            self._obs, buffers.reward, buffers.terminated, buffers.truncated, next_obs
        )

    @property
    def spec(self) -> EnvSpec:
        return self._group.spec

    @property
    def idle(self) -> np.ndarray | None:
        return self._buffers.idle if self._buffers.idle.any() else None

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Begin an episode in every lane."""
        self._buffers.seed[:] = seeds
        self._group.reset()
        return self._obs

    def step(self, actions: np.ndarray) -> Step:
        """One step of every lane, as ``HostEnv`` says."""
        self._buffers.action[:] = actions
        self._group.step()
        return self._step

    def save_state(self) -> dict[str, np.ndarray]:
        """As ``SavableEnv`` says."""
        states, restarts = self._group.save()
        counts = np.asarray(restarts, np.int64)
        first = self._buffers.seed.copy()
        own = {"restarts": counts, "lane_restarts": counts, "first_seeds": first}
        return {**packed(states), **self._buffers.save(), **own}

    def load_state(self, saved: Mapping[str, np.ndarray]) -> Observation:
        """As ``SavableEnv`` says."""
        self._group.load(unpacked(saved), saved["restarts"].tolist())
        self._buffers.load(saved)
        return self._obs

    def take_faults(self) -> list[LaneFault]:
        """The faults that were mended since the last call."""
        return self._group.take_faults()

    def close(self) -> None:
        self._group.close()
