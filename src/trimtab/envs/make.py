"""``make``: an environment from its name.

A name is an id as in Gymnasium, such as ``CartPole-v1``, or the same with the backend that is to
provide it, such as ``gymnax:CartPole-v1``. Nothing here imports JAX or a simulator until the
name is known to be right.
"""

from typing import TYPE_CHECKING, Any

from trimtab.envs.registry import PLANNED_BACKENDS, EnvEntry, entry_of, list_environments
from trimtab.errors import SettingError, UnknownEnvironmentError, did_you_mean

if TYPE_CHECKING:
    from trimtab.types import JaxEnv


def make(env_id: "str | JaxEnv", **options: Any) -> "JaxEnv":
    """The environment of that id, with the options that it takes.

    An object that is an environment already is returned as it is.
    """
    if not isinstance(env_id, str):
        return _as_it_is(env_id, options)
    entry = entry_for(env_id)
    if entry.backend == "tabular":
        from trimtab.envs.tabular import make_tabular

        return make_tabular(entry.id, **options)
    if entry.backend == "probe":
        from trimtab.envs.probes import make_probe

        return make_probe(entry.id, **options)
    from trimtab.envs.gymnax import GymnaxEnv

    return GymnaxEnv.make(entry.id, **options)


def entry_for(env_id: str) -> EnvEntry:
    """The table's line for an id, or an error that says what was probably meant."""
    backend, _, name = env_id.rpartition(":")
    _check_backend(env_id, backend, name)
    entry = entry_of(name)
    if entry is None:
        raise UnknownEnvironmentError(
            f"There is no environment {env_id!r}.{did_you_mean(name, _names())} "
            "`trimtab envs` lists those there are."
        )
    if backend not in ("", entry.backend):
        raise UnknownEnvironmentError(
            f"{backend} does not provide {name!r}; {entry.backend} does: "
            f"ask for '{entry.backend}:{name}' or {name!r}."
        )
    return entry


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
    backends = {entry.backend for entry in list_environments()}
    if backend and backend not in backends:
        raise UnknownEnvironmentError(
            f"{env_id!r}: there is no backend {backend!r}."
            f"{did_you_mean(backend, [*backends, *PLANNED_BACKENDS])} "
            f"Those that provide environments are {', '.join(sorted(backends))}."
        )


def _as_it_is(env: Any, options: dict[str, Any]) -> "JaxEnv":
    missing = [name for name in ("spec", "reset", "step") if not hasattr(env, name)]
    if missing:
        raise UnknownEnvironmentError(
            f"An environment is an id, such as 'CartPole-v1', or an object with spec, reset and "
            f"step; a {type(env).__name__} has no {' and no '.join(missing)}."
        )
    if options:
        raise SettingError(
            f"{env.spec.id} is made already; the options {', '.join(options)} would have no effect."
        )
    return env
