"""Import gymnax without the drawing libraries that it does not need for stepping."""

import importlib
from typing import Any


def import_gymnax() -> Any:
    """The gymnax package."""
    return importlib.import_module("gymnax")
