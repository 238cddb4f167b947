"""The state of a Gymnasium environment as plain data, so that a resumed run goes on in mid-episode.

Gymnasium has no way to ask for it. What is known here: the classic, toy-text and MuJoCo
environments, and Gymnasium's own wrappers, of which every attribute that is a number, an array or a
random generator is state. Any other environment may have two methods,

    save_state() -> dict of numbers and arrays        load_state(state) -> None

and is then saved by them. Nothing is pickled: numbers and names are JSON, arrays are arrays.
"""

import json
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from trimtab.errors import CheckpointError

_KNOWN = (
    "gymnasium.envs.classic_control",
    "gymnasium.envs.toy_text",
    "gymnasium.envs.mujoco",
    "gymnasium.wrappers",
    "trimtab.envs",
)
_GENERATORS = {"PCG64": np.random.PCG64, "MT19937": np.random.MT19937}


class UnsavableError(Exception):
    """The state of an environment cannot be taken; a phrase that says why."""


class LaneStates(NamedTuple):
    """The states of some environments: a JSON text about all, and arrays with a row for each."""

    text: str
    arrays: list[np.ndarray]


def save_states(envs: Sequence[Any]) -> LaneStates:
    """The states of environments that were made alike."""
    documents, columns = [], []
    for env in envs:
        arrays: list[np.ndarray] = []
        documents.append([_save_layer(layer, arrays) for layer in _layers(env)])
        columns.append(arrays)
    forms = {tuple((array.shape, array.dtype) for array in arrays) for arrays in columns}
    if len(forms) > 1:
        raise UnsavableError("its lanes have states of different shapes")
    arrays = [np.stack(rows) for rows in zip(*columns, strict=True)]
    return LaneStates(json.dumps(documents), arrays)


def load_states(envs: Sequence[Any], states: LaneStates) -> None:
    """Put environments, which have been reset, into the states that others were in."""
    try:
        documents = json.loads(states.text)
        for row, (env, document) in enumerate(zip(envs, documents, strict=True)):
            arrays = [array[row] for array in states.arrays]
            for layer, saved in zip(_layers(env), document, strict=True):
                _load_layer(layer, saved, arrays)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(
            f"The environments' state in the checkpoint does not fit these environments ({error}). "
            "Resume with the packages that the run began with."
        ) from error


def joined_states(parts: Sequence[LaneStates]) -> LaneStates:
    """The states of several groups of lanes, one after the other, as one."""
    forms = {tuple((array.shape[1:], array.dtype) for array in part.arrays) for part in parts}
    if len(forms) > 1:
        raise UnsavableError("its lanes have states of different shapes")
    documents = [document for part in parts for document in json.loads(part.text)]
    columns = zip(*(part.arrays for part in parts), strict=True)
    return LaneStates(json.dumps(documents), [np.concatenate(rows) for rows in columns])


def states_of(states: LaneStates, lanes: range) -> LaneStates:
    """Those of some of the lanes."""
    part = slice(lanes.start, lanes.stop)
    documents = json.loads(states.text)[part]
    return LaneStates(json.dumps(documents), [array[part] for array in states.arrays])


def packed(states: LaneStates) -> dict[str, np.ndarray]:
    """The states as named arrays, for a checkpoint."""
    text = np.frombuffer(states.text.encode("ascii"), np.uint8)
    arrays = {f"state_array{number}": array for number, array in enumerate(states.arrays)}
    return {"state_text": text, **arrays}


def unpacked(saved: Mapping[str, np.ndarray]) -> LaneStates:
    """The states in ``saved``, among whatever else it holds."""
    if "state_text" not in saved:
        raise CheckpointError("The checkpoint does not hold the state of any environment.")
    count = sum(name.startswith("state_array") for name in saved)
    text = saved["state_text"].tobytes().decode("ascii", errors="replace")
    return LaneStates(text, [saved[f"state_array{number}"] for number in range(count)])


def _layers(env: Any) -> list[Any]:
    """The environment's wrappers, from the outermost, and what they wrap."""
    layers = [env]
    while hasattr(layers[-1], "env"):
        layers.append(layers[-1].env)
    return layers


def _kind(layer: Any) -> str:
    return f"{type(layer).__module__}.{type(layer).__qualname__}"


def _has_methods(layer: Any) -> bool:
    """Whether the layer itself has them: a wrapper forwards what it lacks to what it wraps."""
    return all(callable(getattr(type(layer), name, None)) for name in ("save_state", "load_state"))


def _is_known(layer: Any) -> bool:
    return type(layer).__module__.startswith(_KNOWN)


def _save_layer(layer: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    if _has_methods(layer):
        return {"kind": _kind(layer), "own": _encoded(layer.save_state(), arrays)}
    if not _is_known(layer):
        raise UnsavableError(f"{type(layer).__name__} has no methods save_state and load_state")
    document: dict[str, Any] = {"kind": _kind(layer), "attributes": _attributes(layer, arrays)}
    if "data" in vars(layer):  # MuJoCo's MjData
        document["data"] = {name: _encoded(value, arrays) for name, value in _simulation(layer)}
    return document


def _load_layer(layer: Any, saved: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
    if saved["kind"] != _kind(layer):
        raise ValueError(f"{saved['kind']} was saved, and {_kind(layer)} is here")
    if _has_methods(layer):
        layer.load_state(_decoded(saved["own"], arrays))
        return
    for name, value in saved["attributes"].items():
        if name not in vars(layer) or not _is_state(vars(layer)[name]):
            raise ValueError(f"{_kind(layer)} has no state {name!r}")
        setattr(layer, name, _decoded(value, arrays))
    simulation = dict(_simulation(layer)) if "data" in saved else {}
    for name, value in saved.get("data", {}).items():
        if isinstance(simulation[name], np.ndarray):
            simulation[name][...] = _decoded(value, arrays)
        else:
            setattr(layer.data, name, _decoded(value, arrays))


def _attributes(layer: Any, arrays: list[np.ndarray]) -> dict[str, Any]:
    return {
        name: _encoded(value, arrays) for name, value in vars(layer).items() if _is_state(value)
    }


def _is_state(value: Any) -> bool:
    """Whether an attribute is of a kind that states are made of."""
    if isinstance(value, (list, tuple, deque)):
        return all(map(_is_state, value))
    if isinstance(value, np.ndarray):
        return not value.dtype.hasobject and value.dtype.kind in "fiub"
    if isinstance(value, np.generic):
        return value.dtype.kind in "fiub"
    return value is None or isinstance(value, (bool, int, float, np.random.Generator))


def _simulation(layer: Any) -> list[tuple[str, Any]]:
    """The time and the arrays of an MjData.

    Observations and rewards read what the last step derived, so that positions and velocities are
    not enough. Arrays whose length depends on what touches what are empty in a new MjData; they are
    left out, since each step computes them anew.
    """
    new = type(layer.data)(layer.model)
    found: list[tuple[str, Any]] = [("time", layer.data.time)]
    for name in dir(new):
        fresh = None if name.startswith("_") else getattr(new, name, None)
        if isinstance(fresh, np.ndarray) and fresh.size and fresh.dtype.kind in "fiub":
            value = getattr(layer.data, name)
            if value.flags.writeable:
                found.append((name, value))
    return found


def _encoded(value: Any, arrays: list[np.ndarray]) -> Any:
    """``value`` as JSON, but for its arrays, which are added to ``arrays``."""
    if value is None or type(value) in (bool, int):
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, np.random.Generator):
        state = value.bit_generator.state
        if state["bit_generator"] not in _GENERATORS:
            raise UnsavableError(f"its random generator is a {state['bit_generator']}")
        plain = {key: _encoded(item, arrays) for key, item in state["state"].items()}
        rest = {key: state[key] for key in ("has_uint32", "uinteger") if key in state}
        return {"generator": state["bit_generator"], "state": plain, "rest": rest}
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        arrays.append(np.array(value))
        return {"array": len(arrays) - 1}
    if isinstance(value, np.generic) and value.dtype.kind in "fiub":
        arrays.append(np.array(value))
        return {"scalar": len(arrays) - 1}
    if isinstance(value, deque):
        return {"deque": [_encoded(item, arrays) for item in value], "maxlen": value.maxlen}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [_encoded(item, arrays) for item in value]}
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _encoded(item, arrays) for key, item in value.items()}}
    raise UnsavableError(f"its state holds a {type(value).__name__}")


def _decoded(value: Any, arrays: Sequence[np.ndarray]) -> Any:
    """What ``_encoded`` was given."""
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "generator" in value:
        name = value["generator"]
        generator = np.random.Generator(_GENERATORS[name]())
        state = {key: _decoded(item, arrays) for key, item in value["state"].items()}
        generator.bit_generator.state = {"bit_generator": name, "state": state, **value["rest"]}
        return generator
    if "array" in value:
        return np.array(arrays[value["array"]])
    if "scalar" in value:
        return np.asarray(arrays[value["scalar"]])[()]
    if "deque" in value:
        return deque((_decoded(item, arrays) for item in value["deque"]), value["maxlen"])
    if "list" in value:
        return [_decoded(item, arrays) for item in value["list"]]
    if "tuple" in value:
        return tuple(_decoded(item, arrays) for item in value["tuple"])
    return {key: _decoded(item, arrays) for key, item in value["mapping"].items()}
