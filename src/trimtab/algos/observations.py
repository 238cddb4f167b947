"""Normalisation of observations: statistics for each part of a space that is worth normalising.

The statistics are a tree like the observation: a ``Running`` where a part is normalised, None where
it is left as it is (images, whole numbers, action masks).
"""

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from trimtab.algos.settings import OnPolicySettings
from trimtab.errors import SettingError
from trimtab.ops.across import Across
from trimtab.ops.running import Running
from trimtab.spaces import ACTION_MASK, Box, EnvSpec, LeafSpace, is_image, leaf_spaces, map_space
from trimtab.types import Observation

LIMIT = 10.0  # normalised observations are clipped to ± this


def statistics_of(settings: OnPolicySettings, spec: EnvSpec) -> Any:
    """Empty statistics, or None if observations are not normalised."""
    if not settings.normalize_observations:
        return None
    if not any(_normalisable(path, leaf) for path, leaf in leaf_spaces(spec.observation)):
        raise SettingError(
            f"normalize_observations has no effect on {spec.id}, whose observations are "
            f"{spec.observation}: leave it off. (Images are scaled to [0, 1] anyway.)"
        )
    paths = iter([path for path, _ in leaf_spaces(spec.observation)])

    def empty(leaf: LeafSpace) -> Running | None:
        return Running.zeros(leaf.shape) if _normalisable(next(paths), leaf) else None

    return map_space(empty, spec.observation)


def _normalisable(path: str, leaf: LeafSpace) -> bool:
    return isinstance(leaf, Box) and not is_image(leaf) and path != ACTION_MASK


def normalised(statistics: Any, obs: Observation) -> Observation:
    """Observations as networks see them."""

    def one(running: Running | None, part: Array) -> Array:
        return part if running is None else running.normalize(part.astype(jnp.float32), LIMIT)

    if statistics is None:
        return obs
    return jax.tree.map(one, statistics, obs, is_leaf=_is_statistics)


def merged(statistics: Any, obs: Observation, across: Across, counted: Array | None = None) -> Any:
    """Statistics that know of observations [B, ...] too, or of those that ``counted`` says."""

    def one(running: Running | None, part: Array) -> Running | None:
        if running is None:
            return None
        return running.merge(part.astype(jnp.float32), across, counted)

    if statistics is None:
        return None
    return jax.tree.map(one, statistics, obs, is_leaf=_is_statistics)


def normalised_parts(statistics: Any, obs: Observation) -> list[tuple[Running, Array]]:
    """The statistics of each part that is normalised, with that part of an observation."""
    runnings = jax.tree.leaves(statistics, is_leaf=_is_statistics)
    parts = jax.tree.leaves(obs)
    if statistics is None:
        return []
    return [(one, part) for one, part in zip(runnings, parts, strict=True) if one is not None]


def _is_statistics(node: Any) -> bool:
    return node is None or isinstance(node, Running)
