"""From a function of JAX to a graph: each primitive of its jaxpr becomes operations of ONNX.

``rules`` says which. What depends on the weights alone, such as a deviation that is
computed from a variance, is computed here and becomes a constant.
"""

from collections.abc import Callable, Sequence
from typing import Any, final

import jax
import numpy as np
from jax import export as jax_export
from jax.extend.core import ClosedJaxpr, Jaxpr, Literal

from trimtab.errors import ExportError
from trimtab.export.evaluate import FUNCTIONS
from trimtab.export.graph import BATCH, Graph, Operation, Port
from trimtab.export.rules import RULES, Shape, is_one, is_plain

# Where a primitive that calls has what it calls.
_INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")


def traced(
    function: Callable[[Any, Any], Any],
    weights: Any,
    inputs: Any,
    names_of_inputs: Sequence[str],
    names_of_outputs: Sequence[str],
) -> Graph:
    """``function(weights, input)`` for a batch of inputs; ``inputs`` are the leaves of one.

    Constants have the names that the leaves of ``weights`` have by their place in it.
    """
    (batch,) = jax_export.symbolic_shape(BATCH)
    leaves, treedef = jax.tree.flatten(inputs)
    batched = treedef.unflatten(
        jax.ShapeDtypeStruct((batch, *np.shape(leaf)), np.asarray(leaf).dtype) for leaf in leaves
    )
    mapped = jax.vmap(function, in_axes=(None, 0))
    closed, shapes = jax.make_jaxpr(mapped, return_shape=True)(weights, batched)
    constants = {
        jax.tree_util.keystr(path, simple=True, separator="/"): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(weights)
    }
    translator = Translator()
    arguments: list[str] = []
    for name, array in constants.items():
        arguments.append(translator.constant(array, name))
    ports = []
    for name, leaf in zip(names_of_inputs, jax.tree.leaves(batched), strict=True):
        ports.append(Port(name, str(leaf.dtype), (BATCH, *leaf.shape[1:])))
        translator.shapes[name] = leaf.shape
        arguments.append(name)
    translator.batch_of = names_of_inputs[0]
    found = translator.inline(closed, arguments)
    outputs = []
    for name, source, shape in zip(names_of_outputs, found, jax.tree.leaves(shapes), strict=True):
        whole = translator.whole(source, shape.shape)
        translator.operations.append(Operation("Identity", (whole,), name))
        outputs.append(Port(name, str(shape.dtype), (BATCH, *shape.shape[1:])))
    operations = tuple(translator.operations)
    return Graph(tuple(ports), tuple(outputs), operations, translator.constants).pruned()


@final
class Translator:
    """The graph while it grows. Values are known by their names.

    A value may be smaller than JAX has it, where broadcasting makes up for that: ``whole`` makes
    it as large where an operation needs that.
    """

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.constants: dict[str, np.ndarray] = {}
        self.shapes: dict[str, Shape] = {}
        self.batch_of = ""
        self._size: str | None = None

    def constant(self, value: Any, name: str = "") -> str:
        array = np.asarray(value)
        name = name or f"constant{len(self.constants)}"
        self.constants[name], self.shapes[name] = array, array.shape
        return name

    def add(self, kind: str, *inputs: str, shape: Shape, **attributes: Any) -> str:
        """The name of the result; of what is known already, the result itself."""
        if all(name in self.constants for name in inputs):
            known = [self.constants[name] for name in inputs]
            return self.constant(FUNCTIONS[kind](*known, **attributes))
        name = f"value{len(self.operations)}"
        self.operations.append(Operation(kind, inputs, name, attributes))
        self.shapes[name] = tuple(shape)
        return name

    def inline(self, closed: ClosedJaxpr, arguments: Sequence[str]) -> list[str]:
        """The names of what a jaxpr gives for ``arguments``."""
        jaxpr: Jaxpr = closed.jaxpr
        names: dict[Any, str] = dict(zip(jaxpr.invars, arguments, strict=True))
        names.update(
            (var, self.constant(value))
            for var, value in zip(jaxpr.constvars, closed.consts, strict=True)
        )

        def name_of(atom: Any) -> str:
            if isinstance(atom, Literal):
                kind: Any = atom.aval
                return self.constant(np.asarray(atom.val, kind.dtype))
            return names[atom]

        for equation in jaxpr.eqns:
            results = self._translate(equation, [name_of(atom) for atom in equation.invars])
            names.update(zip(equation.outvars, results, strict=True))
        return [name_of(atom) for atom in jaxpr.outvars]

    def _translate(self, equation: Any, inputs: list[str]) -> list[str]:
        kind = equation.primitive.name
        shapes = [var.aval.shape for var in equation.outvars]
        inner = next((equation.params[key] for key in _INNER if key in equation.params), None)
        if inner is not None:
            closed = inner if isinstance(inner, ClosedJaxpr) else ClosedJaxpr(inner, ())
            return self.inline(closed, inputs[len(inputs) - len(closed.jaxpr.invars) :])
        if kind not in RULES:
            if not all(name in self.constants for name in inputs) or not is_plain(shapes[0]):
                raise ExportError(
                    f"The policy cannot be exported: it uses {kind!r}, for which there is no rule "
                    "yet. The policy itself is at hand in Python: trimtab.load(RUN).policy(obs)."
                )
            known = [jax.numpy.asarray(self.constants[name]) for name in inputs]
            values = equation.primitive.bind(*known, **equation.params)
            several = equation.primitive.multiple_results
            return [self.constant(value) for value in (values if several else [values])]
        result = RULES[kind](self, inputs, equation)
        return result if isinstance(result, list) else [result]

    # Shapes

    def whole(self, name: str, shape: Shape) -> str:
        """The value in the full shape that JAX has it in."""
        if tuple(self.shapes[name]) == tuple(shape):
            return name
        return self.add("Expand", name, self.shape_of(shape), shape=shape)

    def shape_of(self, shape: Shape) -> str:
        """A shape as a value: known now, or but for the size of the batch."""
        if is_plain(shape):
            return self.constant(np.asarray(shape, np.int64))
        if self._size is None:
            self._size = self.add("Shape", self.batch_of, shape=(1,), start=0, end=1)
        parts = [
            self.constant(np.asarray([size], np.int64)) if is_plain([size]) else self._size
            for size in shape
        ]
        return self.add("Concat", *parts, shape=(len(parts),), axis=0)

    def reshaped(self, name: str, shape: Shape) -> str:
        """ONNX works out one size by itself: that of the batch."""
        if tuple(self.shapes[name]) == tuple(shape):
            return name
        sizes = [int(size) if is_plain([size]) else -1 for size in shape]
        assert sizes.count(-1) <= 1
        return self.add("Reshape", name, self.constant(np.asarray(sizes, np.int64)), shape=shape)

    def transposed(self, name: str, order: Sequence[int]) -> str:
        if list(order) == list(range(len(order))):
            return name
        shape = [self.shapes[name][axis] for axis in order]
        return self.add("Transpose", name, shape=shape, perm=[int(axis) for axis in order])

    def cast(self, name: str, dtype: Any) -> str:
        return self.add("Cast", name, shape=self.shapes[name], to=str(np.dtype(dtype)))

    def broadcast(self, *names: str) -> Shape:
        """The shape of an elementwise operation on these."""
        longest = max((self.shapes[name] for name in names), key=len)
        aligned = [(1,) * (len(longest) - len(self.shapes[n])) + (*self.shapes[n],) for n in names]
        return [
            next((size for size in sizes if not is_one(size)), 1)
            for sizes in zip(*aligned, strict=True)
        ]
