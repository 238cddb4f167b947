"""``module``: a frozen dataclass whose arrays are the leaves of a pytree.

This is the part of ``equinox.Module`` that networks here need; without it, loading equinox is an
eighth of the time from the shell to a trained CartPole.
"""

import dataclasses
from typing import Any, TypeVar, dataclass_transform

import jax

Class = TypeVar("Class", bound=type)


def static(**options: Any) -> Any:
    """A field that is part of the structure: it must be hashable, and is never traced."""
    return dataclasses.field(metadata={"static": True}, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(static, dataclasses.field))
def module(cls: Class) -> Class:
    """Make ``cls`` a frozen dataclass and a pytree; ``static`` fields are its structure."""
    frozen = dataclasses.dataclass(frozen=True)(cls)
    fields = dataclasses.fields(frozen)
    names = {
        kind: [f.name for f in fields if f.metadata.get("static", False) is kind]
        for kind in (False, True)
    }
    return jax.tree_util.register_dataclass(
        frozen, data_fields=names[False], meta_fields=names[True]
    )
