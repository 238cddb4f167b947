"""Gymnasium's vector environments as one ``HostEnv``, whichever way they begin new episodes.

| mode | in a step that ends an episode | here |
|---|---|---|
| SAME_STEP | ``obs`` is the reset's; the successor is ``final_obs`` in the infos | put apart |
| DISABLED | ``obs`` is the successor | those lanes are reset at once, by a reset mask |
| NEXT_STEP | ``obs`` is the successor; the lane's next step is its reset | that row is idle |

Gymnasium's Sync and Async environments understand a reset mask in NEXT_STEP mode too, and then
spend no step on a reset.
"""

import traceback
from collections.abc import Callable, Sequence
from typing import Any, final

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from trimtab.envs.gymnasium_spaces import BadValueError, Border, space_of, tree_of
from trimtab.errors import EnvironmentFaultError
from trimtab.faults import FaultPolicy, LaneFault
from trimtab.spaces import EnvSpec, leaf_spaces, zeros
from trimtab.types import Observation, Step

_SEEDED_BY_LANE = (SyncVectorEnv, AsyncVectorEnv)


def vector_spec(env: VectorEnv, env_id: str = "") -> EnvSpec:
    """What a vector environment says of one of its lanes."""
    told = env.spec
    env_id = env_id or (told.id if told is not None else type(env.unwrapped).__name__)
    return EnvSpec(
        id=env_id,
        observation=space_of(env_id, "observation", env.single_observation_space),
        action=space_of(env_id, "action", env.single_action_space),
        max_episode_steps=told.max_episode_steps if told is not None else None,
        solved_at=told.reward_threshold if told is not None else None,
    )


def autoreset_mode(env: VectorEnv) -> AutoresetMode:
    """How the environment begins new episodes; NEXT_STEP where it does not say, as in Gymnasium.

    Metadata may be shared by all environments of a class, so an attribute of its own comes first.
    """
    own = getattr(env.unwrapped, "autoreset_mode", None)
    told = own if own is not None else env.metadata.get("autoreset_mode")
    return AutoresetMode.NEXT_STEP if told is None else AutoresetMode(told)


@final
class VectorHostEnv:
    """A ``gymnasium.vector.VectorEnv`` as a ``HostEnv``."""

    def __init__(self, env: VectorEnv, policy: FaultPolicy, env_id: str = ""):
        self.spec = vector_spec(env, env_id)
        self.num_envs = int(env.num_envs)
        self._env = env
        self._mode = autoreset_mode(env)
        # Wrappers may keep records of their own about who is to be reset.
        if self._mode is AutoresetMode.NEXT_STEP and isinstance(env, _SEEDED_BY_LANE):
            self._mode = AutoresetMode.DISABLED
        if policy.on_bad_env == "reset" and self._mode is not AutoresetMode.DISABLED:
            raise EnvironmentFaultError(
                f"{self.spec.id}: on_bad_env = reset needs lanes that can be reset one by one, and "
                f"this {type(env).__name__} resets them in {self._mode.name} mode. Give an "
                "environment in place of a vector of them, or on_bad_env = raise."
            )
        self._policy = policy
        self._border = Border(
            self.spec,
            env.single_observation_space,
            env.single_action_space,
            bounds=policy.observation_bounds == "enforce",
        )
        leaves = [zeros(leaf) for _, leaf in leaf_spaces(self.spec.observation)]

        def rows() -> list[np.ndarray]:
            return [np.zeros((self.num_envs, *leaf.shape), leaf.dtype) for leaf in leaves]

        self._obs, self._next_obs = rows(), rows()
        self._ended = np.zeros(self.num_envs, bool)  # what NEXT_STEP resets in the next step
        self._faults: list[LaneFault] = []
        self._steps = 0
        self.idle: np.ndarray | None = None

    def reset(self, seeds: Sequence[int]) -> Observation:
        """Begin an episode in every lane. A native vector has one stream: the first lane's seed."""
        self._ended[:] = False
        self.idle = None
        inner = self._env.unwrapped
        by_lane = isinstance(inner, _SEEDED_BY_LANE) or getattr(inner, "seeded_by_lane", False)
        given: Any = list(seeds) if by_lane else seeds[0]
        obs, _ = self._call("reset()", lambda: self._env.reset(seed=given))
        self._write(self._obs, obs)
        return tree_of(self.spec.observation, self._obs)

    def step(self, actions: np.ndarray) -> Step:
        """One step of every lane, as ``HostEnv`` says."""
        self._steps += 1
        given = self._border.actions(actions)
        obs, reward, terminated, truncated, infos = self._call(
            "step()", lambda: self._env.step(given)
        )
        self._write(self._next_obs, obs)
        with np.errstate(over="ignore"):
            reward = np.asarray(reward).astype(np.float32)
        terminated = np.array(terminated, bool)
        truncated = np.asarray(truncated, bool) & ~terminated
        ended = terminated | truncated
        idle = np.zeros(self.num_envs, bool)
        if self._mode is AutoresetMode.NEXT_STEP:
            idle, self._ended = self._ended, ended & ~self._ended
        for shown, led_to in zip(self._obs, self._next_obs, strict=True):
            shown[:] = led_to
        if self._mode is AutoresetMode.SAME_STEP and ended.any():
            self._put_successors(ended, infos)
        idle = self._without_faults(reward, idle)
        for array in (reward, terminated, truncated):
            array[idle] = 0
        if self._mode is AutoresetMode.DISABLED and (ended & ~idle).any():
            self._reset_lanes(ended & ~idle)
        self.idle = idle if idle.any() else None
        return Step(
            tree_of(self.spec.observation, self._obs),
            reward,
            terminated,
            truncated,
            tree_of(self.spec.observation, self._next_obs),
        )

    def take_faults(self) -> list[LaneFault]:
        """The faults that were mended since the last call."""
        faults, self._faults = self._faults, []
        return faults

    def close(self) -> None:
        self._env.close()

    def _put_successors(self, ended: np.ndarray, infos: dict[str, Any]) -> None:
        """``obs`` came from resets already: the true successors go into ``next_obs``."""
        if "final_obs" not in infos:
            raise EnvironmentFaultError(
                f"{self.spec.id}: this {type(self._env).__name__} says that it resets in the same "
                "step (SAME_STEP), but its infos hold no final_obs, without which the successor "
                "is lost. Put it there, or set metadata['autoreset_mode'] to what it does."
            )
        for lane in np.flatnonzero(ended).tolist():
            self._write_lane(self._next_obs, lane, _of_lane(infos["final_obs"], lane))

    def _reset_lanes(self, lanes: np.ndarray) -> None:
        options = {"reset_mask": lanes}
        obs, _ = self._call("reset()", lambda: self._env.reset(options=options))
        for lane in np.flatnonzero(lanes).tolist():
            self._write_lane(self._obs, lane, _of_lane(obs, lane))
            if words := self._border.complaint(self._obs, lane):
                raise self._fault(lane, f"{words} It came from reset().").error()

    def _write(self, rows: list[np.ndarray], obs: Any) -> None:
        if self._border.write_all(rows, obs):
            return
        for lane in range(self.num_envs):
            self._write_lane(rows, lane, _of_lane(obs, lane))

    def _write_lane(self, rows: list[np.ndarray], lane: int, obs: Any) -> None:
        try:
            self._border.write(rows, lane, obs)
        except BadValueError as error:
            raise self._fault(lane, str(error)).error() from None

    def _without_faults(self, reward: np.ndarray, idle: np.ndarray) -> np.ndarray:
        """The idle lanes, and those that gave numbers which cannot be used."""
        if np.isfinite(reward).all() and self._border.in_space(self._next_obs):
            return idle
        broken = np.zeros(self.num_envs, bool)
        for lane in range(self.num_envs):
            words = self._border.complaint(self._next_obs, lane)
            if not np.isfinite(reward[lane]):
                words = f"the reward is {reward[lane]}, which is not a finite float32."
            if words and self._policy.on_bad_env == "raise":
                raise self._fault(lane, words).error()
            if words:
                broken[lane] = True
                self._faults.append(self._fault(lane, words))
        if broken.any():
            self._reset_lanes(broken)
            for shown, led_to in zip(self._obs, self._next_obs, strict=True):
                led_to[broken] = shown[broken]
        return idle | broken

    def _fault(self, lane: int, words: str) -> LaneFault:
        # Which episode it is in only the environment knows: steps are those of the run.
        return LaneFault("bad", self.spec.id, lane, 0, self._steps, words)

    def _call(self, what: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except Exception as error:
            raise EnvironmentFaultError(
                f"{self.spec.id}: {what} of the {type(self._env).__name__} raised "
                f"{type(error).__name__}: {error}\n\n{traceback.format_exc()}"
            ) from error


def _of_lane(batch: Any, lane: int) -> Any:
    """One lane's part of a batched observation."""
    if isinstance(batch, dict):
        return {key: _of_lane(part, lane) for key, part in batch.items()}
    if isinstance(batch, tuple):
        return tuple(_of_lane(part, lane) for part in batch)
    return batch[lane]
