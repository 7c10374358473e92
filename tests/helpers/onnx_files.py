"""Small ONNX files for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Shape = Sequence[int | str]
FLOAT = TensorProto.FLOAT


def node(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(op, list(inputs), list(outputs), **attributes)


def model(
    nodes: Sequence[Any],
    inputs: dict[str, Shape],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    dtype: int = FLOAT,
) -> onnx.ModelProto:
    """A model of nodes. inputs: shapes by name; constants: initialisers by name."""
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
        held,
    )
    ids = [helper.make_opsetid("", opset)]
    return helper.make_model(graph, opset_imports=ids, ir_version=10)


def written(content: onnx.ModelProto, folder: Path, name: str = "net.onnx") -> Path:
    path = folder / name
    path.write_bytes(content.SerializeToString())
    return path
