"""Observation and action spaces: what an environment shows and what it accepts.

Plain frozen values (hashable, without JAX), so that they can be static in compiled programs.
``to_environment`` is the only place where a policy's action is scaled or clipped.
"""

import dataclasses
import math
from typing import Any

import numpy as np


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
        return all(math.isfinite(bound) for bound in (*self.low, *self.high))

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


Space = Discrete | Box


@dataclasses.dataclass(frozen=True)
class EnvSpec:
    """What a trainer needs to know of an environment before it makes a network."""

    id: str
    observation: Space
    action: Space
    max_episode_steps: int | None = None
    solved_at: float | None = None


def to_environment(space: Space, action: Any) -> Any:
    """A policy's action as the environment wants it.

    A policy acts in [−1, 1] for each bounded dimension of a Box: the action is clipped to that
    and scaled to the bounds. Rollouts keep the unclipped action, whose log-probability is known.
    """
    if not isinstance(space, Box) or not space.bounded:
        return action
    low, high = space.bounds()
    unit = (action.clip(-1.0, 1.0) + 1.0) * np.float32(0.5)
    return low + unit * (high - low)


def zeros(space: Space) -> np.ndarray:
    """An element of the right shape and dtype, for tracing."""
    if isinstance(space, Discrete):
        return np.zeros((), np.int32)
    return np.zeros(space.shape, space.dtype)


def num_bytes(space: Space) -> int:
    """Memory that one element takes."""
    return zeros(space).nbytes
