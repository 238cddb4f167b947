"""A policy's graph, the check of it, and the files that it is written to."""

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, final

import jax
import numpy as np

import trimtab
from trimtab.errors import ExportError, SettingError, did_you_mean
from trimtab.export.evaluate import evaluate
from trimtab.export.graph import BATCH, Graph
from trimtab.export.trace import traced
from trimtab.spaces import Box, LeafSpace, MultiBinary, MultiDiscrete, map_space, to_environment
from trimtab.training.specfile import space_to_json
from trimtab.training.stored import StoredPolicy

SUFFIXES = {"onnx": ".onnx", "safetensors": ".safetensors", "numpy": ".npz"}
PACKAGES = {"onnx": ("onnx", "onnxruntime"), "safetensors": ("safetensors",), "numpy": ()}
SAMPLES = 64
TOLERANCE = 1e-5
_WIDEST = 10.0  # random observations of what has no bounds stay near zero


@final
@dataclasses.dataclass(frozen=True)
class Exported:
    """A policy's file."""

    path: Path
    size: int
    samples: int  # random observations that it was checked with
    difference: float  # the largest, from our own actions


def file_for(to: str, out: Path | str | None, run: Path) -> Path:
    """The file to write, by default beside the run's own; refuses formats that there are not."""
    if to not in SUFFIXES:
        raise SettingError(
            f"to = {to!r} is not valid: expected one of {', '.join(SUFFIXES)}."
            f"{did_you_mean(to, SUFFIXES)}"
        )
    require_packages(to)
    return Path(out).expanduser() if out else run / f"policy{SUFFIXES[to]}"


def export(policy: StoredPolicy, to: str, out: Path) -> Exported:
    """Write the policy to a file, once that was seen to act as the policy does."""
    graph, call, first_memory = graph_of(policy)
    inputs = random_inputs(policy, graph, np.random.default_rng(0))
    about = described(policy, first_memory)
    if to == "onnx":
        from trimtab.export.onnx_file import run_onnx, to_onnx

        texts = {key: json.dumps(value) for key, value in about.items()}
        content = to_onnx(graph, texts)
        found = run_onnx(content, inputs)
    else:
        from trimtab.export import weights

        content = (weights.to_safetensors if to == "safetensors" else weights.to_npz)(graph, about)
        again = Graph.from_json(json.loads(json.dumps(graph.to_json())), graph.constants)
        found = evaluate(again, inputs)
    difference = largest_difference(graph, inputs, call(inputs), found)
    if difference > TOLERANCE:
        raise ExportError(
            f"The policy was not exported: as {to}, its outputs differ by up to {difference:g} on "
            f"random observations, and {TOLERANCE:g} is allowed. This is a mistake of trimtab's "
            f"(or of a package that it uses): please report it with the run's config.toml."
        )
    aside = out.with_name(f".{out.name}.partial")
    out.parent.mkdir(parents=True, exist_ok=True)
    aside.write_bytes(content)
    os.replace(aside, out)
    return Exported(out, len(content), SAMPLES, difference)


def require_packages(to: str) -> None:
    absent = [name for name in PACKAGES[to] if find_spec(name) is None]
    if absent:
        raise SettingError(
            f"An export to {to} needs the package {absent[0]}: pip install 'trimtab[{to}]'"
        )


def graph_of(
    policy: StoredPolicy,
) -> tuple[Graph, Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]], dict[str, Any]]:
    """The policy's graph, the same as a function of JAX, and the memory at an episode's beginning.

    One observation goes in as ``obs``, or as ``obs/<key>`` for each part of a Dict; a memory, if
    the policy has any, goes in as ``memory/…`` and comes out as ``next_memory/…``.
    """
    algorithm, space = policy.algorithm, policy.spec.action
    actor = algorithm.actor(policy.learner)
    memory = algorithm.first_memory(actor)

    def act(actor: Any, inputs: Any) -> Any:
        obs, memory = inputs
        action, after = algorithm.best_action(actor, memory, obs)
        return to_environment(space, action), after

    example = policy.example, memory
    names_in = _names("obs", example[0]) + _names("memory", memory)
    names_out = ["action", *_names("next_memory", memory)]
    graph = traced(act, actor, example, names_in, names_out)
    treedef = jax.tree.structure(example)
    compiled = jax.jit(jax.vmap(act, in_axes=(None, 0)))

    def call(inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = [inputs.get(name) for name in names_in]
        rows = len(next(value for value in given if value is not None))
        leaves = jax.tree.leaves(example)
        whole = [
            np.broadcast_to(leaf, (rows, *np.shape(leaf))) if value is None else value
            for value, leaf in zip(given, leaves, strict=True)
        ]
        results = jax.tree.leaves(compiled(actor, treedef.unflatten(whole)))
        return {name: np.asarray(value) for name, value in zip(names_out, results, strict=True)}

    first = dict(zip(_names("memory", memory), jax.tree.leaves(memory), strict=True))
    graph = without_idle_memory(graph)
    kept = {port.name for port in graph.inputs}
    start = {name: np.asarray(value).tolist() for name, value in first.items() if name in kept}
    return graph, call, start


def _names(root: str, tree: Any) -> list[str]:
    paths = [path for path, _ in jax.tree_util.tree_leaves_with_path(tree)]
    return [
        "/".join([root, *(jax.tree_util.keystr((key,), simple=True) for key in path)])
        for path in paths
    ]


def without_idle_memory(graph: Graph) -> Graph:
    """Without what is remembered for learning alone: it comes out as it went in."""
    idle = set()
    for port in graph.inputs:
        uses = [operation for operation in graph.operations if port.name in operation.inputs]
        after = port.name.replace("memory", "next_memory", 1)
        if port.name.startswith("memory/") and all(
            use.kind == "Identity" and use.output == after for use in uses
        ):
            idle |= {port.name, after}
    return dataclasses.replace(
        graph,
        inputs=tuple(port for port in graph.inputs if port.name not in idle),
        outputs=tuple(port for port in graph.outputs if port.name not in idle),
    ).pruned()


def random_inputs(
    policy: StoredPolicy, graph: Graph, generator: np.random.Generator
) -> dict[str, np.ndarray]:
    """A batch of observations from the whole of their space, and memories."""

    def observations(space: LeafSpace) -> np.ndarray:
        if isinstance(space, Box):
            low, high = (bound.clip(-_WIDEST, _WIDEST) for bound in space.bounds())
            if space.dtype.startswith(("int", "uint")):
                low, high = space.bounds()
            drawn = generator.uniform(low, high, (SAMPLES, *space.shape))
            return drawn.astype(space.dtype)
        if isinstance(space, MultiBinary):
            return generator.integers(0, 2, (SAMPLES, space.n), np.int8)
        sizes = np.asarray(space.nvec if isinstance(space, MultiDiscrete) else space.n)
        return generator.integers(0, sizes, (SAMPLES, *space.shape), np.int32)

    drawn = map_space(observations, policy.spec.observation)
    inputs = dict(zip(_names("obs", drawn), jax.tree.leaves(drawn), strict=True))
    for port in graph.inputs:
        if port.name.startswith("memory"):
            sizes = [int(size) for size in port.shape if size != BATCH]
            inputs[port.name] = generator.normal(size=(SAMPLES, *sizes)).astype(port.dtype)
    return {port.name: inputs[port.name] for port in graph.inputs}


def largest_difference(
    graph: Graph,
    inputs: Mapping[str, np.ndarray],
    ours: Mapping[str, np.ndarray],
    theirs: Mapping[str, np.ndarray],
) -> float:
    """Between outputs, relative where they are large.

    Where two choices are equally good to the last digits, either is right: such rows are left out.
    """
    values = evaluate(graph, inputs)
    clear = np.ones(SAMPLES, bool)
    for operation in graph.operations:
        if operation.kind == "ArgMax":
            axis = operation.attributes["axis"]
            best = np.sort(values[operation.inputs[0]], axis)
            gap = np.take(best, -1, axis) - np.take(best, -2, axis) if best.shape[axis] > 1 else 1.0
            clear &= (np.asarray(gap) > TOLERANCE).reshape(SAMPLES, -1).all(axis=1)
    differences = [0.0]
    for port in graph.outputs:
        one, other = (np.asarray(found[port.name], np.float64)[clear] for found in (ours, theirs))
        differences.append(float(np.max(abs(one - other) / np.maximum(1, abs(one)), initial=0.0)))
    return max(differences)


def described(policy: StoredPolicy, first_memory: Mapping[str, Any]) -> dict[str, Any]:
    """What a file says of its policy."""
    about = {
        "format": "trimtab policy 1",
        "trimtab": trimtab.__version__,
        "environment": policy.spec.id,
        "algorithm": policy.algorithm_name,
        "observation_space": space_to_json(policy.spec.observation),
        "action_space": space_to_json(policy.spec.action),
    }
    return {**about, "first_memory": first_memory} if first_memory else about
