"""What an environment says of itself, as a file of a run: a policy is used without the environment.

JSON has no infinity; ``log.writer`` writes it as a text, and reads it back.
"""

import json
from pathlib import Path
from typing import Any

from trimtab.errors import RunFolderError
from trimtab.log.writer import from_json, to_json
from trimtab.spaces import Box, Dict, Discrete, EnvSpec, MultiBinary, MultiDiscrete, Space

SPEC_FILE = "spec.json"


def space_to_json(space: Space) -> dict[str, Any]:
    """``{"Box": {"shape": [4], …}}``: the kind and what it was made with."""
    match space:
        case Box():
            made: dict[str, Any] = {
                "shape": space.shape,
                "low": space.low,
                "high": space.high,
                "dtype": space.dtype,
            }
        case Dict():
            made = {key: space_to_json(part) for key, part in space.items}
        case MultiDiscrete():
            made = {"nvec": space.nvec}
        case Discrete() | MultiBinary():
            made = {"n": space.n}
    return {type(space).__name__: to_json(made)}


def space_from_json(described: Any) -> Space:
    """The space that ``space_to_json`` was given; ValueError, KeyError or TypeError if none."""
    ((kind, made),) = described.items()
    if kind == "Dict":
        return Dict(tuple((key, space_from_json(part)) for key, part in made.items()))
    if kind == "Box":
        bounds = (tuple(map(float, from_json(made[end]))) for end in ("low", "high"))
        return Box(tuple(map(int, made["shape"])), *bounds, dtype=str(made["dtype"]))
    if kind == "MultiDiscrete":
        return MultiDiscrete(tuple(map(int, made["nvec"])))
    return {"Discrete": Discrete, "MultiBinary": MultiBinary}[kind](int(made["n"]))


def write_spec(folder: Path, spec: EnvSpec) -> None:
    """``spec.json`` in a run's folder."""
    document = {
        "id": spec.id,
        "observation": space_to_json(spec.observation),
        "action": space_to_json(spec.action),
        "max_episode_steps": spec.max_episode_steps,
        "solved_at": spec.solved_at,
    }
    aside = folder / f".{SPEC_FILE}.partial"
    aside.write_text(json.dumps(document, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    aside.replace(folder / SPEC_FILE)


def read_spec(folder: Path) -> EnvSpec | None:
    """The spec in a run's folder, or None where there is none."""
    path = folder / SPEC_FILE
    if not path.is_file():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return EnvSpec(
            str(found["id"]),
            space_from_json(found["observation"]),
            space_from_json(found["action"]),
            found["max_episode_steps"],
            found["solved_at"],
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RunFolderError(
            f"{path} is damaged: it does not describe an environment's spaces. Restore it from a "
            "copy, or remove it: then the environment itself is asked."
        ) from error
