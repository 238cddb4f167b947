"""A graph as a file of ONNX, made with ONNX's own helper alone, and run by onnxruntime."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from trimtab.export.graph import Graph, Operation, Port

# Old enough for the runtimes that robots and games have; reductions take axes as inputs from 18 on.
OPSET = 18
IR_VERSION = 9


def to_onnx(graph: Graph, about: Mapping[str, str]) -> bytes:
    """The file's content; ``about`` becomes its metadata."""
    nodes = list(map(_node, graph.operations))
    constants = [
        numpy_helper.from_array(np.array(array, order="C"), name)
        for name, array in graph.constants.items()
    ]
    made = helper.make_graph(
        nodes, "policy", list(map(_port, graph.inputs)), list(map(_port, graph.outputs)), constants
    )
    model = helper.make_model(
        made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="trimtab"
    )
    model.ir_version = IR_VERSION
    helper.set_model_props(model, dict(about))
    onnx.checker.check_model(model, full_check=True)
    return model.SerializeToString()


def run_onnx(content: bytes, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """What onnxruntime computes with the file."""
    import onnxruntime

    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, dict(inputs))), strict=True))


def _node(operation: Operation) -> onnx.NodeProto:
    attributes: dict[str, Any] = dict(operation.attributes)
    if "to" in attributes:
        attributes["to"] = _type(attributes["to"])
    return helper.make_node(
        operation.kind, list(operation.inputs), [operation.output], **attributes
    )


def _type(dtype: str) -> TensorProto.DataType:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


def _port(port: Port) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(port.name, _type(port.dtype), list(port.shape))
