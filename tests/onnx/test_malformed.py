"""Files that are broken, or made to break the reader: an error in a sentence, soon, with bounded
memory, and nothing read outside of the file's folder."""

from __future__ import annotations

import gzip
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import boundlab as bl
from tests.helpers.onnx_files import FLOAT, model, node, written

MOST_MEMORY = 3 << 30
"""Bytes that reading such files may take more than before."""
SIZES = (1 << 20, 1 << 12)
"""Of what would have 16 GiB."""


def refused(path: Path, *words: str) -> None:
    with pytest.raises(bl.BoundlabError) as found:
        bl.load_onnx(path)
    text = str(found.value)
    assert len(text) < 1500 and "\n" not in text
    for word in words:
        assert word in text, text


@pytest.fixture(autouse=True)
def bounded_memory() -> Any:
    """The largest memory of the process grows little."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown * 1024 < MOST_MEMORY


def perceptron() -> onnx.ModelProto:
    weight = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
    nodes = [
        node("Reshape", ["x", "shape"], ["a"]),
        node("MatMul", ["a", "w"], ["b"]),
        node("Add", ["b", "c"], ["d"]),
        node("Relu", ["d"], ["e"]),
        node("ReduceSum", ["e", "axes"], ["y"], keepdims=1),
    ]
    constants = {
        "shape": np.array([1, 12]),
        "w": weight,
        "c": weight[0],
        "axes": np.array([1]),
    }
    return model(nodes, {"x": [1, 3, 4]}, ["y"], constants)


# -- nodes that cannot be --------------------------------------------------------------------------

WIDE = np.array(SIZES)
N = 1 << 18
ONE = np.ones((1, 3), np.float32)
LONG_ROW, LONG_COLUMN = np.ones((1, N), np.float32), np.ones((N, 1), np.float32)
Nodes = tuple[list[Any], dict[str, Any]]


def one(op: str, *constants: Any, inputs: int = 1, **attributes: Any) -> Nodes:
    """A node that reads the input so often, and constants behind it."""
    names = [f"c{place}" for place in range(len(constants))]
    held = {k: np.asarray(v) for k, v in zip(names, constants, strict=True) if v is not None}
    given = [n if n in held else "" for n in names]
    return [node(op, ["x"] * inputs + given, ["y"], **attributes)], held


def folded(op: str, *constants: Any, **attributes: Any) -> Nodes:
    return one(op, *constants, inputs=0, **attributes)


NODES: dict[str, Nodes] = {
    # wrong attributes
    "float axis": one("Softmax", axis=1.0),
    "text axis": one("Softmax", axis="one"),
    "list axis": one("Softmax", axis=[0, 1]),
    "number perm": one("Transpose", perm=1),
    "tensor axis": one("Softmax", axis=numpy_helper.from_array(np.ones(1))),
    "graph axis": one("Softmax", axis=helper.make_graph([], "g", [], [])),
    "unknown attribute": one("Relu", why=list(range(100_000))),
    "attribute for input": one("Relu", x=1),
    "no kernel": one("MaxPool"),
    "wrong perm": one("Transpose", perm=[0, 0]),
    "long perm": one("Transpose", perm=[0, 1, 2]),
    "direction": folded("BitShift", np.ones(2, np.int64), np.ones(2, np.int64), direction="UP"),
    "mode": one("Pad", [1, 1, 1, 1], mode="mirror"),
    # wrong inputs
    "no inputs": ([node("Relu", [], ["y"])], {}),
    "many inputs": ([node("Relu", ["x"] * 5000, ["y"])], {}),
    "missing initialiser": ([node("Add", ["x", "w"], ["y"])], {}),
    "optional for required": ([node("Add", ["x", ""], ["y"])], {}),
    "too many outputs": ([node("Relu", ["x"], ["y", "z"])], {}),
    "no outputs": ([node("Relu", ["x"], [])], {}),
    "twice": ([node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])], {}),
    "twice by identity": ([node("Relu", ["x"], ["y"]), node("Identity", ["x"], ["y"])], {}),
    "input given again": ([node("Relu", ["x"], ["x"]), node("Neg", ["x"], ["y"])], {}),
    "circle": ([node("Add", ["x", "b"], ["y"]), node("Neg", ["y"], ["b"])], {}),
    "own circle": ([node("Add", ["x", "y"], ["y"])], {}),
    "rank of product": one("MatMul", np.ones((7, 2), np.float32)),
    "rank of sum": one("Add", np.ones((7, 2), np.float32)),
    "rank of gemm": one("Gemm", np.ones(3, np.float32)),
    "axis out of range": one("Softmax", axis=7),
    "concat axis": one("Concat", ONE, axis=9),
    "flatten axis": one("Flatten", axis=-9),
    "squeeze": one("Squeeze", [1]),
    "unsqueeze twice": one("Unsqueeze", [0, 0]),
    "unsqueeze often": one("Unsqueeze", np.arange(500_000)),
    "slice axes": one("Slice", [0], [1], [5]),
    "slice step": one("Slice", [0], [1], [1], [0]),
    "slice lists": one("Slice", [0, 0], [1]),
    "split": ([node("Split", ["x", "c"], ["y", "z"], axis=1)], {"c": np.array([1, 1])}),
    "reshape twice free": one("Reshape", [-1, -1]),
    "reshape size": one("Reshape", [1, 4]),
    "reshape negative": one("Reshape", [-2, 3]),
    "reshape many": one("Reshape", np.ones(100_000, np.int64)),
    "gather out of range": one("Gather", [7], axis=1),
    "gather from constant": folded("Gather", ONE, [7], axis=1),
    "element out of range": one("GatherElements", [[9]], axis=1),
    "scatter out of range": one("ScatterND", [[5, 5]], np.ones(1, np.float32)),
    "one number": one("Clip", np.ones(2, np.float32)),
    "einsum": one("Einsum", ONE, equation="ab,cd,ef->abcdef"),
    "empty condition": ([node("If", ["c"], ["y"])], {"c": np.zeros(0, bool)}),
    "no branch": ([node("If", ["c"], ["y"])], {"c": np.array(True)}),
    "choice by value": ([node("If", ["x"], ["y"])], {}),
    "loop": ([node("Loop", ["x"], ["y"], body=helper.make_graph([], "g", [], []))], {}),
    "scan": ([node("Scan", ["x"], ["y"], body=helper.make_graph([], "g", [], []))], {}),
    "domain": ([node("Relu", ["x"], ["y"], domain="com.other")], {}),
    "long names": ([node("R" * 100_000, ["x"], ["y"], name="n\n" * 100_000)], {}),
    # arithmetic
    "divided by 0": folded("Div", np.ones(3, np.int64), np.zeros(3, np.int64)),
    "rest by 0": folded("Mod", np.ones(3, np.int64), np.zeros(3, np.int64)),
    # windows
    "negative kernel": one("MaxPool", kernel_shape=[-1]),
    "kernel 0": one("AveragePool", kernel_shape=[0, 2]),
    "stride 0": one("MaxPool", kernel_shape=[1, 1], strides=[0, 1]),
    "negative pads": one("MaxPool", kernel_shape=[1, 1], pads=[-1, 0, 0, 0]),
    "auto_pad": one("MaxPool", kernel_shape=[1, 1], auto_pad="SOME"),
    "groups": one("Conv", np.ones((4, 3, 1), np.float32), group=7),
    # more than there is room for
    "wide expand": one("Expand", [*SIZES, 1, 1]),
    "wide constant": folded("ConstantOfShape", WIDE),
    "wide filled": folded(
        "ConstantOfShape", WIDE, value=numpy_helper.from_array(np.ones(1, np.float32))
    ),
    "wide tile": one("Tile", WIDE),
    "wide range": folded("Range", 0, 1 << 33, 1),
    "endless range": folded("Range", 0, 5, 0),
    "wide pad": one("Pad", [0, 1 << 33, 0, 0]),
    "wide edge": one("Pad", [0, 1 << 32, 0, 0], mode="edge"),
    "wide resize": one("Resize", None, None, [1, 1 << 33]),
    "wide linear resize": one("Resize", None, None, [1, 1 << 29], mode="linear"),
    "negative resize": one("Resize", None, np.array([1, -2], np.float32)),
    "wide one-hot": folded("OneHot", [1, 2], 1 << 34, [0.0, 1.0]),
    "negative one-hot": folded("OneHot", [1, 2], -4, [0.0, 1.0]),
    "wide sum": folded("Add", LONG_ROW, LONG_COLUMN),
    "wide product": folded("MatMul", LONG_COLUMN, LONG_ROW),
    "wide eye": ([node("Expand", ["o", "s"], ["e"]), node("EyeLike", ["e"], ["y"])],
                 {"o": ONE[:, :1], "s": np.array([1 << 18, 1 << 18])}),
    "wide gather": ([node("Expand", ["o", "s"], ["i"]), node("Gather", ["x", "i"], ["y"])],
                    {"o": np.array([0]), "s": np.array([1 << 27])}),
    "much in all": (
        [
            node("Expand", ["x", "s"], ["v0"]),
            *(node("Relu", [f"v{k}"], [f"v{k + 1}"]) for k in range(500)),
            node("Relu", ["v500"], ["y"]),
        ],
        {"s": np.array([1 << 20, 3])},
    ),
    "wide crop": one("CenterCropPad", [1, 1 << 33]),
    "numbers": one("Compress", np.ones((1 << 20) + 1, bool)),
    "time": (
        [
            node("Expand", ["x", "s"], ["t"]),
            node("RNN", ["t", "w", "r"], ["y"], hidden_size=1),
        ],
        {"s": np.array([1 << 20, 1, 3]), "w": np.ones((1, 1, 3), np.float32),
         "r": np.ones((1, 1, 1), np.float32)},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", NODES)
def test_nodes(name: str, tmp_path: Path) -> None:
    nodes, constants = NODES[name]
    refused(written(model(nodes, {"x": [1, 3]}, ["y"], constants, opset=18), tmp_path))


def test_smallest_number_divided_by_minus_one(tmp_path: Path) -> None:
    """The processor ends a process that divides so."""
    constants = {"a": np.array([-(2**63), 7]), "b": np.array([-1, -1]), "o": np.array([-2, 2])}
    nodes = [node("Div", ["a", "b"], ["c"]), node("Div", ["c", "o"], ["y"])]
    net = bl.load_onnx(written(model(nodes, {"x": [1]}, ["y"], constants), tmp_path))
    (found,) = net._run([torch.zeros(1)])
    assert found.tolist() == [2**62, -3]


# -- whole files -----------------------------------------------------------------------------------


def test_beginnings(tmp_path: Path) -> None:
    content = perceptron().SerializeToString()
    path = tmp_path / "net.onnx"
    for length in range(0, len(content) - 1, 7):
        path.write_bytes(content[:length])
        with suppress(bl.BoundlabError):  # what is left may be a network
            bl.load_onnx(path)


def test_flipped_bytes(tmp_path: Path) -> None:
    content = perceptron().SerializeToString()
    generator = np.random.default_rng(0)
    path = tmp_path / "net.onnx"
    for _ in range(300):
        changed = bytearray(content)
        for place in generator.integers(0, len(content), 1 + generator.integers(4)):
            changed[place] = generator.integers(256)
        path.write_bytes(changed)
        with suppress(bl.BoundlabError):
            bl.load_onnx(path)


CONTENTS: dict[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"this is no network\n" * 100,
    "zeros": lambda: bytes(1000),
    "picture": lambda: b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 10,
    "packed nothing": lambda: gzip.compress(b""),
    "packed and cut": lambda: gzip.compress(perceptron().SerializeToString())[:-20],
    "packed head": lambda: b"\x1f\x8b\x08",
    "packed noise": lambda: b"\x1f\x8b" + bytes(range(256)),
    "packed zeros": lambda: gzip.compress(bytes(1 << 20)) * 300,
}


@pytest.mark.parametrize("name", CONTENTS)
def test_contents(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(CONTENTS[name]())
    refused(path)


def test_places_that_are_no_files(tmp_path: Path) -> None:
    refused(tmp_path, "is no file")
    refused(tmp_path / "none.onnx", "no such file")
    refused(tmp_path / ("long" * 100))
    refused(Path("a\0b"))
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "pipe", "is no file")


# -- graphs ----------------------------------------------------------------------------------------


def changed(change: Callable[[onnx.ModelProto], Any]) -> onnx.ModelProto:
    content = perceptron()
    change(content)
    return content


def _opsets(*versions: int) -> Callable[[onnx.ModelProto], None]:
    def change(content: onnx.ModelProto) -> None:
        del content.opset_import[:]
        content.opset_import.extend(helper.make_opsetid("", one) for one in versions)

    return change


def _dims(*sizes: int, place: int = 1) -> Callable[[onnx.ModelProto], None]:
    def change(content: onnx.ModelProto) -> None:
        content.graph.initializer[place].dims[:] = sizes

    return change


def _inputs(*kinds: Any) -> Callable[[onnx.ModelProto], None]:
    def change(content: onnx.ModelProto) -> None:
        del content.graph.input[:]
        content.graph.input.extend(kinds)

    return change


def _tensor(shape: Any, dtype: int = FLOAT, name: str = "x") -> Any:
    return helper.make_tensor_value_info(name, dtype, shape)


MODELS: dict[str, tuple[Callable[[onnx.ModelProto], Any], str]] = {
    "no opset": (_opsets(), "0 opset versions"),
    "two opsets": (_opsets(13, 17), "2 opset versions"),
    "opset of the future": (_opsets(9999), "opset 9999"),
    "opset 0": (_opsets(0), "opset 0"),
    "no outputs": (lambda m: m.graph.ClearField("output"), "no outputs"),
    "no graph": (lambda m: m.ClearField("graph"), "no graph"),
    "unknown output": (lambda m: m.graph.output.add(name="z"), "output 'z'"),
    "no input": (_inputs(), "input 'x'"),
    "inputs alike": (_inputs(_tensor([1, 12]), _tensor([1, 12])), "twice"),
    "thousands of inputs": (
        _inputs(*(_tensor([1 << 20], name=f"x{k}") for k in range(3000))), "together"),
    "negative size": (_inputs(_tensor([1, -3])), "size -3"),
    "huge input": (_inputs(_tensor([1, 1 << 31])), "more than"),
    "input of more than numbers hold": (_inputs(_tensor([1 << 62, 1 << 62])), "more than"),
    "free shape": (_inputs(_tensor(None)), "leaves its shape free"),
    "free size": (_inputs(_tensor([1, "n", 4])), "dimension 1"),
    "text input": (_inputs(_tensor([1, 3], TensorProto.STRING)), "data type 8"),
    "sequence": (
        _inputs(helper.make_tensor_sequence_value_info("x", FLOAT, [1, 3])), "no tensor"),
    "input without type": (_inputs(onnx.ValueInfoProto(name="x")), "no tensor"),
    "initialiser too small": (_dims(12, 6), "bytes"),
    "initialiser too large": (_dims(12, 4), "bytes"),
    "negative dims": (_dims(-12, -5), "shape"),
    "huge dims": (_dims(1 << 20, 1 << 20), "MiB"),
    "empty huge dims": (_dims(0, 1 << 62, 1 << 62), "shape"),
    "many dims": (_dims(*[1] * 1000), "shape"),
    "unknown type": (lambda m: setattr(m.graph.initializer[1], "data_type", 77), "data type 77"),
    "text initialiser": (lambda m: setattr(m.graph.initializer[1], "data_type", 8), "data type 8"),
    "initialisers alike": (
        lambda m: m.graph.initializer.append(m.graph.initializer[1]), "twice"),
    "no data": (lambda m: m.graph.initializer[1].ClearField("raw_data"), "'w'"),
    "sparse": (lambda m: m.graph.sparse_initializer.add(), "sparse"),
    "attribute of a function": (
        lambda m: m.graph.node[4].attribute.add(name="keepdims", ref_attr_name="k"), "refers"),
    "attribute of no type": (lambda m: m.graph.node[3].attribute.add(name="a"), "not known"),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str, tmp_path: Path) -> None:
    change, word = MODELS[name]
    refused(written(changed(change), tmp_path), word)


def _branches(depth: int) -> Any:
    out = helper.make_tensor_value_info(f"v{depth}", FLOAT, None)
    inner = (
        node("Relu", ["x"], [f"v{depth}"])
        if not depth
        else node("If", ["yes"], [f"v{depth}"], then_branch=_branches(depth - 1))
    )
    return helper.make_graph([inner], "g", [], [out])


@pytest.mark.parametrize("depth", [22, 30])
def test_deep_branches(depth: int, tmp_path: Path) -> None:
    nodes = [node("If", ["yes"], ["y"], then_branch=_branches(depth))]
    content = model(nodes, {"x": [1, 3]}, ["y"], {"yes": np.array(True)})
    refused(written(content, tmp_path), "nested")


def _with_functions(bodies: dict[str, list[str]]) -> onnx.ModelProto:
    """A model of functions of one value; bodies: what each calls, one after the other."""
    content = model([node("f0", ["x"], ["y"], domain="own")], {"x": [1, 3]}, ["y"])
    ids = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    content.opset_import.append(ids[1])
    for name, calls in bodies.items():
        names = ["a", *(f"b{place}" for place in range(len(calls) - 1)), "z"]
        nodes = [
            node(call, [names[k]], [names[k + 1]], domain="" if call == "Relu" else "own")
            for k, call in enumerate(calls)
        ]
        content.functions.append(helper.make_function("own", name, ["a"], ["z"], nodes, ids))
    return content


FUNCTIONS: dict[str, dict[str, list[str]]] = {
    "itself": {"f0": ["f0"]},
    "circle": {"f0": ["f1"], "f1": ["f2"], "f2": ["f0"]},
    "2^40 nodes": {**{f"f{k}": [f"f{k + 1}"] * 2 for k in range(40)}, "f40": ["Relu"]},
    "2000 deep": {**{f"f{k}": [f"f{k + 1}"] for k in range(2000)}, "f2000": ["Relu"]},
    "unknown": {"f0": ["f1"]},
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str, tmp_path: Path) -> None:
    refused(written(_with_functions(FUNCTIONS[name]), tmp_path))


def test_many_nodes_in_the_wrong_order(tmp_path: Path) -> None:
    count = 20_000
    names = ["x", *(f"v{place}" for place in range(count - 1)), "y"]
    nodes = [node("Relu", [names[k]], [names[k + 1]]) for k in range(count)]
    nodes[0] = node("MatMul", ["x", "w"], ["v0"])
    content = model(nodes[::-1], {"x": [1, 3]}, ["y"], {"w": np.ones((4, 3), np.float32)})
    refused(written(content, tmp_path), "MatMul")


def test_names_of_constants(tmp_path: Path) -> None:
    """Names that the module has itself, that look alike as names of Python, or go deep."""
    names = ["_network", "_paths", "_dead", "forward", "inputs", "_mapped", "_parameters"]
    names += [f"{'-' * k}{'+' * (200 - k)}" for k in range(200)]
    names += [".".join("a" * 3000), "...", "a.b", "a", "a.b.c"]
    nodes = [
        node("Add", ["x" if k == 0 else f"v{k - 1}", name], [f"v{k}"])
        for k, name in enumerate(names)
    ]
    constants = {name: np.float32(k) * np.ones(3, np.float32) for k, name in enumerate(names)}
    content = model(nodes, {"x": [1, 3]}, [f"v{len(names) - 1}"], constants)
    net = bl.load_onnx(written(content, tmp_path), check=True)
    assert len(list(net.parameters())) == len(names)


# -- tensors in other files ------------------------------------------------------------------------

EXTERNAL: dict[str, dict[str, str]] = {
    "absolute": {"location": "/etc/passwd"},
    "above": {"location": "../secret.bin"},
    "above and back": {"location": "../folder/../secret.bin"},
    "link": {"location": "link.bin"},
    "link to a folder": {"location": "out/secret.bin"},
    "loop": {"location": "loop.bin"},
    "none": {"location": "none.bin"},
    "no place": {},
    "folder": {"location": "inner"},
    "itself": {"location": "."},
    "pipe": {"location": "pipe"},
    "zero byte": {"location": "a\0b"},
    "long": {"location": "a" * 5000},
    "offset too large": {"location": "data.bin", "offset": "100000"},
    "offset by far too large": {"location": "data.bin", "offset": "9" * 40},
    "negative offset": {"location": "data.bin", "offset": "-8"},
    "no number": {"location": "data.bin", "offset": "two"},
    "wrong length": {"location": "data.bin", "length": "12"},
    "too short": {"location": "short.bin"},
}


@pytest.mark.parametrize("name", EXTERNAL)
def test_external(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    (folder / "inner").mkdir(parents=True)
    for place in (tmp_path / "secret.bin", folder / "data.bin"):
        place.write_bytes(bytes(240))
    (folder / "short.bin").write_bytes(bytes(100))
    (folder / "link.bin").symlink_to(tmp_path / "secret.bin")
    (folder / "out").symlink_to(tmp_path)
    (folder / "loop.bin").symlink_to(folder / "loop.bin")
    os.mkfifo(folder / "pipe")
    content = perceptron()
    weight = content.graph.initializer[1]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in EXTERNAL[name].items():
        weight.external_data.add(key=key, value=value)
    refused(written(content, folder), "'w'")


def test_external_that_is_there(tmp_path: Path) -> None:
    content = perceptron()
    weight = content.graph.initializer[1]
    (tmp_path / "data.bin").write_bytes(bytes(16) + weight.raw_data)
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "data.bin"), ("offset", "16"), ("length", "240")):
        weight.external_data.add(key=key, value=value)
    bl.load_onnx(written(content, tmp_path), check=True)
