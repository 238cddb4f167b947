"""A graph computed with numpy: what a file means, in a hundred lines, and a check of it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from trimtab.export.graph import Graph

Values = dict[str, np.ndarray]


def evaluate(graph: Graph, inputs: Mapping[str, np.ndarray]) -> Values:
    """Every value of the graph, by name, for a batch of inputs."""
    values: Values = {**graph.constants, **inputs}
    for operation in graph.operations:
        arguments = [values[name] for name in operation.inputs]
        function = FUNCTIONS[operation.kind]
        values[operation.output] = np.asarray(function(*arguments, **operation.attributes))
    return values


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-x.astype(np.float64)))).astype(x.dtype)


def _erf(x: np.ndarray) -> np.ndarray:
    import math

    return np.vectorize(math.erf)(x).astype(x.dtype)


def _shape(x: np.ndarray, start: int, end: int) -> np.ndarray:
    return np.asarray(x.shape[start:end], np.int64)


def _slice(x: np.ndarray, *parts: np.ndarray) -> np.ndarray:
    cut = [slice(None)] * x.ndim
    for start, stop, axis, step in zip(*parts, strict=True):
        cut[axis] = slice(int(start), int(stop), int(step))
    return x[tuple(cut)]


def _reduced(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda x, axes, keepdims: function(x, axis=tuple(axes), keepdims=bool(keepdims))


def _conv(
    image: np.ndarray,
    kernel: np.ndarray,
    *,
    strides: list[int],
    dilations: list[int],
    pads: list[int],
    group: int,
) -> np.ndarray:
    """[B, C, H, W] with [O, C / group, h, w], one place of the kernel after the other."""
    (down, right), (_, inputs, height, width) = strides, kernel.shape
    image = np.pad(image, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    rows = (image.shape[2] - dilations[0] * (height - 1) - 1) // down + 1
    columns = (image.shape[3] - dilations[1] * (width - 1) - 1) // right + 1
    parts = image.reshape(image.shape[0], group, inputs, *image.shape[2:])
    weights = kernel.reshape(group, -1, *kernel.shape[1:])
    result = 0.0
    for i in range(height):
        for j in range(width):
            top, left = i * dilations[0], j * dilations[1]
            seen = parts[..., top : top + down * rows : down, left : left + right * columns : right]
            result = result + np.einsum("bgchw,goc->bgohw", seen, weights[..., i, j])
    return np.asarray(result).reshape(image.shape[0], -1, rows, columns).astype(image.dtype)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "Abs": np.abs,
    "Add": np.add,
    "And": np.logical_and,
    "ArgMax": lambda x, axis, keepdims: np.argmax(x, axis),
    "Cast": lambda x, to: x.astype(to),
    "Ceil": np.ceil,
    "Concat": lambda *parts, axis: np.concatenate(parts, axis),
    "Conv": _conv,
    "Cos": np.cos,
    "Div": np.divide,
    "Einsum": lambda *parts, equation: np.einsum(equation, *parts),
    "Equal": np.equal,
    "Erf": _erf,
    "Exp": np.exp,
    "Expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(x.shape, tuple(shape))),
    "Floor": np.floor,
    "Gather": lambda x, indices, axis: np.take(x, indices, axis),
    "Greater": np.greater,
    "GreaterOrEqual": np.greater_equal,
    "Identity": lambda x: x,
    "Less": np.less,
    "LessOrEqual": np.less_equal,
    "Log": np.log,
    "MatMul": np.matmul,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "Neg": np.negative,
    "Not": np.logical_not,
    "Or": np.logical_or,
    "Pow": np.power,
    "Reciprocal": np.reciprocal,
    "ReduceMax": _reduced(np.max),
    "ReduceMin": _reduced(np.min),
    "ReduceSum": _reduced(np.sum),
    "Reshape": lambda x, shape: x.reshape(shape),
    "Shape": _shape,
    "Sigmoid": _sigmoid,
    "Sign": np.sign,
    "Sin": np.sin,
    "Slice": _slice,
    "Sqrt": np.sqrt,
    "Sub": np.subtract,
    "Tanh": np.tanh,
    "Transpose": lambda x, perm: np.transpose(x, perm),
    "Where": np.where,
}
