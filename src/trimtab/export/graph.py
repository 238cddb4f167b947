"""A policy as a list of operations, each of them one of ONNX (https://onnx.ai/onnx/operators)."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

BATCH = "batch"  # the first dimension of inputs and outputs, of any size


@dataclasses.dataclass(frozen=True)
class Operation:
    """``output = kind(*inputs, **attributes)``"""

    kind: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Port:
    """What goes in, or comes out."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclasses.dataclass(frozen=True)
class Graph:
    """Operations in an order in which they can be computed, and the arrays that they use."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    operations: tuple[Operation, ...]
    constants: Mapping[str, np.ndarray]

    def pruned(self) -> "Graph":
        """Without operations and constants that no output needs."""
        needed = {port.name for port in self.outputs}
        kept = []
        for operation in reversed(self.operations):
            if operation.output in needed:
                kept.append(operation)
                needed.update(operation.inputs)
        constants = {name: array for name, array in self.constants.items() if name in needed}
        return dataclasses.replace(self, operations=tuple(reversed(kept)), constants=constants)

    def to_json(self) -> dict[str, Any]:
        """All but the constants."""
        return {
            "inputs": [dataclasses.asdict(port) for port in self.inputs],
            "outputs": [dataclasses.asdict(port) for port in self.outputs],
            "operations": [dataclasses.asdict(operation) for operation in self.operations],
        }

    @staticmethod
    def from_json(described: Mapping[str, Any], constants: Mapping[str, np.ndarray]) -> "Graph":
        def ports(which: str) -> tuple[Port, ...]:
            return tuple(
                Port(port["name"], port["dtype"], tuple(port["shape"])) for port in described[which]
            )

        operations = tuple(
            Operation(one["kind"], tuple(one["inputs"]), one["output"], one["attributes"])
            for one in described["operations"]
        )
        return Graph(ports("inputs"), ports("outputs"), operations, constants)
