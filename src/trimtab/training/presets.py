"""Settings that are known to work, one file for each environment where they were tuned."""

import tomllib
from importlib import resources
from typing import Any


def preset(env_id: str, algorithm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(training settings, algorithm settings) for an environment; empty where none are known."""
    name = env_id.partition(":")[2] or env_id
    return named_preset(name.lower(), algorithm)


def named_preset(name: str, algorithm: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The preset of that file name, without its ending."""
    file = resources.files("trimtab") / "presets" / f"{name}.toml"
    if not file.is_file():
        return {}, {}
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    if algorithm not in tables:
        return {}, {}
    training = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    return training, tables[algorithm]
