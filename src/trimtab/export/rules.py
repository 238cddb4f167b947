"""What each primitive of JAX is in operations of ONNX: the table is at the end.

A rule is given the translator, the names of the primitive's inputs, and its equation in the jaxpr;
it adds operations, and returns the name of the result, or the names of several.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from trimtab.errors import ExportError

if TYPE_CHECKING:
    from trimtab.export.trace import Translator

Shape = Sequence[Any]  # of numbers, and of the symbol for the batch
Rule = Callable[["Translator", list[str], Any], Any]


def is_plain(shape: Shape) -> bool:
    """Whether all sizes are numbers."""
    return all(isinstance(size, (int, np.integer)) for size in shape)


def is_one(size: Any) -> bool:
    return is_plain([size]) and int(size) == 1


def _elementwise(kind: str, **attributes: Any) -> Rule:
    def rule(to: "Translator", inputs: list[str], equation: Any) -> str:
        return to.add(kind, *inputs, shape=to.broadcast(*inputs), **attributes)

    return rule


def _chain(*kinds: str) -> Rule:
    """One after the other, each on one value."""

    def rule(to: "Translator", inputs: list[str], equation: Any) -> str:
        (value,) = inputs
        for kind in kinds:
            value = to.add(kind, value, shape=to.shapes[value])
        return value

    return rule


def _same(to: "Translator", inputs: list[str], equation: Any) -> str:
    return inputs[0]


def _one_like(to: "Translator", equation: Any, value: float = 1) -> str:
    return to.constant(np.asarray(value, equation.outvars[0].aval.dtype))


def _square(to: "Translator", inputs: list[str], equation: Any) -> str:
    return to.add("Mul", inputs[0], inputs[0], shape=to.shapes[inputs[0]])


def _integer_pow(to: "Translator", inputs: list[str], equation: Any) -> str:
    exponent = _one_like(to, equation, equation.params["y"])
    return to.add("Pow", inputs[0], exponent, shape=to.shapes[inputs[0]])


def _log1p(to: "Translator", inputs: list[str], equation: Any) -> str:
    shape = to.shapes[inputs[0]]
    above = to.add("Add", inputs[0], _one_like(to, equation), shape=shape)
    return to.add("Log", above, shape=shape)


def _expm1(to: "Translator", inputs: list[str], equation: Any) -> str:
    shape = to.shapes[inputs[0]]
    power = to.add("Exp", inputs[0], shape=shape)
    return to.add("Sub", power, _one_like(to, equation), shape=shape)


def _not_equal(to: "Translator", inputs: list[str], equation: Any) -> str:
    shape = to.broadcast(*inputs)
    return to.add("Not", to.add("Equal", *inputs, shape=shape), shape=shape)


def _select(to: "Translator", inputs: list[str], equation: Any) -> str:
    which, if_false, if_true = inputs
    if equation.invars[0].aval.dtype != np.bool_:
        which = to.cast(which, np.bool_)
    return to.add("Where", which, if_true, if_false, shape=to.broadcast(*inputs))


def _clamp(to: "Translator", inputs: list[str], equation: Any) -> str:
    low, value, high = inputs
    above = to.add("Max", value, low, shape=to.broadcast(value, low))
    return to.add("Min", above, high, shape=to.broadcast(above, high))


def _convert(to: "Translator", inputs: list[str], equation: Any) -> str:
    wanted = equation.params["new_dtype"]
    return inputs[0] if equation.invars[0].aval.dtype == wanted else to.cast(inputs[0], wanted)


def _reshape(to: "Translator", inputs: list[str], equation: Any) -> str:
    value = to.whole(inputs[0], equation.invars[0].aval.shape)
    return to.reshaped(value, equation.outvars[0].aval.shape)


def _broadcast(to: "Translator", inputs: list[str], equation: Any) -> str:
    """Only the axes are put into place: elementwise operations do the rest."""
    wanted = equation.outvars[0].aval.shape
    shape: list[Any] = [1] * len(wanted)
    axes = equation.params["broadcast_dimensions"]
    for axis, size in zip(axes, to.shapes[inputs[0]], strict=True):
        shape[axis] = size
    return to.reshaped(inputs[0], shape)


def _transpose(to: "Translator", inputs: list[str], equation: Any) -> str:
    return to.transposed(inputs[0], equation.params["permutation"])


def _concatenate(to: "Translator", inputs: list[str], equation: Any) -> str:
    whole = [
        to.whole(name, atom.aval.shape) for name, atom in zip(inputs, equation.invars, strict=True)
    ]
    axis = int(equation.params["dimension"])
    return to.add("Concat", *whole, shape=equation.outvars[0].aval.shape, axis=axis)


def _slice(to: "Translator", inputs: list[str], equation: Any) -> str:
    given = equation.invars[0].aval.shape
    start, limit = equation.params["start_indices"], equation.params["limit_indices"]
    strides = equation.params["strides"] or [1] * len(given)
    axes = [a for a in range(len(given)) if not (start[a] == 0 and limit[a] == given[a])]
    return _sliced(to, to.whole(inputs[0], given), axes, start, limit, strides, equation.outvars[0])


def _sliced(
    to: "Translator",
    name: str,
    axes: Sequence[int],
    start: Sequence[int],
    limit: Sequence[int],
    strides: Sequence[int],
    result: Any,
) -> str:
    parts = [
        to.constant(np.asarray([int(part[axis]) for axis in axes], np.int64))
        for part in (start, limit, range(len(start)), strides)
    ]
    return to.add("Slice", name, *parts, shape=result.aval.shape) if axes else name


def _split(to: "Translator", inputs: list[str], equation: Any) -> list[str]:
    given = equation.invars[0].aval.shape
    whole, axis = to.whole(inputs[0], given), int(equation.params["axis"])
    found, begin = [], 0
    for size, result in zip(equation.params["sizes"], equation.outvars, strict=True):
        start, limit = [0] * len(given), [0] * len(given)
        start[axis], limit[axis] = begin, begin + int(size)
        found.append(_sliced(to, whole, [axis], start, limit, [1] * len(given), result))
        begin += int(size)
    return found


def _gather(to: "Translator", inputs: list[str], equation: Any) -> str:
    """Whole slices at indices along one axis, as ``x[:, [3, 1]]`` has them."""
    numbers, given = equation.params["dimension_numbers"], equation.invars[0].aval.shape
    sizes = equation.params["slice_sizes"]
    axes = tuple(int(axis) for axis in numbers.start_index_map)
    others = [axis for axis in range(len(given)) if axis not in axes]
    is_simple = (
        len(axes) == 1
        and tuple(map(int, numbers.collapsed_slice_dims)) == axes
        and not numbers.operand_batching_dims
        and all(sizes[axis] == given[axis] for axis in others)
        and inputs[1] in to.constants
    )
    if not is_simple:
        raise ExportError("The policy cannot be exported: it indexes arrays in a way without rule.")
    (axis,) = axes
    indices = to.constants[inputs[1]][..., 0]
    found = to.add(
        "Gather",
        to.whole(inputs[0], given),
        to.constant(indices.astype(np.int64)),
        shape=[*given[:axis], *indices.shape, *given[axis + 1 :]],
        axis=axis,
    )
    # ONNX leaves the indices where the axis was; JAX puts what is sliced at these places.
    result = equation.outvars[0].aval.shape
    sliced = [place for place in range(len(result)) if place in numbers.offset_dims]
    picked = [place for place in range(len(result)) if place not in numbers.offset_dims]
    is_at = [*sliced[:axis], *picked, *sliced[axis:]]
    return to.transposed(found, np.argsort(is_at).tolist())


def _dot(to: "Translator", inputs: list[str], equation: Any) -> str:
    (over_left, over_right), (batch_left, batch_right) = equation.params["dimension_numbers"]
    left, right = (
        to.whole(name, atom.aval.shape) for name, atom in zip(inputs, equation.invars, strict=True)
    )
    shape = equation.outvars[0].aval.shape
    ranks = [len(atom.aval.shape) for atom in equation.invars]
    is_plain_product = (tuple(over_left), tuple(over_right)) == ((ranks[0] - 1,), (0,))
    if is_plain_product and not batch_left and ranks[1] == 2 and ranks[0] >= 2:
        return to.add("MatMul", left, right, shape=shape)
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    names = [[""] * rank for rank in ranks]
    pairs = zip((*batch_left, *over_left), (*batch_right, *over_right), strict=True)
    for axis_left, axis_right in pairs:
        names[0][axis_left] = names[1][axis_right] = next(letters)
    free: list[str] = []
    for axes in names:
        for axis, letter in enumerate(axes):
            axes[axis] = letter or next(letters)
            if not letter:
                free.append(axes[axis])
    result = [names[0][axis] for axis in batch_left] + free
    terms = f"{''.join(names[0])},{''.join(names[1])}->{''.join(result)}"
    return to.add("Einsum", left, right, shape=shape, equation=terms)


def _convolve(to: "Translator", inputs: list[str], equation: Any) -> str:
    """ONNX has channels first: [batch, channels, ...] and [out, in, ...]."""
    params = equation.params
    numbers = params["dimension_numbers"]
    if set(params["lhs_dilation"]) != {1} or params["batch_group_count"] != 1:
        raise ExportError("The policy cannot be exported: transposed convolutions have no rule.")
    image, kernel = (
        to.transposed(to.whole(name, atom.aval.shape), order)
        for name, atom, order in zip(
            inputs, equation.invars, (numbers.lhs_spec, numbers.rhs_spec), strict=True
        )
    )
    padding = [int(p[0]) for p in params["padding"]] + [int(p[1]) for p in params["padding"]]
    shape = equation.outvars[0].aval.shape
    found = to.add(
        "Conv",
        image,
        kernel,
        shape=[shape[axis] for axis in numbers.out_spec],
        strides=[int(stride) for stride in params["window_strides"]],
        dilations=[int(dilation) for dilation in params["rhs_dilation"]],
        pads=padding,
        group=int(params["feature_group_count"]),
    )
    return to.transposed(found, np.argsort(numbers.out_spec).tolist())


def _reduce(kind: str) -> Rule:
    def rule(to: "Translator", inputs: list[str], equation: Any) -> str:
        value = to.whole(inputs[0], equation.invars[0].aval.shape)
        axes = to.constant(np.asarray([int(a) for a in equation.params["axes"]], np.int64))
        shape = equation.outvars[0].aval.shape
        return to.add(kind, value, axes, shape=shape, keepdims=0)

    return rule


def _argmax(to: "Translator", inputs: list[str], equation: Any) -> str:
    value = to.whole(inputs[0], equation.invars[0].aval.shape)
    (axis,) = equation.params["axes"]
    shape = equation.outvars[0].aval.shape
    found = to.add("ArgMax", value, shape=shape, axis=int(axis), keepdims=0)
    return to.cast(found, equation.params["index_dtype"])


RULES: Mapping[str, Rule] = {
    **{
        name: _elementwise(kind)
        for name, kind in {
            "add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "max": "Max", "min": "Min",
            "pow": "Pow", "eq": "Equal", "lt": "Less", "gt": "Greater", "le": "LessOrEqual",
            "ge": "GreaterOrEqual", "and": "And", "or": "Or", "add_any": "Add",
        }.items()
    },
    **{
        name: _chain(*kinds)
        for name, kinds in {
            "neg": ["Neg"], "exp": ["Exp"], "log": ["Log"], "tanh": ["Tanh"], "abs": ["Abs"],
            "logistic": ["Sigmoid"], "sqrt": ["Sqrt"], "rsqrt": ["Sqrt", "Reciprocal"],
            "sign": ["Sign"], "floor": ["Floor"], "ceil": ["Ceil"], "erf": ["Erf"], "not": ["Not"],
            "sin": ["Sin"], "cos": ["Cos"],
        }.items()
    },
    "stop_gradient": _same,
    "copy": _same,
    "copy_p": _same,
    "reduce_precision": _same,
    "square": _square,
    "integer_pow": _integer_pow,
    "log1p": _log1p,
    "expm1": _expm1,
    "ne": _not_equal,
    "select_n": _select,
    "clamp": _clamp,
    "convert_element_type": _convert,
    "reshape": _reshape,
    "squeeze": _reshape,
    "expand_dims": _reshape,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "concatenate": _concatenate,
    "slice": _slice,
    "gather": _gather,
    "split": _split,
    "dot_general": _dot,
    "conv_general_dilated": _convolve,
    "reduce_sum": _reduce("ReduceSum"),
    "reduce_max": _reduce("ReduceMax"),
    "reduce_min": _reduce("ReduceMin"),
    "argmax": _argmax,
}  # fmt: skip
