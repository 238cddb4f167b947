"""Algorithms by name."""

import importlib
from typing import Any

_HOMES = {"ppo": ("trimtab.algos.ppo", "PPO")}


def algorithm_class(name: str) -> Any:
    """The algorithm of that name; its module, and JAX with it, is loaded now."""
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
