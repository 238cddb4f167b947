"""Observation and action spaces: what an environment shows and what it accepts.

Plain frozen values (hashable, without JAX), so that they can be static in compiled programs.
``to_environment`` is the only place where a policy's action is scaled or clipped.
"""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from trimtab.errors import UnsupportedSpaceError

# The key of a Dict observation that says which actions are valid. It is no feature of a network.
ACTION_MASK = "action_mask"


@dataclasses.dataclass(frozen=True)
class Discrete:
    """The integers 0 … n − 1."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return ()

    def __str__(self) -> str:
        return f"Discrete({self.n})"


@dataclasses.dataclass(frozen=True)
class MultiDiscrete:
    """Vectors of integers, the one at i between 0 and nvec[i] − 1."""

    nvec: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.nvec),)

    def __str__(self) -> str:
        return f"MultiDiscrete({', '.join(map(str, self.nvec))})"


@dataclasses.dataclass(frozen=True)
class MultiBinary:
    """Vectors of n zeros and ones."""

    n: int

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n,)

    def __str__(self) -> str:
        return f"MultiBinary({self.n})"


@dataclasses.dataclass(frozen=True)
class Box:
    """Arrays of ``shape``, each element between its low and its high.

    The bounds are tuples over the flattened array; a single number stands for all elements.
    """

    shape: tuple[int, ...]
    low: tuple[float, ...] = (-math.inf,)
    high: tuple[float, ...] = (math.inf,)
    dtype: str = "float32"

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def bounded(self) -> bool:
        """Whether every element has a low and a high, so that actions in [−1, 1] reach all."""
        return bool(self.bounded_elements().all())

    def bounded_elements(self) -> np.ndarray:
        """Which elements have a low and a high. An enormous float stands for infinity."""
        low, high = self.bounds()
        with np.errstate(over="ignore", invalid="ignore"):
            return np.isfinite(high - low)

    def bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Low and high as float32 arrays of the box's shape."""
        low, high = (
            np.broadcast_to(np.asarray(bound, np.float32), self.size).reshape(self.shape)
            for bound in (self.low, self.high)
        )
        return low, high

    @staticmethod
    def of(low: Any, high: Any, shape: tuple[int, ...], dtype: str = "float32") -> "Box":
        """A box from arrays or numbers; equal bounds are stored once."""

        def pack(bound: Any) -> tuple[float, ...]:
            flat = np.broadcast_to(np.asarray(bound, np.float64), shape).ravel()
            same = flat.size == 0 or bool((flat == flat[0]).all())
            return (float(flat[0]) if flat.size else 0.0,) if same else tuple(flat.tolist())

        return Box(tuple(shape), pack(low), pack(high), dtype)

    def __str__(self) -> str:
        return f"Box({min(self.low):g}…{max(self.high):g}, shape {self.shape}, {self.dtype})"


@dataclasses.dataclass(frozen=True)
class Dict:
    """Dictionaries with these keys, in this order; each value is of its space, or a Dict again."""

    items: tuple[tuple[str, "Space"], ...]

    @staticmethod
    def of(spaces: Mapping[str, "Space"]) -> "Dict":
        return Dict(tuple(spaces.items()))

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key, _ in self.items)

    def __getitem__(self, key: str) -> "Space":
        return dict(self.items)[key]

    def select(self, keys: tuple[str, ...]) -> "Dict":
        """The part with only these keys, in this Dict's order."""
        return Dict(tuple((key, space) for key, space in self.items if key in keys))

    def __str__(self) -> str:
        return f"Dict({', '.join(f'{key}: {space}' for key, space in self.items)})"


LeafSpace = Discrete | MultiDiscrete | MultiBinary | Box
Space = LeafSpace | Dict


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a trainer needs to know of an environment before it makes a network."""

    id: str
    observation: Space
    action: Space
    max_episode_steps: int | None = None
    solved_at: float | None = None


# ------------------------------------------------------------------------------- trees of spaces


def map_space(function: Callable[..., Any], space: Space, *values: Any) -> Any:
    """``function(leaf space, its values)`` for each leaf, in dictionaries like the space's."""
    if isinstance(space, Dict):
        return {
            key: map_space(function, part, *(value[key] for value in values))
            for key, part in space.items
        }
    return function(space, *values)


def leaf_spaces(space: Space, path: str = "") -> Iterator[tuple[str, LeafSpace]]:
    """Each leaf space with its path, such as ``camera/left``; a space that is a leaf has ``""``."""
    if isinstance(space, Dict):
        for key, part in space.items:
            yield from leaf_spaces(part, f"{path}/{key}" if path else key)
    else:
        yield path, space


def mask_space(space: Space) -> Space | None:
    """The space of the action mask in an observation space, or None if it gives none."""
    return space[ACTION_MASK] if isinstance(space, Dict) and ACTION_MASK in space.keys else None


def without_mask(space: Space) -> Space:
    """An observation space without its action mask."""
    if mask_space(space) is None:
        return space
    assert isinstance(space, Dict)
    return space.select(tuple(key for key in space.keys if key != ACTION_MASK))


def is_image(space: Space) -> bool:
    """Whether a space is of images: three dimensions, and uint8 or between 0 and 1."""
    if not isinstance(space, Box) or len(space.shape) != 3:
        return False
    return space.dtype == "uint8" or (min(space.low) == 0 and max(space.high) == 1)


def zeros(space: Space) -> Any:
    """An element of the right shape and dtype, for tracing."""

    def leaf(space: LeafSpace) -> np.ndarray:
        if isinstance(space, Box):
            return np.zeros(space.shape, space.dtype)
        return np.zeros(space.shape, np.int8 if isinstance(space, MultiBinary) else np.int32)

    return map_space(leaf, space)


def num_bytes(space: Space) -> int:
    """Memory that one element takes."""
    parts = (zeros(leaf) for _, leaf in leaf_spaces(space))
    return sum(part.nbytes for part in parts)


# --------------------------------------------------------------------------------------- actions


def to_environment(space: Space, action: Any) -> Any:
    """A policy's action as the environment wants it.

    For an element of a Box with a low and a high, a policy acts in [−1, 1]: the action is clipped
    to that (a tanh-squashed one is inside it already) and scaled to the bounds. An element with one
    bound is clipped to it, one with none is left as it is. Rollouts keep the policy's own action,
    whose log-probability is known.
    """
    if isinstance(space, Dict):
        raise UnsupportedSpaceError(
            f"The action space {space} is a dictionary, and no policy here acts in those. Wrap the "
            "environment so that its actions are one Box, Discrete, MultiDiscrete or MultiBinary."
        )
    if not isinstance(space, Box):
        return action
    low, high = space.bounds()
    bounded = space.bounded_elements()
    # Where an element is not bounded, its own bounds (perhaps infinite) must not enter the sums.
    ends = np.where(bounded, low, -1.0), np.where(bounded, high, 1.0)
    middle, reach = (ends[1] + ends[0]) / 2, (ends[1] - ends[0]) / 2
    return (middle + reach * action).clip(low, high)
