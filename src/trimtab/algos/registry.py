"""Algorithms by name."""

import importlib
from typing import Any

_HOMES = {
    "ppo": ("trimtab.algos.ppo", "PPO"),
    "a2c": ("trimtab.algos.a2c", "A2C"),
    "reinforce": ("trimtab.algos.reinforce", "REINFORCE"),
}


def algorithm_class(name: str) -> Any:
    """The algorithm of that name; its module, and JAX with it, is loaded now."""
    module, attribute = _HOMES[name]
    return getattr(importlib.import_module(module), attribute)
