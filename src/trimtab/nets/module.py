"""``module``: a frozen dataclass whose arrays are the leaves of a pytree.

This is the part of ``equinox.Module`` that networks here need; without it, loading equinox is an
eighth of the time from the shell to a trained CartPole.
"""

import dataclasses
from collections.abc import Iterable
from typing import Any, TypeVar, dataclass_transform

import jax

Class = TypeVar("Class", bound=type)


def static(**options: Any) -> Any:
    """A field that is part of the structure: it must be hashable, and is never traced."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def module(cls: Class) -> Class:
    """Make ``cls`` a frozen dataclass and a pytree; ``static`` fields are its structure."""
    frozen: Any = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)
    arrays = [field.name for field in fields if not field.metadata.get("static")]
    structure = [field.name for field in fields if field.metadata.get("static")]

    def flatten(instance: Any) -> tuple[list[Any], tuple[Any, ...]]:
        keyed = [(jax.tree_util.GetAttrKey(name), getattr(instance, name)) for name in arrays]
        return keyed, tuple(getattr(instance, name) for name in structure)

    def unflatten(statics: tuple[Any, ...], leaves: Iterable[Any]) -> Any:
        # Past __init__: leaves may be shapes, axes or gradients in place of arrays.
        made = object.__new__(frozen)
        for name, value in zip([*arrays, *structure], [*leaves, *statics], strict=True):
            object.__setattr__(made, name, value)
        return made

    jax.tree_util.register_pytree_with_keys(frozen, flatten, unflatten)
    return frozen
