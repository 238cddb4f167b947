"""``make``: an environment from its name.

A name is an id as in Gymnasium, such as ``CartPole-v1``, or the same with the backend that is to
provide it, such as ``gymnax:CartPole-v1``. Nothing here imports JAX or a simulator until the
name is known to be right.
"""

import importlib
import importlib.util
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from trimtab.envs.registry import PLANNED_BACKENDS, EnvEntry, entry_of, list_environments
from trimtab.errors import SettingError, UnknownEnvironmentError, did_you_mean
from trimtab.spaces import EnvSpec

if TYPE_CHECKING:
    from trimtab.envs.sources import HostSource
    from trimtab.types import JaxEnv

GYMNASIUM, ENVPOOL = "gymnasium", "envpool"
# Where the code of JAX environments is, by backend.
_CODE = {"gymnax": ("gymnax",), "tabular": ("gymnasium.envs.toy_text",), "probe": ()}
_imported: list[str] = []  # packages that a user asked to have imported
# Gymnasium is imported to look for a bare name only if it looks like one of its own.
_VERSIONED = re.compile(r"-v\d+$")


def make(env_id: "str | JaxEnv", **options: Any) -> "JaxEnv":
    """The environment of that id, with the options that it takes.

    An object that is an environment already is returned as it is.
    """
    if not isinstance(env_id, str):
        return _as_it_is(env_id, options)
    entry = entry_for(env_id)
    if entry.backend in (GYMNASIUM, ENVPOOL):
        raise UnknownEnvironmentError(
            f"{env_id} is not a JAX environment: trimtab.train and the command line train on it, "
            f"and {entry.backend}.make({entry.id!r}) makes one to step by hand."
        )
    if entry.backend == "tabular":
        from trimtab.envs.tabular import make_tabular

        return make_tabular(entry.id, **options)
    if entry.backend == "probe":
        from trimtab.envs.probes import make_probe

        return make_probe(entry.id, **options)
    from trimtab.envs.gymnax import GymnaxEnv

    return GymnaxEnv.make(entry.id, **options)


def find(env: Any, **options: Any) -> "JaxEnv | HostSource":
    """What provides an environment: a JAX environment, or a source of host environments.

    ``env`` is an id, a ``JaxEnv``, or whatever ``sources.source_of`` knows.
    """
    if isinstance(env, str):
        entry = entry_for(env)
        if entry.backend == ENVPOOL:
            from trimtab.envs.envpool import source_of_pool

            return source_of_pool(entry.id, options)
        if entry.backend != GYMNASIUM:
            return make(env, **options)
        from trimtab.envs.sources import source_of_id

        return source_of_id(entry.id, options, tuple(_imported))
    if isinstance(getattr(env, "spec", None), EnvSpec):
        return _as_it_is(env, options)
    from trimtab.envs.sources import source_of

    return source_of(_without_options(env, options))


def maker_of(env: Any, **options: Any) -> Callable[[], Any] | None:
    """What makes one Gymnasium environment at a time, if ``env`` stands for that; not called."""
    if isinstance(env, str):
        entry = entry_for(env)
        if entry.backend != GYMNASIUM:
            return None
        from trimtab.envs.lane_group import GymnasiumMaker

        return GymnasiumMaker(entry.id, dict(options), tuple(_imported))
    from trimtab.envs.sources import kind_of

    own_kind = kind_of(env) or isinstance(getattr(env, "spec", None), EnvSpec)
    return env if callable(env) and not own_kind else None


def entry_for(env_id: str) -> EnvEntry:
    """The table's line for an id, or an error that says what was probably meant.

    A bare name is the table's, where it has it, and else Gymnasium's.
    """
    backend, _, name = env_id.rpartition(":")
    _check_backend(env_id, backend, name)
    if backend == ENVPOOL:
        return _entry_of_pool(name)
    entry = entry_of(name)
    if backend == GYMNASIUM or (entry is None and not backend and _VERSIONED.search(name)):
        registered = _registered(name)
        if name in registered:
            return EnvEntry(name, GYMNASIUM, "", "", "an environment of Gymnasium's registry")
        if backend == GYMNASIUM:
            raise UnknownEnvironmentError(
                f"Gymnasium has no environment {name!r}.{did_you_mean(name, registered)} "
                "If a package of yours registers it, name the package with --import."
            )
    if entry is None:
        near = did_you_mean(name, _names())
        if not near and name:
            near = did_you_mean(name, _registered(name))
        raise UnknownEnvironmentError(
            f"There is no environment {env_id!r}.{near} `trimtab envs` lists those there are."
        )
    if backend not in ("", entry.backend):
        raise UnknownEnvironmentError(
            f"{backend} does not provide {name!r}; {entry.backend} does: "
            f"ask for '{entry.backend}:{name}' or {name!r}."
        )
    return entry


def environments_of(backend: str) -> list[EnvEntry]:
    """All that one backend has; those of packages are asked for."""
    _check_backend(f"{backend}:", backend, "")
    if backend == ENVPOOL:
        from trimtab.envs.envpool import environment_ids

        return [EnvEntry(name, ENVPOOL, "", "", "") for name in environment_ids()]
    if backend == GYMNASIUM:
        return [EnvEntry(name, GYMNASIUM, "", "", "") for name in sorted(_registered("ALE/"))]
    return [entry for entry in list_environments() if entry.backend == backend]


def _entry_of_pool(name: str) -> EnvEntry:
    from trimtab.envs.envpool import environment_ids

    known = environment_ids()
    if name in known:
        return EnvEntry(name, ENVPOOL, "", "", "an environment of envpool")
    raise UnknownEnvironmentError(
        f"envpool has no environment {name!r}.{did_you_mean(name, known)} "
        "`trimtab envs envpool:` lists those it has."
    )


def is_compiled(env: Any) -> bool:
    """Whether an environment, or the one of an id, is stepped inside of the compiled program."""
    if isinstance(env, str):
        return entry_for(env).backend not in (GYMNASIUM, ENVPOOL)
    return isinstance(getattr(env, "spec", None), EnvSpec) and hasattr(env, "step")


def packages_of(env: Any) -> tuple[str, ...] | None:
    """The packages whose code is traced with a JAX environment's, beside trimtab.

    None where that is not known for certain: of objects, and where packages of the user's were
    imported, which may have put something else in the place of a name.
    """
    if not isinstance(env, str) or _imported:
        return None
    return _CODE.get(entry_for(env).backend)


def picked(env_id: str) -> str:
    """A sentence on what a bare name stands for, where more than one backend might have it."""
    entry = entry_for(env_id)
    if ":" in env_id or not _VERSIONED.search(entry.id) or entry.backend == "probe":
        return ""
    if entry.backend == GYMNASIUM:
        return f"{env_id} is Gymnasium's, stepped outside of the compiled program."
    return (
        f"{env_id} is {entry.backend}'s, inside of the compiled program; Gymnasium's own is "
        f"gymnasium:{entry.id}."
    )


def import_packages(names: Iterable[str]) -> None:
    """Import packages that register environments; worker processes then import them too."""
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            raise UnknownEnvironmentError(
                f"The package {name!r} cannot be imported: {error}. Install it, or run in the "
                "folder that holds it."
            ) from error
        if name not in _imported:
            _imported.append(name)


def _registered(name: str) -> list[str]:
    """The ids in Gymnasium's registry, and those that Atari's package adds to it."""
    import gymnasium

    if name.startswith("ALE/") and importlib.util.find_spec("ale_py"):
        gymnasium.register_envs(importlib.import_module("ale_py"))
    return list(gymnasium.registry)


def _names() -> list[str]:
    return [name for entry in list_environments() for name in (entry.id, entry.alias) if name]


def _check_backend(env_id: str, backend: str, name: str) -> None:
    """Refuse a prefix that is not a backend of this version."""
    if backend in PLANNED_BACKENDS:
        extra = PLANNED_BACKENDS[backend]
        install = f" Its packages come with: pip install 'trimtab[{extra}]'." if extra else ""
        near = entry_of(name)
        instead = f" {near.backend} provides {name!r}." if near else ""
        raise UnknownEnvironmentError(
            f"{env_id!r}: this version of trimtab knows the backend {backend!r} by name but cannot "
            f"run its environments yet.{install}{instead}"
        )
    backends = {GYMNASIUM, ENVPOOL, *(entry.backend for entry in list_environments())}
    if backend and backend not in backends and not did_you_mean(backend, backends):
        raise UnknownEnvironmentError(
            f"{env_id!r}: there is no backend {backend!r}. If it is a package of yours, which "
            f"registers {name!r} with Gymnasium: trimtab imports nothing because an id says so; "
            f"give --import {backend} and the id {name!r}. Backends are "
            f"{', '.join(sorted(backends))}."
        )
    if backend and backend not in backends:
        raise UnknownEnvironmentError(
            f"{env_id!r}: there is no backend {backend!r}."
            f"{did_you_mean(backend, [*backends, *PLANNED_BACKENDS])} "
            f"Those that provide environments are {', '.join(sorted(backends))}."
        )


def _as_it_is(env: Any, options: dict[str, Any]) -> Any:
    missing = [name for name in ("spec", "reset", "step") if not hasattr(env, name)]
    if missing and not hasattr(env, "make_env"):
        raise UnknownEnvironmentError(
            f"An environment is an id, such as 'CartPole-v1', or an object with spec, reset and "
            f"step; a {type(env).__name__} has no {' and no '.join(missing)}."
        )
    return _without_options(env, options)


def _without_options(env: Any, options: dict[str, Any]) -> Any:
    if options:
        name = env.spec.id if getattr(env, "spec", None) else f"This {type(env).__name__}"
        raise SettingError(
            f"{name} is made already; the options {', '.join(options)} would have no effect."
        )
    return env
