"""The rows of a rollout while it is filled by lanes that need not keep step.

A lane that was idle in a step fills its row with a later one. Meanwhile the others go on into the
rollout after this one, which is kept for them.
"""

from typing import Any, final

import jax
import numpy as np

from trimtab.errors import EnvironmentFaultError
from trimtab.types import Rollout


@final
class RolloutRows:
    """``num_steps`` rows in each lane, and as many of the next rollout.

    Arrays are made anew for each rollout: JAX may read them for as long as it pleases.
    """

    def __init__(self, num_steps: int, lanes: int):
        self._num_steps = num_steps
        self._lanes = np.arange(lanes)
        self._rows = np.zeros(lanes, np.int32)  # the next of each lane; kept only out of step
        self._common: int | None = 0  # the next of all lanes, while they keep step
        self._now: list[np.ndarray] = []  # the arrays of this rollout
        self._later: list[np.ndarray] = []  # those of the next
        self._tree: Any = None

    @property
    def in_step(self) -> bool:
        return self._common is not None

    @property
    def empty(self) -> bool:
        """Whether no lane has a row yet, of this rollout or of the next."""
        return self._common == 0

    @property
    def next(self) -> Any:
        """The row that each lane fills next: a number while all keep step, else one for each."""
        return self._rows.copy() if self._common is None else self._common

    @property
    def full(self) -> bool:
        if self._common is not None:
            return self._common >= self._num_steps
        return bool((self._rows >= self._num_steps).all())

    def put(self, step: Rollout, idle: np.ndarray | None) -> None:
        """A step of every lane, leaves [N, ...]; what an idle lane did is left out."""
        leaves = jax.tree.leaves(step)
        if not self._now:
            self._tree = jax.tree.structure(step)
            self._now = self._made(leaves)
        if self._common is not None:
            for array, leaf in zip(self._now, leaves, strict=True):
                array[self._common] = leaf
            if idle is None:
                self._common += 1
                return
            self._rows[:] = self._common
        else:
            self._put_out_of_step([np.asarray(leaf) for leaf in leaves])
        self._rows += 1 if idle is None else ~idle
        self._compare()

    def _put_out_of_step(self, leaves: list[np.ndarray]) -> None:
        rows, lanes = self._rows, self._lanes
        now, later = rows < self._num_steps, rows >= self._num_steps
        if rows.max() >= 2 * self._num_steps:
            raise EnvironmentFaultError(
                f"Lane {int(rows.argmin())} gave no transition while others gave a whole rollout "
                f"of {self._num_steps} steps. Its environment seems to do nothing but restart."
            )
        if not self._later:
            self._later = self._made(leaves)
        for array, after, leaf in zip(self._now, self._later, leaves, strict=True):
            array[rows[now], lanes[now]] = leaf[now]
            after[rows[later] - self._num_steps, lanes[later]] = leaf[later]

    def cut(self, lanes: np.ndarray) -> None:
        """The last row of these lanes was the last of its fragment: nothing follows on it.

        Its successor is known, so it counts as truncated. Where it is in a rollout that has been
        taken already, it was the last of that.
        """
        rows = np.broadcast_to(self._rows if self._common is None else self._common, lanes.shape)
        for lane in np.flatnonzero(lanes).tolist():
            half, row = divmod(int(rows[lane]) - 1, self._num_steps)
            if row >= 0 and half >= 0:
                leaves = (self._now, self._later)[half]
                jax.tree.unflatten(self._tree, leaves).truncated[row, lane] = True

    def starting(self) -> np.ndarray:
        """The lanes whose next row is the first of the next rollout."""
        rows = self._rows if self._common is None else self._common
        return np.broadcast_to(rows == self._num_steps, self._lanes.shape)

    def take(self) -> Rollout:
        """The full rollout, without memory; the next one takes its place."""
        taken = jax.tree.unflatten(self._tree, self._now)
        self._now, self._later = self._later, []
        self._rows = self._rows - self._num_steps
        if self._common is None:
            self._compare()
        else:
            self._common = 0
        return taken

    def _compare(self) -> None:
        rows = self._rows
        self._common = int(rows[0]) if (rows == rows[0]).all() else None

    def _made(self, leaves: list[Any]) -> list[np.ndarray]:
        return [np.empty((self._num_steps, *leaf.shape), leaf.dtype) for leaf in leaves]
