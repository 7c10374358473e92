"""Networks from files: batches, names, types, constants, opsets."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import TensorProto

import boundlab as bl
from tests.helpers.onnx_files import model, node, written

W = np.random.default_rng(0).standard_normal((12, 5)).astype(np.float32)
B = np.arange(5, dtype=np.float32)


def test_frozen_batch_becomes_free(tmp_path: Path) -> None:
    """Reshapes, slices, gathers and constants that have the batch of 1 in them."""
    nodes = [
        node("Reshape", ["x", "shape"], ["a"]),
        node("Gather", ["a", "zero"], ["b"], axis=0),
        node("Unsqueeze", ["b", "axes"], ["c"]),
        node("Concat", ["c", "more"], ["d"], axis=1),
        node("Transpose", ["d"], ["e"], perm=[1, 0, 2]),
        node("Reshape", ["e", "row"], ["f"]),
        node("Transpose", ["f"], ["g"], perm=[1, 0, 2]),
        node("Flatten", ["g"], ["y"]),
    ]
    constants = {
        "shape": np.array([1, 3, 4]),
        "zero": np.array(0),
        "axes": np.array([0]),
        "more": np.ones((1, 2, 4), np.float32),
        "row": np.array([5, 1, 4]),
    }
    path = written(model(nodes, {"x": [1, 12]}, ["y"], constants), tmp_path)
    net = bl.load_onnx(path, check=True)
    x = torch.rand(7, 12)
    assert net(x).shape == (7, 20)
    together, alone = net(x), torch.cat([net(one[None]) for one in x])
    torch.testing.assert_close(together, alone)
    captured = bl.capture(path)
    assert "free batch" in repr(captured)
    bounds = captured.bounds(bl.Linf(x, 0.1))
    assert (bounds.lower <= together).all() and (together <= bounds.upper).all()


def test_input_without_batch_is_mapped(tmp_path: Path) -> None:
    path = written(
        model(
            [node("MatMul", ["x", "w"], ["a"]), node("Relu", ["a"], ["y"])],
            {"x": [12]},
            ["y"],
            {"w": W},
        ),
        tmp_path,
    )
    net = bl.load_onnx(path, check=True)
    x = torch.randn(7, 12)
    torch.testing.assert_close(net(x), torch.relu(x @ torch.from_numpy(W)))
    torch.testing.assert_close(net(x[0]), net(x[:1]))  # as the file declares it
    bounds = bl.capture(net).bounds(bl.Linf(x, 0.1))
    assert (bounds.lower <= net(x)).all() and (net(x) <= bounds.upper).all()


def test_sum_over_everything_is_mapped(tmp_path: Path) -> None:
    """At a batch of 1 it is a sum over a sample, which it must stay."""
    nodes = [node("ReduceSum", ["x"], ["s"], keepdims=1), node("Mul", ["s", "x"], ["y"])]
    net = bl.load_onnx(written(model(nodes, {"x": [1, 4]}, ["y"]), tmp_path), check=True)
    x = torch.randn(5, 4)
    torch.testing.assert_close(net(x), x.sum(1, keepdim=True) * x)


def test_layers_have_their_weights_as_parameters(tmp_path: Path) -> None:
    nodes = [
        node("MatMul", ["x", "fc.weight"], ["a"]),
        node("Add", ["fc.bias", "a"], ["b"]),
        node("Gemm", ["b", "last", "c"], ["y"], alpha=2.0, beta=3.0, transB=1),
    ]
    constants = {"fc.weight": W, "fc.bias": B, "last": W[:3], "c": np.ones((1, 3), np.float32)}
    constants["last"] = np.ones((3, 5), np.float32)
    path = written(model(nodes, {"x": ["n", 12]}, ["y"], constants), tmp_path)
    net = bl.load_onnx(path, check=True)
    names = dict(net.named_parameters())
    assert set(names) == {"fc.weight", "fc.bias", "last", "c"}
    assert names["fc.weight"].shape == (5, 12)
    x = torch.rand(3, 12)
    bounds = bl.capture(net).bounds(x, perturb={"fc.bias": bl.Linf(eps=0.1)})
    assert (bounds.lower < net(x)).all() and (net(x) < bounds.upper).all()
    net(x).sum().backward()
    assert names["fc.weight"].grad is not None


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    nodes = [
        node("Add", ["left", "right"], ["sum"]),
        node("Mul", ["left", "right"], ["product"]),
    ]
    path = written(model(nodes, {"left": [1, 3], "right": [1, 3]}, ["sum", "product"]), tmp_path)
    net = bl.load_onnx(path, check=True)
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    found = net(a, b)
    assert list(found) == ["sum", "product"]
    torch.testing.assert_close(found["product"], a * b)
    assert [one.name for one in net.inputs] == ["left", "right"]
    bounds = bl.capture(net).bounds(bl.Linf(a, 0.1), b)
    assert (bounds["sum"].lower <= a + b).all()
    with pytest.raises(bl.ArgumentError, match="takes left, right"):
        net(a)


def test_packed_and_pickled(tmp_path: Path) -> None:
    content = model([node("Relu", ["x"], ["y"])], {"x": [1, 3]}, ["y"])
    path = tmp_path / "net.onnx.gz"
    path.write_bytes(gzip.compress(content.SerializeToString()))
    net = bl.load_onnx(path, check=True)
    x = torch.randn(4, 3)
    assert torch.equal(pickle.loads(pickle.dumps(net))(x), torch.relu(x))


@pytest.mark.parametrize(
    ("code", "dtype"),
    [
        (TensorProto.FLOAT, torch.float32),
        (TensorProto.DOUBLE, torch.float64),
        (TensorProto.FLOAT16, torch.float16),
    ],
)
def test_types(code: int, dtype: torch.dtype, tmp_path: Path) -> None:
    weight = torch.from_numpy(W).to(dtype)
    content = model(
        [node("MatMul", ["x", "w"], ["y"])],
        {"x": [1, 12]},
        ["y"],
        {"w": weight.numpy()},
        dtype=code,
    )
    net = bl.load_onnx(written(content, tmp_path), check=True)
    x = torch.rand(3, 12, dtype=dtype)
    assert net(x).dtype == dtype
    torch.testing.assert_close(net(x), x @ weight, rtol=1e-2, atol=1e-2)


def test_integer_input_to_an_embedding(tmp_path: Path) -> None:
    content = model(
        [node("Gather", ["table", "x"], ["a"], axis=0), node("ReduceSum", ["a", "axes"], ["y"])],
        {"x": [1, 4]},
        ["y"],
        {"table": W, "axes": np.array([1])},
        dtype=TensorProto.INT64,
    )
    content.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT
    net = bl.load_onnx(written(content, tmp_path), check=True)
    x = torch.randint(0, 12, (3, 4))
    torch.testing.assert_close(net(x), torch.from_numpy(W)[x].sum(1, keepdim=True))


def test_shapes_of_inputs_are_constants(tmp_path: Path) -> None:
    """x.reshape(x.shape[0], -1) as exporters write it."""
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "zero"], ["n"], axis=0),
        node("Unsqueeze", ["n", "zero1"], ["n1"]),
        node("Concat", ["n1", "rest"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"zero": np.array(0), "zero1": np.array([0]), "rest": np.array([-1])}
    net = bl.load_onnx(written(model(nodes, {"x": ["batch", 3, 4]}, ["y"], constants), tmp_path))
    assert net(torch.rand(5, 3, 4)).shape == (5, 12)


def test_branches_that_are_known(tmp_path: Path) -> None:
    from onnx import helper

    def branch(op: str) -> object:
        out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
        return helper.make_graph([node(op, ["x"], ["inner"])], op, [], [out])

    choice = node("If", ["yes"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg"))
    for value, wanted in ((True, torch.relu), (False, torch.neg)):
        content = model([choice], {"x": [1, 3]}, ["y"], {"yes": np.array(value)})
        x = torch.randn(2, 3)
        assert torch.equal(bl.load_onnx(written(content, tmp_path))(x), wanted(x))


@pytest.mark.parametrize("opset", [7, 9, 10, 11, 13, 17, 21, 23])
def test_opsets(opset: int, tmp_path: Path) -> None:
    """Attributes that became inputs: axes, slices, pads, clip, dropout."""
    constants: dict[str, np.ndarray] = {}
    by_input = lambda name, values: constants.update({name: np.array(values)})
    nodes = []
    if opset < 10:
        nodes.append(node("Slice", ["x"], ["a"], starts=[1], ends=[3], axes=[2]))
    else:
        for name, values in (("starts", [1]), ("ends", [3]), ("axes", [2])):
            by_input(name, values)
        nodes.append(node("Slice", ["x", "starts", "ends", "axes"], ["a"]))
    if opset < 11:
        nodes.append(node("Pad", ["a"], ["b"], pads=[0, 0, 1, 0, 0, 0], mode="constant", value=2.0))
        nodes.append(node("Clip", ["b"], ["c"], min=-0.5, max=0.5))
    else:
        by_input("pads", [0, 0, 1, 0, 0, 0])
        by_input("two", np.float32(2))
        by_input("low", np.float32(-0.5))
        by_input("high", np.float32(0.5))
        nodes.append(node("Pad", ["a", "pads", "two"], ["b"]))
        nodes.append(node("Clip", ["b", "low", "high"], ["c"]))
    if opset < 13:
        nodes.append(node("ReduceSum", ["c"], ["d"], axes=[1], keepdims=0))
    else:
        by_input("one", [1])
        nodes.append(node("ReduceSum", ["c", "one"], ["d"], keepdims=0))
    nodes += [node("Dropout", ["d"], ["e"]), node("Softmax", ["e"], ["y"], axis=1)]
    content = model(nodes, {"x": [1, 3, 4]}, ["y"], constants, opset)
    net = bl.load_onnx(written(content, tmp_path), check=True)
    x = torch.randn(6, 3, 4)
    padded = torch.nn.functional.pad(x[:, :, 1:3], (1, 0), value=2.0).clamp(-0.5, 0.5)
    torch.testing.assert_close(net(x), padded.sum(1).softmax(1))


def test_words_about_what_is_wrong(tmp_path: Path) -> None:
    def fails(match: str, *nodes: object, **constants: np.ndarray) -> None:
        path = written(model(list(nodes), {"x": [1, 3]}, ["y"], constants), tmp_path)
        with pytest.raises(bl.BoundlabError, match=match):
            bl.load_onnx(path)

    fails("no row for the ONNX operator Loop", node("Loop", ["x"], ["y"], name="loop"))
    fails(r"Relu \(y\): nothing computes its input 'z'", node("Relu", ["z"], ["y"]))
    fails("circle", node("Add", ["x", "b"], ["a"]), node("Neg", ["a"], ["b"]))
    fails("nothing computes the output 'y'", node("Neg", ["x"], ["b"]))
    fails("attribute gamma", node("Relu", ["x"], ["y"], gamma=1))
    fails("shape depends on the inputs", node("Reshape", ["x", "x"], ["y"]))
    fails("more than 1024 MiB", node("Expand", ["x", "s"], ["y"]), s=np.array([1 << 20, 1000, 3]))
    fails("given twice", node("Neg", ["x"], ["y"]), node("Relu", ["x"], ["y"]))
    fails("the operators of mine", node("Relu", ["x"], ["y"], domain="mine"))


def test_a_weight_that_two_layers_read(tmp_path: Path) -> None:
    """Once as it is and once transposed."""
    square = W[:3, :3]
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Gemm", ["a", "w"], ["b"], transB=1),
        node("Gemm", ["b", "w"], ["y"], transB=1, alpha=2.0),
    ]
    content = model(nodes, {"x": [1, 3]}, ["y"], {"w": square, "w.layer": square})
    net = bl.load_onnx(written(content, tmp_path), check=True)
    x, w = torch.rand(4, 3), torch.from_numpy(square)
    torch.testing.assert_close(net(x), 2 * x @ w @ w.t() @ w.t())


def test_gemm_that_adds_a_value(tmp_path: Path) -> None:
    content = model([node("Gemm", ["x", "w", "x"], ["y"])], {"x": [1, 3]}, ["y"], {"w": W[:3, :3]})
    net = bl.load_onnx(written(content, tmp_path), check=True)
    x = torch.rand(4, 3)
    torch.testing.assert_close(net(x), x @ torch.from_numpy(W[:3, :3]) + x)


@pytest.mark.parametrize("axis", [0, 1])
def test_samples_that_meet_where_the_trial_sees_nothing(axis: int, tmp_path: Path) -> None:
    """Behind a ReLU that is 0 for all small inputs."""
    nodes = [
        node("Sub", ["x", "far"], ["a"]),
        node("Relu", ["a"], ["b"]),
        node("CumSum", ["b", "axis"], ["c"]),
        node("Add", ["c", "x"], ["y"]),
    ]
    constants = {"far": np.float32(100), "axis": np.array(axis)}
    net = bl.load_onnx(written(model(nodes, {"x": [1, 3]}, ["y"], constants), tmp_path), check=True)
    x = 300 * torch.rand(5, 3)
    torch.testing.assert_close(net(x), torch.cat([net(one[None]) for one in x]))


@pytest.mark.parametrize("end", [1, 2, 5, 2**62])
def test_slice_that_ends_behind_the_only_sample(end: int, tmp_path: Path) -> None:
    constants = {"start": np.array([0]), "end": np.array([end]), "axis": np.array([0])}
    nodes = [node("Slice", ["x", "start", "end", "axis"], ["y"])]
    net = bl.load_onnx(written(model(nodes, {"x": [1, 3]}, ["y"], constants), tmp_path))
    x = torch.rand(7, 3)
    assert torch.equal(net(x), x)


def test_attention_with_the_batch_inside(tmp_path: Path) -> None:
    """As torch's MultiheadAttention is exported: (length, batch * heads, size), and (length *
    batch, features)."""
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0, 2]),
        node("Reshape", ["t", "heads"], ["h"]),
        node("Transpose", ["h"], ["q"], perm=[1, 0, 2]),
        node("Transpose", ["q"], ["k"], perm=[0, 2, 1]),
        node("MatMul", ["q", "k"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "q"], ["v"]),
        node("Transpose", ["v"], ["u"], perm=[1, 0, 2]),
        node("Reshape", ["u", "rows"], ["r"]),
        node("Gemm", ["r", "w"], ["g"]),
        node("Reshape", ["g", "back"], ["b"]),
        node("Transpose", ["b"], ["y"], perm=[1, 0, 2]),
    ]
    constants = {
        "heads": np.array([5, 2, 4]),
        "rows": np.array([5, 8]),
        "back": np.array([5, 1, 8]),
        "w": W[:8, :4].repeat(2, 1),
    }
    path = written(model(nodes, {"x": [1, 5, 8]}, ["y"], constants), tmp_path)
    net = bl.load_onnx(path, check=True)
    x = torch.rand(3, 5, 8)
    torch.testing.assert_close(net(x), torch.cat([net(one[None]) for one in x]))
    assert "free batch" in repr(bl.capture(net))


@pytest.mark.parametrize("reduction", ["none", "add"])
@pytest.mark.parametrize("turned", [False, True])
def test_elements_put_and_picked(reduction: str, turned: bool, tmp_path: Path) -> None:
    """With indices that name the only sample, or with the samples behind."""
    perm = [1, 0] if turned else [0, 1]
    index = np.array([[1], [3]]) if turned else np.array([[[0, 1], [0, 3]]])
    nodes = [
        node("Transpose", ["x"], ["a"], perm=perm),
        node("GatherND", ["a", "i"], ["b"]),
        node("ScatterND", ["zero", "i", "b"], ["c"], reduction=reduction),
        node("ScatterElements", ["c", "e", "b"], ["d"], axis=0 if turned else 1),
        node("Transpose", ["d"], ["y"], perm=perm),
    ]
    chosen = np.array([[0, 2]])
    zero = np.zeros((1, 4), np.float32)
    constants = {
        "i": index,
        "e": chosen.T if turned else chosen,
        "zero": zero.T if turned else zero,
    }
    path = written(model(nodes, {"x": [1, 4]}, ["y"], constants, opset=18), tmp_path)
    net = bl.load_onnx(path, check=True)
    x = torch.rand(5, 4)
    torch.testing.assert_close(net(x), x[:, [1, 1, 3, 3]])
    captured = bl.capture(net)
    assert "free batch" in repr(captured)
    bounds = captured.bounds(bl.Linf(x, 0.1))
    assert (bounds.lower <= net(x)).all() and (net(x) <= bounds.upper).all()


def test_branches_with_the_same_names(tmp_path: Path) -> None:
    from onnx import helper

    def branch(op: str, source: str) -> object:
        out = helper.make_tensor_value_info("inner", TensorProto.FLOAT, None)
        return helper.make_graph([node(op, [source], ["inner"])], op, [], [out])

    nodes = [
        node("If", ["yes"], ["a"], then_branch=branch("Neg", "x")),
        node("If", ["yes"], ["y"], then_branch=branch("Relu", "a")),
    ]
    content = model(nodes, {"x": [1, 3]}, ["y"], {"yes": np.array(True)})
    x = torch.randn(2, 3)
    assert torch.equal(bl.load_onnx(written(content, tmp_path))(x), torch.relu(-x))


def test_outputs_that_nothing_reads_need_no_row(tmp_path: Path) -> None:
    """The places of maxima, which exporters of training graphs leave there."""
    pool = node("MaxPool", ["x"], ["y", "places"], kernel_shape=[2, 2])
    path = written(model([pool], {"x": [1, 1, 3, 3]}, ["y"]), tmp_path)
    x = torch.rand(3, 1, 3, 3)
    assert torch.equal(bl.load_onnx(path)(x), torch.nn.functional.max_pool2d(x, 2, 1))
    cast = node("Cast", ["places"], ["z"], to=TensorProto.FLOAT)
    for nodes, outputs in (([pool, cast], ["z"]), ([pool], ["y", "places"])):
        path = written(model(nodes, {"x": [1, 1, 3, 3]}, outputs), tmp_path)
        with pytest.raises(bl.UnsupportedOperator, match=r"'places': of MaxPool .* first 1 output"):
            bl.load_onnx(path)


def test_nothing_is_assumed_of_the_number_of_samples(tmp_path: Path) -> None:
    """Else the network is traced a second time for one sample."""
    nodes = [
        node("Slice", ["x", "start", "end", "one"], ["a"]),
        node("Reshape", ["a", "cube"], ["b"]),
        node("Transpose", ["b"], ["c"], perm=[1, 0, 2]),
        node("Reshape", ["c", "time"], ["d"]),
        node("Transpose", ["d"], ["e"], perm=[1, 0, 2]),
        node("ReduceMean", ["e"], ["f"], axes=[1, 2], keepdims=1),
        node("Expand", ["f", "wide"], ["g"]),
        node("Reshape", ["g", "row"], ["y"]),
    ]
    constants = {
        "start": np.array([1]), "end": np.array([7]), "one": np.array([1]),
        "cube": np.array([1, 2, 3]), "time": np.array([2, 1, 3]), "wide": np.array([1, 2, 2]),
        "row": np.array([-1, 4]),
    }  # fmt: skip
    path = written(model(nodes, {"x": [1, 8]}, ["y"], constants, opset=13), tmp_path)
    net = bl.capture(path)
    assert net.graph.sizes.assumptions == ()
    x = torch.rand(3, 8)
    expected = x[:, 1:7].mean(1, keepdim=True).expand(3, 4)
    torch.testing.assert_close(net(x), expected)
