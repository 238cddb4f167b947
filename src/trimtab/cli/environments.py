"""Flags about environments that several commands have."""

import os
import sys
import tomllib
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


def env_option(text: str) -> tuple[str, Any]:
    """``size=8`` as a name and a value; a value is a TOML literal, or else plain text."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise SettingError(
            f"--env-option {text} is not valid: expected NAME=VALUE, such as is_slippery=false."
        )
    if value.strip().lower() in ("true", "false"):
        value = value.lower()
    try:
        return name.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return name.strip(), value


ENV = Flag(
    "env",
    str,
    "",
    "the environment, such as CartPole-v1; `trimtab envs` lists them",
    metavar="ENV",
    positional=True,
)
ENV_OPTION = Flag(
    "env_option",
    tuple,
    (),
    "options of the environment, such as is_slippery=false size=8",
    metavar="NAME=VALUE",
    read=env_option,
)
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
