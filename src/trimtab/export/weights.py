"""A graph as weights with a header that says how to apply them: ``.safetensors`` or ``.npz``.

The header is JSON: inputs, outputs, and the operations in their order. An operation is the one of
ONNX with its name; ``evaluate`` has all of them in numpy. A safetensors file has the header in its
metadata as ``trimtab``, an npz file as the text array ``header``.
"""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trimtab.errors import ExportError
from trimtab.export.graph import Graph

_HEADER = "header"
_METADATA = "trimtab"


def to_safetensors(graph: Graph, about: Mapping[str, Any]) -> bytes:
    from safetensors.numpy import save

    # A copy: safetensors writes arrays that are not contiguous as if they were.
    arrays = {name: np.array(array, order="C") for name, array in graph.constants.items()}
    return save(arrays, metadata={_METADATA: _header(graph, about)})


def to_npz(graph: Graph, about: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    named: dict[str, Any] = {_HEADER: np.asarray(_header(graph, about)), **graph.constants}
    np.savez(buffer, **named)
    return buffer.getvalue()


def read(path: Path | str) -> tuple[Graph, dict[str, Any]]:
    """The graph in a file that one of these wrote, and its whole header. Executes nothing."""
    path = Path(path)
    if path.suffix == ".safetensors":
        from safetensors import safe_open

        with safe_open(path, framework="numpy") as file:
            header = (file.metadata() or {}).get(_METADATA)
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    else:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = str(arrays.pop(_HEADER)) if _HEADER in arrays else None
    if header is None:
        raise ExportError(f"{path} has no header of trimtab's: it was not written by its export.")
    described = json.loads(header)
    return Graph.from_json(described, arrays), described


def _header(graph: Graph, about: Mapping[str, Any]) -> str:
    return json.dumps({**about, **graph.to_json()}, allow_nan=False)
