"""What devices must agree on. With one device, every operation is the identity.

Lanes are shared over devices and parameters are replicated; an algorithm averages its gradient
and its statistics with an ``Across``, and needs to know nothing else of devices.
"""

from typing import NamedTuple, TypeVar

import jax.numpy as jnp
from jax import Array, lax

Tree = TypeVar("Tree")


class Across(NamedTuple):
    """The devices that share the lanes: the name of their axis in ``shard_map``, and how many."""

    axis: str | None = None
    devices: int = 1

    def mean(self, tree: Tree) -> Tree:
        return tree if self.axis is None else lax.pmean(tree, self.axis)

    def sum(self, tree: Tree) -> Tree:
        return tree if self.axis is None else lax.psum(tree, self.axis)

    def max(self, tree: Tree) -> Tree:
        return tree if self.axis is None else lax.pmax(tree, self.axis)

    def min(self, tree: Tree) -> Tree:
        return tree if self.axis is None else lax.pmin(tree, self.axis)

    def gather(self, array: Array) -> Array:
        """The arrays of all devices, one after the other."""
        return array if self.axis is None else lax.all_gather(array, self.axis, tiled=True)

    def index(self) -> Array:
        """The number of this device."""
        return jnp.int32(0) if self.axis is None else lax.axis_index(self.axis)


ALONE = Across()
