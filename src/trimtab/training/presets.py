"""Settings that are known to work: a file for each environment where they were tuned, and general
ones for each kind of environment.

A file holds settings of the run at its top, and a table for each algorithm that it is for; what
stands in such a table, settings of the run too, goes over what stands at the top.
"""

import dataclasses
import tomllib
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any


@dataclasses.dataclass(frozen=True)
class Preset:
    """A preset's settings for one algorithm."""

    name: str = ""  # of its file, without the ending; none: there is no preset
    values: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    general: bool = False  # for a kind of environment, and not for this one

    def words(self, env_id: str, algorithm: str) -> str:
        """A sentence on which preset was taken; nothing where there is none."""
        if not self.name:
            return ""
        if self.general:
            return (
                f"Settings: the general preset {self.name!r}; none was tuned for {env_id} with "
                f"{algorithm}."
            )
        return f"Settings: the preset {self.name!r}, tuned for this environment."


def preset_for(env_id: str, algorithm: str, kind: Callable[[], str | None]) -> Preset:
    """The environment's own preset, or else the general one of its kind.

    ``kind`` is asked only then: to know it, an environment may have to be made.
    """
    name = env_id.rpartition(":")[2].lower()
    values = preset_values(name, algorithm) if name else None
    if values is not None:
        return Preset(name, values)
    general = kind() if name else None
    values = preset_values(general, algorithm) if general else None
    return Preset() if general is None or values is None else Preset(general, values, general=True)


def preset_values(name: str, algorithm: str) -> dict[str, Any] | None:
    """What the preset of that name has for an algorithm; None if it is not for it."""
    file = resources.files("trimtab") / "presets" / f"{name}.toml"
    if not file.is_file():
        return None
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    if algorithm not in tables:
        return None
    of_all = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    return {**of_all, **tables[algorithm]}
