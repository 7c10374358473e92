"""Single nodes whose meaning is easily missed: what is loaded gives what onnxruntime gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.onnx.checking import session
from tests.helpers.onnx_files import model, node, written

pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def loaded(
    operator: str,
    shape: list[int],
    folder: Path,
    constants: dict[str, np.ndarray] | None = None,
    opset: int = 18,
    inputs: list[str] | None = None,
    **attributes: Any,
) -> Any:
    """A network of one node, compared with onnxruntime."""
    constants = constants or {}
    nodes = [node(operator, inputs or ["x", *constants], ["y"], **attributes)]
    path = written(model(nodes, {"x": shape}, ["y"], constants, opset=opset), folder)
    return bl.load_onnx(path, check=True)


@pytest.mark.parametrize(
    "operator",
    ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceSum", "ReduceLogSumExp"],
)
def test_reductions_over_no_axes(operator: str, tmp_path: Path) -> None:
    """No axis is reduced, but squares, logarithms and absolute values are taken."""
    loaded(operator, [1, 3, 4], tmp_path, noop_with_empty_axes=1)


@pytest.mark.parametrize("scales", [(1, 1, 0.6, 0.6), (1, 1, 1.7, 0.8), (1, 1, 0.75, 3)])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_resize_before_it_had_modes(scales: tuple[float, ...], mode: str, tmp_path: Path) -> None:
    constants = {"s": np.array(scales, np.float32)}
    loaded("Resize", [1, 2, 5, 5], tmp_path, constants, 10, mode=mode)


@pytest.mark.parametrize("size", [4, 5, 10, 11])
@pytest.mark.parametrize("scale", [0.6, 0.8, 1.5, 1.7])
@pytest.mark.parametrize(
    ("mode", "place", "nearest"),
    [
        ("nearest", "asymmetric", "floor"),
        ("nearest", "half_pixel", "floor"),
        ("nearest", "asymmetric", "round_prefer_ceil"),
        ("nearest", "align_corners", "floor"),
        ("linear", "align_corners", "floor"),
        ("cubic", "align_corners", "floor"),
    ],
)
def test_resize_at_ties_and_to_sizes_that_are_rounded(
    mode: str, place: str, nearest: str, scale: float, size: int, tmp_path: Path
) -> None:
    constants = {"s": np.array([1, 1, scale, scale], np.float32)}
    way = {"mode": mode, "coordinate_transformation_mode": place, "nearest_mode": nearest}
    loaded("Resize", [1, 1, size, size], tmp_path, constants, 13, ["x", "", "s"], **way)


@pytest.mark.parametrize("auto_pad", ["NOTSET", "SAME_UPPER", "SAME_LOWER"])
@pytest.mark.parametrize("wanted", [7, 8, 9, 10])
def test_transposed_convolution_to_a_size(auto_pad: str, wanted: int, tmp_path: Path) -> None:
    """Sizes of up to 9 are cut; larger ones get what is missing behind."""
    constants = {"w": floats(2, 2, 3)}
    given = {"auto_pad": auto_pad, "output_shape": [wanted], "strides": [2]}
    net = loaded("ConvTranspose", [1, 2, 4], tmp_path, constants, 11, **given)
    assert net(torch.rand(3, 2, 4)).shape == (3, 2, wanted)


@pytest.mark.parametrize("axes", [1, 2, 3])
def test_quantised_convolutions_of_all_ranks(axes: int, tmp_path: Path) -> None:
    constants = {
        "scale": np.float32(0.02),
        "zero": np.uint8(100),
        "w": RNG.integers(-100, 100, (3, 2, *[2] * axes)).astype(np.int8),
        "scales": np.array([0.01, 0.02, 0.03], np.float32),
        "zeros": np.zeros(3, np.int8),
        "out": np.float32(0.2),
    }
    of_w = ["w", "scales", "zeros", "out", "zero"]
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("QLinearConv", ["q", "scale", "zero", *of_w], ["c"]),
        node("DequantizeLinear", ["c", "out", "zero"], ["y"]),
    ]
    proto = model(nodes, {"x": [1, 2, *[4] * axes]}, ["y"], constants, opset=13)
    net = bl.load_onnx(written(proto, tmp_path))
    assert net(torch.rand(2, 2, *[4] * axes)).shape == (2, 3, *[3] * axes)


def test_activations_take_betas_only_if_they_have_one(tmp_path: Path) -> None:
    constants = {"w": floats(2, 3, 4), "r": floats(2, 3, 3)}
    names = ["LeakyRelu", "HardSigmoid"]
    numbers = {"activation_alpha": [0.1, 0.3], "activation_beta": [0.4]}
    given = {"hidden_size": 3, "direction": "bidirectional", "activations": names, **numbers}
    loaded("RNN", [5, 1, 4], tmp_path, constants, 14, **given)


@pytest.mark.parametrize("integer", [False, True])
def test_quantisation_by_the_value_itself_has_bounds(integer: bool, tmp_path: Path) -> None:
    """It is mapped over samples; torch then casts numbers, which are no nodes."""
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"])]
    constants = {}
    if integer:
        constants["w"] = RNG.integers(-100, 100, (6, 3)).astype(np.int8)
        nodes += [node("MatMulInteger", ["q", "w", "zero"], ["p"])]
        nodes += [node("Cast", ["p"], ["c"], to=1), node("Mul", ["c", "scale"], ["y"])]
    else:
        nodes += [node("DequantizeLinear", ["q", "scale", "zero"], ["y"])]
    path = written(model(nodes, {"x": [1, 6]}, ["y"], constants, opset=13), tmp_path)
    net = bl.load_onnx(path, check=True)
    x = torch.rand(3, 6)
    bounds = bl.capture(net).bounds(bl.Linf(x, 0.1))
    y = net(x + 0.2 * torch.rand(3, 6) - 0.1)
    assert (bounds.lower <= y).all() and (y <= bounds.upper).all()


def test_what_is_not_freed_is_captured_for_one_sample(tmp_path: Path) -> None:
    """torch.vmap fixes the number of samples of a gather."""
    net = loaded("Gather", [1, 3, 4], tmp_path, {"first": np.array(0)})
    x = torch.rand(1, 3, 4)
    bounds = bl.capture(net).bounds(bl.Linf(x, 0.1))
    assert (bounds.lower <= net(x)).all() and (net(x) <= bounds.upper).all()


def test_inputs_of_both_signs_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What differs for negative inputs only is found too."""
    path = written(model([node("Abs", ["x"], ["y"])], {"x": [1, 6]}, ["y"]), tmp_path)
    relu = model([node("Relu", ["x"], ["y"])], {"x": [1, 6]}, ["y"])
    other = session(written(relu, tmp_path, "relu.onnx"))
    monkeypatch.setattr("boundlab.onnx.checking.session", lambda path: other)
    with pytest.raises(bl.ArgumentError, match="differs from onnxruntime's"):
        bl.load_onnx(path, check=True)
