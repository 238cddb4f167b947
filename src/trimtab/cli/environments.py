"""Flags about environments that several commands have."""

import os
import sys
from typing import Any

from trimtab.cli.flags import Flag
from trimtab.errors import SettingError


def package_name(text: str) -> str:
    """The dotted name of a module, or an error."""
    if not all(part.isidentifier() for part in text.split(".")):
        raise SettingError(
            f"--import {text} is not valid: expected the name of a package, such as my_package."
        )
    return text


IMPORT = Flag(
    "imports",
    tuple,
    (),
    "packages that register environments of yours with Gymnasium; they are imported, and no other",
    metavar="PACKAGE",
    read=package_name,
    spelled="--import",
)


def import_given(values: Any) -> None:
    """Import the packages that were named, from the working folder too, as Python does."""
    if not values:
        return
    from trimtab.envs.make import import_packages

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    import_packages(values)
