"""Where the lanes of a run come from when its environment is not in the compiled program."""

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Literal, final

import gymnasium
from gymnasium.vector import VectorEnv

from trimtab.envs import atari
from trimtab.envs.gymnasium_spaces import spec_of
from trimtab.envs.gymnasium_wrappers import ChangedMaker
from trimtab.envs.lane_group import GymnasiumMaker, name_of
from trimtab.envs.patience import at_most
from trimtab.envs.spec_changes import limited, repeated
from trimtab.envs.vector import vector_spec
from trimtab.errors import SettingError, UnknownEnvironmentError
from trimtab.faults import Deadlines, FaultPolicy
from trimtab.spaces import EnvSpec
from trimtab.types import HostEnv

START_SECONDS = Deadlines().start


@final
@dataclasses.dataclass(frozen=True)
class HostSource:
    """Makes environments, in one of three ways; the other two are None.

    ``make_env()`` makes one of Gymnasium's, ``make_vector(lanes)`` a vector of them, which may have
    another number of lanes, and ``make_host(lanes, policy)`` a ``HostEnv``.
    """

    spec: EnvSpec
    make_env: Callable[[], Any] | None = None
    make_vector: Callable[[int], VectorEnv] | None = None
    make_host: Callable[[int, FaultPolicy], HostEnv] | None = None
    num_envs: int | None = None  # the number of lanes, where it is not to be chosen
    evaluation: "HostSource | None" = None  # where episodes are evaluated, if that is elsewhere


def changed(source: HostSource, action_repeat: int, max_episode_steps: int | None) -> HostSource:
    """The source as the settings of a run want it; itself where they change nothing."""
    if action_repeat == 1 and max_episode_steps is None:
        return source
    if source.make_env is None:
        return _changed_inside(source, action_repeat, max_episode_steps)
    spec = repeated(source.spec, action_repeat)
    if max_episode_steps is not None:
        spec = limited(spec, max_episode_steps)
    maker = ChangedMaker(source.make_env, action_repeat, max_episode_steps)
    return dataclasses.replace(source, spec=spec, make_env=maker)


def _changed_inside(
    source: HostSource, action_repeat: int, max_episode_steps: int | None
) -> HostSource:
    """Of lanes that step themselves: what their own options can do."""
    from trimtab.envs.envpool import PoolMaker, limited_pool

    name = source.spec.id
    if not isinstance(source.make_host, PoolMaker):
        given = "action_repeat" if action_repeat > 1 else "max_episode_steps"
        raise SettingError(
            f"{given}: {name} steps its lanes itself, so it cannot be wrapped. Wrap the "
            "environments inside of it, and leave the setting out."
        )
    if action_repeat > 1:
        raise SettingError(
            f"action_repeat = {action_repeat}: envpool repeats actions itself, in the environments "
            "that have the option: --env-option frame_skip=…"
        )
    assert max_episode_steps is not None
    return limited_pool(source, source.make_host, max_episode_steps)


@final
@dataclasses.dataclass(frozen=True)
class SpecificationMaker:
    """Makes an environment from Gymnasium's own specification of it, wrappers and all."""

    id: str
    specification: Any

    def __call__(self) -> gymnasium.Env:
        return gymnasium.make(copy.deepcopy(self.specification), disable_env_checker=True)


def source_of_id(env_id: str, options: Mapping[str, Any], imports: tuple[str, ...]) -> HostSource:
    """The source of a registered Gymnasium environment; ``imports`` are for worker processes."""
    if env_id.startswith(atari.PREFIX):
        if makers := atari.makers_of(env_id, options):
            learned_from, evaluated = (_source_of_maker(make, env_id) for make in makers)
            return dataclasses.replace(learned_from, evaluation=evaluated)
        options, imports = atari.without_preprocessing(options), (*imports, "ale_py")
    return _source_of_maker(GymnasiumMaker(env_id, dict(options), imports), env_id)


def source_of(env: Any) -> HostSource:
    """The source of whatever a user has: a callable, an environment, or a vector of them."""
    if isinstance(env, VectorEnv):
        return _source_of_vector(env)
    if isinstance(env, gymnasium.Env):
        return _source_of_env(env)
    if callable(env):
        return _source_of_maker(env)
    raise UnknownEnvironmentError(
        "An environment is an id, such as 'CartPole-v1', a callable that makes a gymnasium.Env, a "
        "gymnasium.Env, a gymnasium.vector.VectorEnv, or an object with spec, reset and step; a "
        f"{type(env).__name__} is none of these."
    )


def kind_of(made: Any) -> Literal["env", "vector", ""]:
    """What somebody has made, if it is one of Gymnasium's."""
    if isinstance(made, VectorEnv):
        return "vector"
    return "env" if isinstance(made, gymnasium.Env) else ""


def made_by(make: Callable[[], Any], name: str) -> Any:
    """What ``make`` makes; what Gymnasium has to say against it is said in its words."""
    try:
        return make()
    except gymnasium.error.Error as error:
        raise UnknownEnvironmentError(f"{name} cannot be made: {error}") from error
    except TypeError as error:
        if "unexpected keyword argument" in str(error) and getattr(make, "options", None):
            raise SettingError(f"{name} cannot be made with its options: {error}") from error
        raise


def _source_of_maker(make: Callable[[], Any], env_id: str = "") -> HostSource:
    with at_most(START_SECONDS, f"Making an environment with {env_id or name_of(make)}"):
        made = made_by(make, env_id or name_of(make))
    try:
        if isinstance(made, VectorEnv):
            return HostSource(
                vector_spec(made, env_id),
                make_vector=lambda _: make(),
                num_envs=int(made.num_envs),
            )
        if isinstance(made, gymnasium.Env):
            return HostSource(spec_of(made, env_id), make_env=make)
    finally:
        if hasattr(made, "close"):
            made.close()
    raise UnknownEnvironmentError(
        f"{make!r} made a {type(made).__name__}: expected a gymnasium.Env or a "
        "gymnasium.vector.VectorEnv."
    )


def _source_of_env(env: gymnasium.Env) -> HostSource:
    """More of the same, by its own specification; the one that was given is not used up."""
    told = env.spec
    if told is None:
        raise SettingError(
            f"A {type(env).__name__} that gymnasium.make did not make cannot be made again, and "
            "every lane and every evaluation needs one of its own. Give a callable that makes it, "
            f"such as lambda: {type(env.unwrapped).__name__}(...)."
        )
    return HostSource(spec_of(env), make_env=SpecificationMaker(told.id, copy.deepcopy(told)))


def _source_of_vector(env: VectorEnv) -> HostSource:
    """The vector itself for training; for evaluation another, by its own specification."""
    told = env.unwrapped.spec
    if told is None:
        raise SettingError(
            f"A {type(env).__name__} that gymnasium.make_vec did not make cannot be made again, "
            "and evaluation needs one of its own. Give a callable that makes it."
        )
    given = [env]

    def make(lanes: int) -> VectorEnv:
        return given.pop() if given else gymnasium.make_vec(copy.deepcopy(told))

    return HostSource(vector_spec(env), make_vector=make, num_envs=int(env.num_envs))
