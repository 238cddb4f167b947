"""envpool: environments in C++, whose lanes are stepped by threads. An extra.

envpool begins new episodes in NEXT_STEP mode: a lane whose episode ended must be stepped once more,
and that row is no transition. It can also be told to reset some lanes at once, which is what
``Pool`` does, so every row is a transition, as with Gymnasium's environments. Seeds are fixed when
a pool is made: ``Pool`` makes one when it is given seeds, one for each lane, so a lane's stream
does not depend on the number of lanes or threads.
"""

import dataclasses
import functools
import importlib
import importlib.util
import warnings
from collections.abc import Mapping
from typing import Any, final

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from trimtab.envs.gymnasium_spaces import space_of
from trimtab.envs.sources import HostSource
from trimtab.envs.spec_changes import limited
from trimtab.envs.vector import VectorHostEnv
from trimtab.errors import SettingError, UnknownEnvironmentError, did_you_mean
from trimtab.faults import FaultPolicy
from trimtab.spaces import EnvSpec

# These belong to a run, which has settings for them.
_OF_THE_RUN = {
    "num_envs": "--num-envs",
    "batch_size": "",
    "seed": "--seed",
    "env_seed": "--seed",
    "env_type": "",
    "gym_reset_return_info": "",
}
# Options that change what is learned from, and not what is to be achieved: evaluations play whole
# games and count their score.
_FOR_LEARNING = {"episodic_life": False, "reward_clip": False}


def is_installed() -> bool:
    return importlib.util.find_spec("envpool") is not None


def environment_ids() -> list[str]:
    """The ids that the installed envpool knows."""
    return sorted(_envpool().list_all_envs())


@functools.cache
def _envpool() -> Any:
    if not is_installed():
        raise UnknownEnvironmentError(
            "The backend envpool is not installed. Its packages come with: "
            "pip install 'trimtab[envpool]'"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the libraries that it brings
        return importlib.import_module("envpool")


@final
@dataclasses.dataclass(frozen=True)
class PoolMaker:
    """Makes lanes of one of envpool's environments."""

    id: str
    options: Mapping[str, Any]

    def __call__(self, lanes: int, policy: FaultPolicy) -> VectorHostEnv:
        return VectorHostEnv(Pool(self.id, lanes, self.options), policy, self.id)


def source_of_pool(env_id: str, options: Mapping[str, Any]) -> HostSource:
    """The source of an environment of envpool, with envpool's own options."""
    for name in options:
        if name in _OF_THE_RUN:
            flag = _OF_THE_RUN[name]
            instead = f": give {flag}" if flag else ""
            raise SettingError(f"{env_id}: {name} is no option of the environment{instead}.")
    told = _specification(env_id, options)
    evaluated = {**options, **{k: v for k, v in _FOR_LEARNING.items() if k in told.config._fields}}
    evaluation = None
    if any(getattr(told.config, name) != value for name, value in evaluated.items()):
        evaluation = _source(env_id, evaluated)
    return dataclasses.replace(_source(env_id, options), evaluation=evaluation)


def limited_pool(source: HostSource, maker: PoolMaker, limit: int) -> HostSource:
    """The same with shorter episodes, which is an option of envpool's."""
    shorter = source_of_pool(maker.id, {**maker.options, "max_episode_steps": limit})
    return dataclasses.replace(shorter, spec=limited(source.spec, limit))


def _source(env_id: str, options: Mapping[str, Any]) -> HostSource:
    told = _specification(env_id, options)
    config = told.config
    observation, action = _spaces(told)
    spec = EnvSpec(
        id=env_id,
        observation=space_of(env_id, "observation", observation),
        action=space_of(env_id, "action", action),
        max_episode_steps=config.max_episode_steps,
        solved_at=getattr(config, "reward_threshold", None),
    )
    return HostSource(spec, make_host=PoolMaker(env_id, dict(options)))


def _specification(env_id: str, options: Mapping[str, Any]) -> Any:
    """What envpool says of an environment, before any lane is made."""
    envpool = _envpool()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return envpool.make_spec(env_id, **options)
        except Exception as error:
            known = getattr(envpool.make_spec(env_id).config, "_fields", ())
            known = [name for name in known if name not in _OF_THE_RUN]
            for name in options:
                if name not in known:
                    raise SettingError(
                        f"envpool's {env_id} has no option {name!r}.{did_you_mean(name, known)} "
                        f"Its options are {', '.join(known)}."
                    ) from None
            first = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SettingError(
                f"envpool's {env_id} refused the options {dict(options)}: {first}"
            ) from None


def _spaces(told: Any) -> tuple[Any, Any]:
    """Of observations and actions, without the warnings that making them causes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return told.gymnasium_observation_space, told.gymnasium_action_space


@final
class Pool(VectorEnv):
    """Lanes of envpool, in DISABLED mode: who asks resets the lanes whose episodes ended."""

    seeded_by_lane = True

    def __init__(self, env_id: str, lanes: int, options: Mapping[str, Any]):
        told = _specification(env_id, options)
        self.metadata = {"autoreset_mode": AutoresetMode.DISABLED}
        self.num_envs = lanes
        self.single_observation_space, self.single_action_space = _spaces(told)
        self.observation_space = batch_space(self.single_observation_space, lanes)
        self.action_space = batch_space(self.single_action_space, lanes)
        self._id, self._options = env_id, dict(options)
        self._pool: Any = None

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> Any:
        """All lanes, on these seeds; or those of ``options["reset_mask"]``, as they go on."""
        if options is None:
            self.close()
            self._pool = self._made([int(one) for one in seed])
            return self._pool.reset()
        lanes = np.flatnonzero(options["reset_mask"]).astype(np.int32)
        obs, info = self._pool.reset(lanes)
        return _spread(obs, info["env_id"], self.num_envs), {}

    def step(self, actions: Any) -> Any:
        return self._pool.step(actions)

    def close(self, **_: Any) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def _made(self, seeds: list[int]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pool = _envpool().make(
                self._id,
                env_type="gymnasium",
                num_envs=self.num_envs,
                env_seed=seeds,
                **self._options,
            )
            _ = pool.observation_space  # it makes them when they are first needed, and warns
        return pool


def _spread(part: Any, lanes: np.ndarray, num_envs: int) -> Any:
    """Some lanes' observations, each in its lane's row of arrays for all lanes."""
    if isinstance(part, dict):
        return {key: _spread(value, lanes, num_envs) for key, value in part.items()}
    whole = np.zeros((num_envs, *part.shape[1:]), part.dtype)
    whole[lanes] = part
    return whole
