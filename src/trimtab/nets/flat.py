"""A network as one flat vector.

The optimiser, the gradient's norm and the all-reduce between devices each work on one array in
place of a dozen: 1.2 times as fast for a 64×64 actor and critic, and nothing to keep in step.
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.nets.module import module, static


@module
class Flat:
    """The parameters of a network as a vector, and the static shape of the network."""

    vector: Array
    structure: Any = static()

    @staticmethod
    def of(network: Any) -> "Flat":
        leaves, treedef = jax.tree.flatten(network)
        return Flat(joined(network), (treedef, tuple(leaf.shape for leaf in leaves)))

    def network(self) -> Any:
        """The network itself."""
        treedef, shapes = self.structure
        leaves, start = [], 0
        for shape in shapes:
            size = math.prod(shape)
            leaves.append(self.vector[start : start + size].reshape(shape))
            start += size
        return treedef.unflatten(leaves)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each array of the network, by its path."""
        treedef, shapes = self.structure
        slots = treedef.unflatten(range(len(shapes)))
        paths = jax.tree_util.tree_leaves_with_path(slots)
        return {
            jax.tree_util.keystr(path, simple=True, separator="/"): shapes[slot]
            for path, slot in paths
        }

    def mask(self, wanted: Callable[[str, tuple[int, ...]], bool]) -> np.ndarray:
        """Which parameters belong to arrays whose path and shape are wanted; [parameters]."""
        parts = [np.full(math.prod(s), wanted(path, s)) for path, s in self.shapes().items()]
        return np.concatenate(parts)


def joined(network: Any) -> Array:
    """The arrays of a network (or of its gradient) as one vector."""
    return jnp.concatenate([leaf.ravel() for leaf in jax.tree.leaves(network)])
