"""Metrics of several updates, as a compiled program hands them over: one array, not fifty.

Each array that leaves a program, and each that is written to in its loop, costs some microseconds
and some compiling. All metrics that are alike are therefore columns of one.
"""

from collections.abc import Iterator, Mapping
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from trimtab.types import Metrics


@final
class Table(Mapping[str, Any]):
    """A mapping from each metric's name to its values, [updates, ...] or of one update [...]."""

    def __init__(self, names: tuple[str, ...], columns: Array, others: Metrics):
        self._names, self._columns, self._others = names, columns, others

    @classmethod
    def of(cls, metrics: Metrics) -> "Table":
        """The metrics of one update: the float32 ones that have the shape of most are columns."""
        floats = [name for name, one in metrics.items() if one.dtype == jnp.float32]
        shapes = [metrics[name].shape for name in floats]
        common = max(shapes, key=shapes.count) if shapes else ()
        names = [name for name in floats if metrics[name].shape == common]
        others = {name: one for name, one in metrics.items() if name not in names}
        columns = [metrics[name] for name in names]
        return cls(tuple(names), jnp.stack(columns, axis=-1) if columns else jnp.zeros(0), others)

    def __getitem__(self, name: str) -> Any:
        if name in self._others:
            return self._others[name]
        try:
            column = self._names.index(name)
        except ValueError:
            raise KeyError(name) from None
        return np.asarray(self._columns)[..., column]  # JAX keeps the copy on the host

    def __contains__(self, name: object) -> bool:
        return name in self._names or name in self._others

    def __iter__(self) -> Iterator[str]:
        yield from self._names
        yield from self._others

    def __len__(self) -> int:
        return len(self._names) + len(self._others)


jax.tree_util.register_pytree_node(
    Table,
    lambda table: ((table._columns, table._others), table._names),
    lambda names, parts: Table(names, *parts),
)
