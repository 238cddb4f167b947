"""A JAX environment's types, from tracing it: what a compiled loop needs of ``reset`` and ``step``.

State and observation go round in a loop, so each must come out of a step as it went in: the same
structure, shapes, dtypes and weakness of types. That is known before anything runs.
"""

import traceback
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp

from trimtab.checking.findings import Finding
from trimtab.spaces import zeros
from trimtab.types import JaxEnv


def of_tracing(env: JaxEnv) -> Iterator[Finding]:
    """What would keep a compiled loop from using it."""
    key = jax.eval_shape(lambda: jax.random.key(0))
    action = zeros(env.spec.action)
    try:
        state, obs = jax.eval_shape(env.reset, key)
    except Exception as error:
        yield _untraceable("reset", error)
        return
    try:
        after, step = jax.eval_shape(env.step, key, state, action)
    except Exception as error:
        yield _untraceable("step", error)
        return
    yield from _same_types("state", state, after)
    promised = zeros(env.spec.observation)
    yield from _as_promised("reset", promised, obs)
    yield from _as_promised("step", promised, step.obs)
    for name, wanted in (
        ("reward", jnp.float32),
        ("terminated", jnp.bool_),
        ("truncated", jnp.bool_),
    ):
        given = _aval(getattr(step, name))
        if given.shape != () or given.dtype != wanted:
            yield Finding(
                "error", "step", f"its {name} is {_words(given)}, for one lane", "step()",
                f"return one {jnp.dtype(wanted).name}: jnp.asarray({name}, jnp."
                f"{'bool_' if wanted is jnp.bool_ else 'float32'})",
            )  # fmt: skip


def _untraceable(name: str, error: Exception) -> Finding:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return Finding(
        "error",
        name,
        f"{name}() cannot be compiled: {type(error).__name__}: {first}",
        f"{name}()",
        "use jnp in place of numpy, and jnp.where or lax.cond in place of if on what is computed",
        traceback.format_exc(),
    )


def _same_types(what: str, before: Any, after: Any) -> Iterator[Finding]:
    """The state must come out of a step as it went in."""
    if jax.tree.structure(before) != jax.tree.structure(after):
        yield Finding(
            "error", "step", f"the {what} after a step has the structure "
            f"{jax.tree.structure(after)}, and after reset {jax.tree.structure(before)}",
            "step()", "return the same kind of tree from both",
        )  # fmt: skip
        return
    pairs = zip(jax.tree_util.tree_leaves_with_path(before), jax.tree.leaves(after), strict=True)
    for (path, old), new in pairs:
        one, other = _aval(old), _aval(new)
        if (one.shape, one.dtype) != (other.shape, other.dtype):
            yield Finding(
                "error", "step", f"the {what}{jax.tree_util.keystr(path)} is {_words(other)} after "
                f"a step, and {_words(one)} after reset", "step()",
                "give both the same dtype and shape, as in jnp.float32(…) and jnp.int32(…)",
            )  # fmt: skip
        elif _weak(old) != _weak(new):
            yield Finding(
                "warning", "step", f"the {what}{jax.tree_util.keystr(path)} is weakly typed "
                f"{'after a step' if _weak(new) else 'after reset'} only: a loop compiles twice",
                "step()", "make it an array of a dtype, as in jnp.float32(0)",
            )  # fmt: skip


def _as_promised(name: str, promised: Any, given: Any) -> Iterator[Finding]:
    """Observations must be what the specification says."""
    if jax.tree.structure(promised) != jax.tree.structure(given):
        yield Finding(
            "error", name, f"the observation is {jax.tree.structure(given)}; its space is "
            f"{jax.tree.structure(promised)}", f"{name}()", "return what the spec promises",
        )  # fmt: skip
        return
    pairs = zip(jax.tree_util.tree_leaves_with_path(promised), jax.tree.leaves(given), strict=True)
    for (path, wanted), leaf in pairs:
        have = _aval(leaf)
        if (have.shape, have.dtype) != (wanted.shape, wanted.dtype):
            yield Finding(
                "error", name, f"the observation{jax.tree_util.keystr(path)} is {_words(have)}; "
                f"its space is {_words(wanted)}", f"{name}()",
                "return what the spec promises, or change the spec",
            )  # fmt: skip


def _aval(leaf: Any) -> Any:
    return leaf if hasattr(leaf, "dtype") else jnp.asarray(leaf)


def _weak(leaf: Any) -> bool:
    return bool(getattr(leaf, "weak_type", False))


def _words(array: Any) -> str:
    shape = ", ".join(map(str, array.shape))
    return f"{array.dtype}[{shape}]" if array.shape else f"one {array.dtype}"
