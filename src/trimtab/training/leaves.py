"""The leaves of a state as named plain arrays, and back, bit for bit.

A leaf's name is its key path, such as ``learner/params/0/weight``: the first part names the file it
is stored in, the rest its place inside. Three kinds of leaf need care: typed keys are stored as
their ``key_data``, types that numpy lacks (bfloat16) as unsigned integers of their size, and
Python's own numbers (a count of steps, which may pass 2³¹) stay Python's.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import jax
import jax.numpy as jnp
import numpy as np

from trimtab.errors import CheckpointError

_PYTHON_NUMBERS: dict[type, Any] = {bool: np.bool_, int: np.int64, float: np.float64}
_WHOLE_TREE = "value"


class Form(NamedTuple):
    """What a leaf is (as the manifest says it), and as what it is stored."""

    dtype: str
    shape: tuple[int, ...]
    stored_dtype: np.dtype
    stored_shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype} {self.shape}"


class StoredLeaf(NamedTuple):
    """One leaf on the host, ready to be written."""

    name: str
    form: Form
    key_implementation: str | None
    array: np.ndarray


def snapshot(tree: Any) -> list[StoredLeaf]:
    """The leaves of ``tree`` on the host, in memory of their own.

    On the CPU, JAX would show the device's memory itself, which is gone once the state is donated
    to the next update.
    """
    named = _named_leaves(tree)
    keys = {name: leaf for name, leaf in named.items() if _is_key(leaf)}
    data = {name: jax.random.key_data(leaf) for name, leaf in keys.items()}
    forms = {name: form_of(name, leaf) for name, leaf in named.items()}
    on_host = jax.device_get({**named, **data})  # one wait for all of them
    stored = []
    for name, form in forms.items():
        implementation = str(jax.random.key_impl(keys[name])) if name in keys else None
        stored.append(StoredLeaf(name, form, implementation, _as_stored(name, on_host[name], form)))
    return stored


def _as_stored(name: str, value: Any, form: Form) -> np.ndarray:
    if type(value) not in _PYTHON_NUMBERS:
        return np.array(value, order="K").view(form.stored_dtype)
    try:
        return np.asarray(value, form.stored_dtype)
    except OverflowError:
        raise CheckpointError(
            f"{name} = {value} cannot be saved: expected a whole number of at most 64 bits."
        ) from None


def forms_of(tree: Any) -> dict[str, Form]:
    """The form of each leaf of ``tree``, by name; arrays may be only their shapes and types."""
    return {name: form_of(name, leaf) for name, leaf in _named_leaves(tree).items()}


def form_of(name: str, leaf: Any) -> Form:
    """How ``leaf`` is described and stored, or an error that says why it cannot be."""
    if type(leaf) in _PYTHON_NUMBERS:
        return Form(f"Python {type(leaf).__name__}", (), np.dtype(_PYTHON_NUMBERS[type(leaf)]), ())
    dtype, shape = getattr(leaf, "dtype", None), getattr(leaf, "shape", None)
    if dtype is not None and shape is not None:
        if _is_key(leaf):
            data = jax.eval_shape(jax.random.key_data, leaf)
            return Form(str(dtype), tuple(shape), np.dtype(data.dtype), tuple(data.shape))
        if jnp.issubdtype(dtype, np.number) or dtype == np.bool_:
            # What numpy itself lacks would be written as raw bytes that forget their type.
            plain = dtype if dtype.isbuiltin != 2 else np.dtype(f"u{dtype.itemsize}")
            return Form(str(dtype), tuple(shape), plain, tuple(shape))
    raise CheckpointError(
        f"{name} is {leaf!r} of type {type(leaf).__name__}, which cannot be saved: a checkpoint "
        "holds numbers and arrays of numbers. Keep it out of the state, as a static field."
    )


def restored(
    like: Any, arrays: Mapping[str, np.ndarray], implementations: Mapping[str, str]
) -> Any:
    """``like`` with its leaves replaced by the stored ``arrays``, each of ``like``'s own kind.

    Nothing aliases ``arrays``: the state may be donated.
    """
    leaves = []
    for name, leaf in _named_leaves(like).items():
        array = arrays[name]
        if type(leaf) in _PYTHON_NUMBERS:
            leaves.append(type(leaf)(array.item()))
        elif _is_key(leaf):
            data = jax.device_put(array, may_alias=False)
            leaves.append(_placed_like(leaf, _key(name, data, implementations.get(name, ""))))
        else:
            value = array.view(leaf.dtype)
            is_numpy = isinstance(leaf, (np.ndarray, np.generic))
            leaves.append(_numpy_like(leaf, value) if is_numpy else _placed_like(leaf, value))
        if getattr(leaves[-1], "dtype", None) != getattr(leaf, "dtype", None):
            raise CheckpointError(
                f"{name} was loaded as {leaves[-1].dtype}, but {leaf.dtype} was saved and is "
                "expected. Set JAX_ENABLE_X64 and JAX_DEFAULT_PRNG_IMPL as they were for the run."
            )
    return jax.tree.unflatten(jax.tree.structure(like), leaves)


def _key(name: str, data: jax.Array, implementation: str) -> jax.Array:
    try:
        return jax.random.wrap_key_data(data, impl=implementation)
    except (ValueError, TypeError) as error:
        raise CheckpointError(
            f"{name} is a random key of the kind {implementation!r}, which this JAX does not "
            "know. Install the version of JAX that the checkpoint's manifest names."
        ) from error


def _numpy_like(leaf: Any, value: np.ndarray) -> Any:
    copy = value.copy()
    return copy[()] if isinstance(leaf, np.generic) else copy


def _placed_like(leaf: Any, value: Any) -> jax.Array:
    # Where the array was pinned to devices it is pinned to the same ones, and elsewhere it is left
    # free: a different commitment would make every jitted step compile again.
    pinned = leaf.sharding if getattr(leaf, "committed", False) else None
    return jax.device_put(value, pinned, may_alias=False)


def _is_key(leaf: Any) -> bool:
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def _named_leaves(tree: Any) -> dict[str, Any]:
    named: dict[str, Any] = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        parts = [_safe(jax.tree_util.keystr((key,), simple=True)) for key in path]
        name = "/".join(parts) or _WHOLE_TREE
        if name in named:
            raise CheckpointError(f"Two leaves of the state are both called {name}; rename one.")
        named[name] = leaf
    return named


def _safe(part: str) -> str:
    """``part`` as one plain component of a path; different parts stay different."""
    quoted = quote(part, safe="")
    return quoted.replace(".", "%2E") if not quoted.strip(".") and quoted else quoted or "%"
