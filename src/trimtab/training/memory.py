"""How much memory a run will take, before any of it is taken; and what is given back."""

import contextlib
import ctypes
import math
import os
from typing import Any

from trimtab.errors import SettingError, TooLargeError

# A rollout is held once as collected, once flattened and once shuffled.
ROLLOUT_COPIES = 3
# Transitions are numbered with 32 bits.
LARGEST_BATCH = 2**31 - 1
# A learner is held before and after an update, with the gradient beside it.
LEARNER_COPIES = 3


def tree_bytes(tree: Any) -> int:
    """Bytes in the arrays, or the shapes of arrays, of a tree."""
    import jax  # sizes in words are wanted where JAX is not

    leaves = jax.tree.leaves(tree)
    return sum(math.prod(leaf.shape) * getattr(leaf.dtype, "itemsize", 4) for leaf in leaves)


def available_bytes() -> int | None:
    """Memory that this machine could give, or None where that is unknown."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def check_memory(lanes_bytes: int, step_bytes: int, num_envs: int, num_steps: int) -> None:
    """Refuse a run whose lanes, and the rollout of ``num_steps`` steps in each, would not fit."""
    available = available_bytes()
    needed = lanes_bytes + ROLLOUT_COPIES * num_steps * step_bytes
    if available is None or needed <= available:
        if num_envs * num_steps > LARGEST_BATCH:
            raise TooLargeError(
                f"num_envs × num_steps = {num_envs:,} × {num_steps:,} = {num_envs * num_steps:,} "
                f"transitions in one rollout: expected at most {LARGEST_BATCH:,}."
            )
        return
    fitting = max(1, int(num_envs * available / needed / 2))
    raise TooLargeError(
        f"num_envs × num_steps = {num_envs:,} × {num_steps:,} needs about {size_words(needed)} of "
        f"memory for one rollout; {size_words(available)} is free. "
        f"num_envs = {2 ** int(math.log2(fitting)):,} would fit."
    )


def check_network(learner_bytes: int) -> None:
    """Refuse networks that would not fit, with what their optimiser keeps."""
    available = available_bytes()
    needed = LEARNER_COPIES * learner_bytes
    if available is None or needed <= available:
        return
    raise SettingError(
        f"The networks and their optimiser need about {size_words(needed)} of memory; "
        f"{size_words(available)} is free. Give smaller hidden_sizes (or gru_units)."
    )


def size_words(size: float) -> str:
    """12 MB, 3.4 GB."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if size >= 10 or unit == "bytes" else f"{size:.1f} {unit}"


def return_freed() -> None:
    """Give back to the system what was freed: compiling leaves hundreds of megabytes of it.

    Elsewhere than with glibc the system's own rules are left alone.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
