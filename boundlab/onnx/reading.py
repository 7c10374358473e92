"""From an ONNX file to its graph and tensors. Nothing in a file is trusted: sizes are checked
before memory is taken, and tensors are read from the file's own folder only."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.onnx.table import MOST, MOST_DIMS, as_dtype, shortened

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

LARGEST = 1 << 31
"""Bytes that a file may have when it is unpacked; the format itself allows no more."""
UNPACKED = 1 << 28
"""Bytes that any packed file may have when it is unpacked; beyond, PACKED times its own."""
PACKED = 20
"""How much smaller a packed network is at best; weights hardly pack at all."""
DOMAINS = ("", "ai.onnx")
"""Names of the standard's own operators."""
MOST_NODES = 1 << 20
"""How many nodes calls of functions may be written out to."""
DEEPEST = 50
"""How deep functions may call each other."""
EXTERNAL = 1
"""onnx.TensorProto.EXTERNAL: the numbers lie in another file."""
NARROW = (16,)
"""Types that numpy does not have itself: bfloat16."""


def read_model(path: Path) -> ModelProto:
    """The content of an ONNX file, packed (``.gz``) or not."""
    onnx = import_onnx()
    content = _content(path)
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf raises types of its own
        raise ArgumentError(f"is no ONNX file: {_line(error)}") from None
    if not model.graph.node and not model.graph.output:
        raise ArgumentError("is no ONNX file: it holds no graph")
    found = _without_functions(model)
    _check_text(found.graph)
    return found


def _check_text(graph: GraphProto) -> None:
    """Refuse names that are no text: protobuf gives them as bytes."""
    for node in graph.node:
        texts = [node.op_type, node.name, node.domain, *node.input, *node.output]
        for attribute in node.attribute:
            texts += [attribute.name, attribute.ref_attr_name]
            if attribute.HasField("g"):
                _check_text(attribute.g)
        _check_words(texts)
    named = (*graph.input, *graph.output, *graph.initializer)
    _check_words([one.name for one in named])
    for tensor in graph.initializer:
        _check_words([text for one in tensor.external_data for text in (one.key, one.value)])


def _check_words(texts: Iterable[object]) -> None:
    for text in texts:
        if not isinstance(text, str):
            raise ArgumentError(f"the name {text!r:.100} in it is no text")


def import_onnx() -> Any:
    """The onnx package, which is an extra."""
    try:
        import onnx
        import onnx.numpy_helper
    except ImportError:
        raise ArgumentError(
            "reading ONNX files needs the onnx package: pip install 'boundlab[onnx]'"
        ) from None
    return onnx


def is_packed(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _content(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise ArgumentError("is no file" if path.exists() else "there is no such file")
        packed = is_packed(path)
        most = min(LARGEST, max(UNPACKED, PACKED * path.stat().st_size)) if packed else LARGEST
        with gzip.open(path) if packed else path.open("rb") as file:
            content = file.read(most)
    except (OSError, ValueError, EOFError, zlib.error) as error:
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(f"cannot be read: {error}") from None
    if len(content) >= most:
        raise ArgumentError(f"has more than {most >> 20} MiB when it is unpacked")
    return content


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _without_functions(model: ModelProto) -> ModelProto:
    """The model with calls of its own functions written out."""
    if not model.functions:
        return model
    _check_calls(model)
    from onnx import inliner

    try:
        return inliner.inline_local_functions(model)
    except Exception as error:
        raise ArgumentError(f"its functions cannot be written out: {_line(error)}") from None


def _check_calls(model: ModelProto) -> None:
    """Refuse functions that call each other in a circle, or would be too many nodes."""
    functions = {(one.domain, one.name, one.overload): one.node for one in model.functions}
    found: dict[Any, tuple[int, int]] = {}

    def written_out(nodes: Iterable[NodeProto], depth: int) -> tuple[int, int]:
        """How many nodes these become, and how deep the calls in them are."""
        if depth > DEEPEST:
            raise ArgumentError(f"its functions call each other in a circle, or {DEEPEST} deep")
        count = deepest = 0
        for node in _with_inner(nodes):
            key = (node.domain, node.op_type, node.overload)
            if key in functions and key not in found:
                found[key] = written_out(functions[key], depth + 1)
            size, below = found.get(key, (1, -1))
            count, deepest = count + size, max(deepest, below + 1)
        if count > MOST_NODES or deepest > DEEPEST:
            raise ArgumentError(f"its functions written out have more than {MOST_NODES} nodes")
        return count, deepest

    for nodes in (*functions.values(), model.graph.node):
        written_out(nodes, 0)


def _with_inner(nodes: Iterable[NodeProto]) -> Iterator[NodeProto]:
    """Nodes and those of the graphs in their attributes."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _with_inner(attribute.g.node)


def opset_of(model: ModelProto) -> int:
    """The version of the standard's operators that a model uses."""
    versions = {one.version for one in model.opset_import if one.domain in DOMAINS}
    if len(versions) != 1:
        raise ArgumentError(f"it names {len(versions)} opset versions of ONNX instead of one")
    (version,) = versions
    newest = import_onnx().defs.onnx_opset_version()
    if not 1 <= version <= newest:
        raise UnsupportedOperator(
            f"it is written in opset {version} of ONNX; the onnx package knows 1 to {newest}"
        )
    return version


# -- tensors ---------------------------------------------------------------------------------------


def read_tensor(proto: TensorProto, folder: Path) -> Tensor:
    """A tensor of a file that lies in a folder."""
    dims = tuple(proto.dims)
    name = f"the tensor {shortened(proto.name)!r}"
    if len(dims) > MOST_DIMS or any(not 0 <= size <= MOST for size in dims):
        raise ArgumentError(f"{name} has the shape {shortened(str(dims))}")
    dtype = as_dtype(proto.data_type)
    needed = math.prod(dims) * dtype.itemsize
    if needed > MOST:
        raise ArgumentError(f"{name} would have {needed >> 20} MiB; {MOST >> 20} is the most")
    if proto.data_location == EXTERNAL:
        raw: bytes | None = _external(proto, folder, needed)
    else:
        raw = proto.raw_data if proto.HasField("raw_data") else None
    if raw is None:
        return _from_fields(proto, dtype)
    if len(raw) != needed:
        raise ArgumentError(f"{name} of shape {dims} needs {needed} bytes and has {len(raw)}")
    if not needed:
        return torch.empty(dims, dtype=dtype)
    if dtype is torch.bool:  # any byte but 0 is true
        return torch.frombuffer(bytearray(raw), dtype=torch.uint8).reshape(dims) != 0
    return torch.frombuffer(bytearray(raw), dtype=dtype).reshape(dims)


def _from_fields(proto: TensorProto, dtype: torch.dtype) -> Tensor:
    """A tensor whose numbers are a list in the file."""
    numpy_helper = import_onnx().numpy_helper
    try:
        array = np.array(numpy_helper.to_array(proto))
        if proto.data_type in NARROW:
            array = array.astype(np.float32)
        return torch.from_numpy(array).to(dtype)
    except Exception as error:  # of numpy and of the onnx package
        name = shortened(proto.name)
        raise ArgumentError(f"the tensor {name!r} cannot be read: {_line(error)}") from None


def _external(proto: TensorProto, folder: Path, needed: int) -> bytes:
    """The bytes of a tensor that lie in another file of the same folder."""
    where = {entry.key: entry.value for entry in proto.external_data}
    name = f"the tensor {shortened(proto.name)!r}"
    place = where.get("location", "")
    try:
        root = folder.resolve()
        path = (root / place).resolve()
        inside = path.is_relative_to(root) and path.is_file()
    except (OSError, ValueError, RuntimeError):  # of names that no file can have, and loops
        inside = False
    if not inside or Path(place).is_absolute():
        raise ArgumentError(f"{name} lies in {shortened(place)!r}: no file in the model's folder")
    try:
        offset, length = int(where.get("offset", 0)), int(where.get("length", needed))
    except ValueError:
        raise ArgumentError(f"{name} has no whole numbers for offset and length") from None
    if not 0 <= offset <= path.stat().st_size or length != needed:
        raise ArgumentError(f"{name} needs {needed} bytes, and {length} from {offset} are named")
    try:
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(length)
    except OSError as error:
        raise ArgumentError(f"{name}: {place!r} cannot be read: {error.strerror}") from None


# -- attributes ------------------------------------------------------------------------------------


def read_attribute(proto: AttributeProto, folder: Path) -> Any:
    """The value of an attribute: a number, text, a tensor, a graph, or a tuple of such."""
    kinds = import_onnx().AttributeProto
    if proto.ref_attr_name:
        raise ArgumentError(f"the attribute {proto.name} refers to a function's argument")
    readers = {
        kinds.FLOAT: lambda: proto.f,
        kinds.INT: lambda: proto.i,
        kinds.STRING: lambda: _text(proto.s),
        kinds.TENSOR: lambda: read_tensor(proto.t, folder),
        kinds.GRAPH: lambda: proto.g,
        kinds.FLOATS: lambda: tuple(proto.floats),
        kinds.INTS: lambda: tuple(proto.ints),
        kinds.STRINGS: lambda: tuple(_text(one) for one in proto.strings),
    }
    if proto.type not in readers:
        raise ArgumentError(f"the attribute {proto.name} has a type that is not known")
    return readers[proto.type]()


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace")
