"""Gymnasium's spaces as ours, and the border that every observation and action crosses.

A ``Border`` writes what an environment returned into rows of arrays, and checks it there: the
kind, the shape, the dtype, and that every number is finite and in its space. Nothing here imports
JAX: worker processes use it too.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, final

import numpy as np

from trimtab.errors import UnsupportedSpaceError
from trimtab.spaces import (
    Box,
    Dict,
    Discrete,
    EnvSpec,
    LeafSpace,
    MultiBinary,
    MultiDiscrete,
    Space,
    leaf_spaces,
    zeros,
)

# JAX computes in 32 bits: wider numbers are narrowed where they come in.
_NARROWER = {"float64": "float32", "float16": "float32", "int64": "int32", "uint64": "uint32"}
# A bound may be missed by the rounding of a float32, and by nothing else.
_ROUNDING = 1e-6


class BadValueError(Exception):
    """An environment's answer is not what its space promises; the message says where."""


def space_of(env_id: str, role: str, space: Any) -> Space:
    """A Gymnasium space as ours, or an error that names the environment and the space."""
    from gymnasium import spaces

    if isinstance(space, spaces.Discrete):
        return Discrete(int(space.n))
    if isinstance(space, spaces.MultiDiscrete) and space.nvec.ndim == 1:
        return MultiDiscrete(tuple(int(n) for n in space.nvec))
    if isinstance(space, spaces.MultiBinary) and len(space.shape) == 1:
        return MultiBinary(int(space.shape[0]))
    if isinstance(space, spaces.Box) and space.dtype is not None and space.dtype.kind in "fiub":
        kind = "uint8" if space.dtype.kind == "b" else space.dtype.name
        return Box.of(space.low, space.high, tuple(space.shape), _NARROWER.get(kind, kind))
    if isinstance(space, spaces.Dict):
        return Dict.of({key: space_of(env_id, role, part) for key, part in space.items()})
    if isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
        return Dict.of({str(key): space_of(env_id, role, part) for key, part in parts})
    raise UnsupportedSpaceError(
        f"{env_id}: its {role} space is {space}; trimtab supports Box of numbers, Discrete, "
        "MultiDiscrete and MultiBinary of one dimension, and Dict and Tuple of those. Wrap the "
        "environment so that its space is one of them."
    )


def spec_of(env: Any, env_id: str = "") -> EnvSpec:
    """What a Gymnasium environment says of itself."""
    told = getattr(env, "spec", None)
    env_id = env_id or (told.id if told is not None else type(env.unwrapped).__name__)
    return EnvSpec(
        id=env_id,
        observation=space_of(env_id, "observation", env.observation_space),
        action=space_of(env_id, "action", env.action_space),
        max_episode_steps=told.max_episode_steps if told is not None else None,
        solved_at=told.reward_threshold if told is not None else None,
    )


def tree_of(space: Space, leaves: Sequence[Any]) -> Any:
    """Leaves in the order of ``leaf_spaces``, in dictionaries like the space's."""
    remaining = iter(leaves)

    def build(space: Space) -> Any:
        if isinstance(space, Dict):
            return {key: build(part) for key, part in space.items}
        return next(remaining)

    return build(space)


@final
class Border:
    """The way of observations out of a Gymnasium space, and of actions into one."""

    def __init__(self, spec: EnvSpec, observation_space: Any, action_space: Any, bounds: bool):
        self._leaves = [
            _Leaf.of(name, leaf, theirs, bounds)
            for (name, leaf), theirs in zip(
                leaf_spaces(spec.observation), _leaves_of(observation_space), strict=True
            )
        ]
        self._keys = _keys_of(observation_space)
        first = self._leaves[0]
        whole = not isinstance(spec.observation, Dict) and first.start is None
        self._plain = first if whole else None
        self._action_start = _start_of(action_space)
        self._action_dtype = np.dtype(action_space.dtype)

    def actions(self, rows: np.ndarray) -> np.ndarray:
        """Actions as the environments take them; the caller's own array may then change."""
        given = rows.astype(self._action_dtype)
        return given if self._action_start is None else given + self._action_start

    def write(self, rows: Sequence[np.ndarray], lane: int, observation: Any) -> None:
        """Copy an observation into row ``lane`` of each leaf's array; refuse what does not fit.

        Whether its numbers are finite and in their space, ``check`` says for many lanes at once.
        """
        plain = self._plain
        # What most environments return, most of the time, needs no more than a copy.
        if (
            plain is not None
            and type(observation) is np.ndarray
            and observation.dtype == plain.dtype
            and observation.shape == plain.shape
        ):
            rows[0][lane] = observation
            return
        for keys, leaf, row in zip(self._keys, self._leaves, rows, strict=True):
            value = observation
            for key in keys:
                try:
                    value = value[key]
                except (KeyError, IndexError, TypeError):
                    raise BadValueError(
                        f"the observation has no part {leaf.name!r}, which its space promises; "
                        f"it is a {type(observation).__name__}{_its_keys(observation)}."
                    ) from None
            row[lane] = leaf.converted(value)

    def write_all(self, rows: Sequence[np.ndarray], batch: Any) -> bool:
        """Copy the observations of all lanes at once, where that is no more than a copy.

        Says whether it was; if not, lane by lane is the way that names what does not fit.
        """
        plain = self._plain
        if plain is None or type(batch) is not np.ndarray or batch.shape != rows[0].shape:
            return False
        if batch.dtype != plain.dtype:
            if batch.dtype.kind != "f" or plain.dtype.kind != "f" or not np.isfinite(batch).all():
                return False
            if np.abs(batch).max(initial=0) > np.finfo(plain.dtype).max:
                return False
        rows[0][:] = batch
        return True

    def in_space(self, rows: Sequence[np.ndarray]) -> bool:
        """Whether all numbers of all lanes are finite and in their space."""
        for leaf, row in zip(self._leaves, rows, strict=True):
            if not (leaf.always_fits or ((row >= leaf.low) & (row <= leaf.high)).all()):
                return False
        return True

    def complaint(self, rows: Sequence[np.ndarray], lane: int) -> str | None:
        """What is wrong with the numbers of one lane, or None."""
        for leaf, row in zip(self._leaves, rows, strict=True):
            if words := leaf.complaint(row[lane]):
                return words
        return None


@dataclasses.dataclass(frozen=True, eq=False)
class _Leaf:
    """One array of an observation."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    low: np.ndarray | float
    high: np.ndarray | float
    start: Any  # what a Discrete or MultiDiscrete space counts from; ours count from 0

    @staticmethod
    def of(name: str, space: LeafSpace, theirs: Any, bounds: bool) -> "_Leaf":
        example = zeros(space)
        low, high = _limits(space, example.dtype, bounds)
        return _Leaf(name, example.shape, example.dtype, low, high, _start_of(theirs))

    @functools.cached_property
    def always_fits(self) -> bool:
        """Whether every number of its dtype is in the space, as in most images."""
        if self.dtype.kind == "f" or np.ndim(self.low) or np.ndim(self.high):
            return False
        least, greatest = np.iinfo(self.dtype).min, np.iinfo(self.dtype).max
        return bool(self.low <= least and self.high >= greatest)

    @property
    def words(self) -> str:
        return f"the observation's part {self.name!r}" if self.name else "the observation"

    def converted(self, value: Any) -> np.ndarray:
        """``value`` with this leaf's dtype, if nothing but digits is lost."""
        given = np.asarray(value)
        if given.dtype == self.dtype and given.shape == self.shape and self.start is None:
            return given
        if given.dtype.kind not in "fiub":
            raise BadValueError(
                f"{self.words} is {_shown(value)} (dtype {given.dtype}); expected numbers of dtype "
                f"{self.dtype} and shape {self.shape}."
            )
        if given.shape != self.shape:
            raise BadValueError(
                f"{self.words} has shape {given.shape}; its space has shape {self.shape}."
            )
        if self.start is not None:
            given = given - self.start
        if given.dtype.kind == "f" and self.dtype.kind != "f":
            raise BadValueError(
                f"{self.words} has dtype {given.dtype}; its space has {self.dtype}, and a fraction "
                "would be cut off."
            )
        with np.errstate(over="ignore", invalid="ignore"):
            cast = given.astype(self.dtype)
        if self.dtype.kind == "f":
            lost = np.isfinite(given) & ~np.isfinite(cast)
        else:
            lost = cast != given
        if lost.any():
            where, number = _first(lost, given)
            raise BadValueError(
                f"{self.words}{where} is {number}, which a {self.dtype} cannot hold."
            )
        return cast

    def complaint(self, value: np.ndarray) -> str | None:
        if self.dtype.kind == "f" and not np.isfinite(value).all():
            where, number = _first(~np.isfinite(value), value)
            return f"{self.words}{where} is {number}."
        outside = ~((value >= self.low) & (value <= self.high))
        if not outside.any():
            return None
        where, number = _first(outside, value)
        low, high = (
            np.broadcast_to(bound, self.shape)[outside][0] for bound in (self.low, self.high)
        )
        return (
            f"{self.words}{where} is {number}, outside of its space, {low:g} to {high:g}. Widen "
            "the space, or set observation_bounds = ignore if its bounds are only a hint."
        )


def complaint_of(space: Space, rows: Sequence[np.ndarray], lane: int) -> str | None:
    """What is wrong with the numbers of one lane of any environment, or None."""
    for (name, leaf), row in zip(leaf_spaces(space), rows, strict=True):
        if words := _Leaf.of(name, leaf, None, True).complaint(np.asarray(row[lane])):
            return words
    return None


def _limits(space: LeafSpace, dtype: np.dtype, bounds: bool) -> tuple[Any, Any]:
    """The least and the greatest number allowed. Infinity and NaN never are."""
    if isinstance(space, Discrete):
        return 0, space.n - 1
    if isinstance(space, MultiDiscrete):
        return 0, np.asarray(space.nvec) - 1
    if isinstance(space, MultiBinary):
        return 0, 1
    if dtype.kind != "f":
        least, greatest = np.iinfo(dtype).min, np.iinfo(dtype).max
    else:
        least, greatest = np.finfo(dtype).min, np.finfo(dtype).max
    if not bounds:
        return least, greatest
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float64), space.size).reshape(space.shape)
        for bound in (space.low, space.high)
    )
    if dtype.kind == "f":
        low = low - _ROUNDING * np.maximum(1.0, np.abs(low))
        high = high + _ROUNDING * np.maximum(1.0, np.abs(high))
    return tuple(_scalar(bound.clip(least, greatest).astype(dtype)) for bound in (low, high))


def _scalar(bound: np.ndarray) -> Any:
    """One number where all bounds are equal: comparing with it is quicker."""
    return bound.flat[0] if bound.size and (bound == bound.flat[0]).all() else bound


def _first(bad: np.ndarray, value: np.ndarray) -> tuple[str, Any]:
    """Where the first bad element is, as ``[2, 0]``, and what it is."""
    if not bad.shape:
        return "", value[()]
    index = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"[{', '.join(map(str, index))}]", value[index]


def _shown(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def _its_keys(observation: Any) -> str:
    return f" with the keys {list(observation)}" if isinstance(observation, dict) else ""


def _leaves_of(space: Any) -> list[Any]:
    """The leaf spaces of a Gymnasium space, in the order of ``leaf_spaces``."""
    parts = _parts_of(space)
    return [space] if parts is None else [leaf for _, part in parts for leaf in _leaves_of(part)]


def _keys_of(space: Any) -> list[tuple[Any, ...]]:
    """For each leaf, the keys that lead to it."""
    parts = _parts_of(space)
    if parts is None:
        return [()]
    return [(key, *keys) for key, part in parts for keys in _keys_of(part)]


def _parts_of(space: Any) -> list[tuple[Any, Any]] | None:
    from gymnasium import spaces

    if isinstance(space, spaces.Dict):
        return list(space.items())
    return list(enumerate(space.spaces)) if isinstance(space, spaces.Tuple) else None


def _start_of(space: Any) -> Any:
    start = getattr(space, "start", None)
    return None if start is None or not np.any(start) else np.asarray(start)
