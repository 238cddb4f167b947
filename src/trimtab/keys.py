"""Random numbers: a root key and counters, never a key that is carried along.

Every random number is a function of ``(root, purpose, update, lane, t)``. So a resumed run, another
number of devices or workers, or an evaluation in between cannot shift a stream.
"""

import enum
from collections.abc import Sequence

import jax
import jax.numpy as jnp
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
    return streams_of_lanes(root, (purpose,), update, lanes)[0]


def streams_of_lanes(
    root: Array, purposes: Sequence[Purpose], update: Array | int, lanes: Array
) -> Array:
    """The same for several purposes; [purposes, lanes].

    They are derived together, since each derivation is a loop of its own on a CPU: one that runs
    for some microseconds, and takes a tenth of a second to compile.
    """
    numbers = jnp.asarray([int(purpose) for purpose in purposes], jnp.uint32)
    keys = jax.vmap(lambda number: jax.random.fold_in(root, number))(numbers)
    keys = jax.vmap(lambda key: jax.random.fold_in(key, update))(keys)
    of_lanes = jax.vmap(jax.random.fold_in, in_axes=(None, 0))
    return jax.vmap(of_lanes, in_axes=(0, None))(keys, lanes)
