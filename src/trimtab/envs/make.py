"""``make``: an environment from its name."""

from typing import TYPE_CHECKING, Any

from trimtab.envs.registry import list_environments
from trimtab.errors import UnknownEnvironmentError, did_you_mean

if TYPE_CHECKING:
    from trimtab.types import JaxEnv


def make(env_id: Any, **options: Any) -> "JaxEnv":
    """The environment of that id; an object that is an environment already is returned as it is."""
    if not isinstance(env_id, str):
        return env_id
    backend, _, name = env_id.rpartition(":")
    known = {entry.id: entry.backend for entry in list_environments()}
    if name not in known or backend not in ("", known[name]):
        raise UnknownEnvironmentError(
            f"There is no environment {env_id!r}.{did_you_mean(env_id, known)} "
            "'trimtab envs' lists those there are."
        )
    from trimtab.envs.gymnax import GymnaxEnv

    return GymnaxEnv.make(name, **options)
