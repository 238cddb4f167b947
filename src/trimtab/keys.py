"""Random numbers: a root key and counters, never a key that is carried along.

Every random number is a function of ``(root, purpose, update, lane, t)``. So a resumed run, another
number of devices or workers, or an evaluation in between cannot shift a stream.
"""

import enum

import jax
from jax import Array


class Purpose(enum.IntEnum):
    """What a stream is for. Numbers are part of a run's identity: append, never renumber."""

    INIT = 0
    FIRST_RESET = 1
    RESET = 2
    STEP = 3
    ACT = 4
    SHUFFLE = 5
    EVALUATION = 6
    WORKER = 7
    LAB = 20


def stream(root: Array, purpose: Purpose, *counters: Array | int) -> Array:
    """The key of one stream: the root folded with the purpose, then with each counter."""
    key = jax.random.fold_in(root, int(purpose))
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def lane_streams(root: Array, purpose: Purpose, update: Array | int, lanes: Array) -> Array:
    """One key for each lane; ``lanes`` holds the lanes' global numbers."""
    key = stream(root, purpose, update)
    return jax.vmap(lambda lane: jax.random.fold_in(key, lane))(lanes)
