"""What kind of task an environment is, as far as the choice of general settings goes.

Nothing here imports JAX: ``trimtab train ENV --help`` shows the defaults of an environment. Those
of the registry need no simulator either; one of Gymnasium's is made once, to ask it.
"""

import contextlib
import importlib
from collections.abc import Mapping
from typing import Any, Literal

from trimtab.envs.lane_group import GymnasiumMaker
from trimtab.envs.registry import EnvEntry, entry_of
from trimtab.spaces import Box, EnvSpec, is_image, leaf_spaces, without_mask

Kind = Literal["discrete", "continuous", "image", "tabular"]
GYMNASIUM, ENVPOOL = "gymnasium", "envpool"


def kind_of(spec: EnvSpec) -> Kind:
    """The kind of an environment that says this of itself.

    image: some part of an observation is one. tabular: whole numbers are all there is to see.
    Otherwise there are numbers that can be normalised, and the actions make the difference.
    """
    leaves = [leaf for _, leaf in leaf_spaces(without_mask(spec.observation))]
    if any(is_image(leaf) for leaf in leaves):
        return "image"
    if not any(isinstance(leaf, Box) for leaf in leaves):
        return "tabular"
    return "continuous" if isinstance(spec.action, Box) else "discrete"


def kind_of_entry(entry: EnvEntry) -> Kind:
    """The same from a line of the registry; a test compares the two."""
    if not entry.observation.startswith("Box"):
        return "tabular"
    if entry.observation.count("×") == 2:
        return "image"
    return "continuous" if entry.action.startswith("Box") else "discrete"


def kind_of_id(env_id: str, options: Mapping[str, Any]) -> Kind | None:
    """The kind of the environment of that id; None where the id is nobody's.

    None for probes too: they are there to try an algorithm as it is.
    """
    backend, _, name = env_id.rpartition(":")
    entry = entry_of(name)
    if entry is not None and backend != GYMNASIUM:
        return None if entry.backend == "probe" else kind_of_entry(entry)
    if backend not in ("", GYMNASIUM, ENVPOOL) or not name:
        return None
    try:
        return kind_of(
            _spec_of_pool(name, options) if backend == ENVPOOL else _asked(name, options)
        )
    except Exception:  # whatever is wrong with it, or missing, is told where the run makes it
        return None


def _asked(name: str, options: Mapping[str, Any]) -> EnvSpec:
    """What an environment of Gymnasium's registry says of itself, once made."""
    from trimtab.envs.gymnasium_spaces import spec_of

    with contextlib.closing(GymnasiumMaker(name, options)()) as env:
        return spec_of(env)


def _spec_of_pool(name: str, options: Mapping[str, Any]) -> EnvSpec:
    """What EnvPool says of one of its environments."""
    from trimtab.envs.gymnasium_spaces import space_of

    told = importlib.import_module("envpool").make_spec(name, **options)
    observation = space_of(name, "observation", told.observation_space)
    return EnvSpec(name, observation, space_of(name, "action", told.action_space))
