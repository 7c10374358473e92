"""Networks in ONNX files, given to ``boundlab certify``."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from boundlab.commands.loading import normalised
from tests.helpers.commands import error, results, run
from tests.helpers.onnx_files import model, node, written

GENERATOR = np.random.default_rng(0)
W = GENERATOR.standard_normal((36, 3)).astype(np.float32)
B = GENERATOR.standard_normal(3).astype(np.float32)
COMMON = ["--eps", "0.02", "--methods", "crown"]


def network(folder: Path, shape: list[int], name: str = "net.onnx") -> Path:
    """A classifier of 36 values that come in some shape."""
    nodes = [node("Flatten", ["x"], ["flat"]), node("Gemm", ["flat", "w", "b"], ["y"])]
    return written(model(nodes, {"x": shape}, ["y"], {"w": W, "b": B}), folder, name)


def margins(pixels: torch.Tensor, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
    """Those of data.npz, in closed form: (images, 2)."""
    weight = torch.from_numpy(W) / std
    scores = (pixels - mean) @ weight + torch.from_numpy(B)
    found = []
    for x, score, label in zip(pixels, scores, [0, 1, 2, 1, 0], strict=True):
        low, up = (x - 0.02).clamp(min=0) - x, (x + 0.02).clamp(max=1) - x
        rows = [(k, weight[:, label] - weight[:, k]) for k in range(3) if k != label]
        found.append(
            [score[label] - score[k] + torch.minimum(row * low, row * up).sum() for k, row in rows]
        )
    return torch.tensor(found, dtype=torch.float64)


@pytest.fixture
def pixels(folder: Path) -> torch.Tensor:
    return torch.from_numpy(np.load("data.npz")["images"]).float().flatten(1) / 255


def printed() -> torch.Tensor:
    return torch.tensor(results()[0]["margins"], dtype=torch.float64)


@pytest.mark.parametrize("shape", [[1, 1, 6, 6], [1, 6, 6], [1, 36], [36], [1, 36, 1, 1]])
def test_images_take_the_declared_shape(
    folder: Path, pixels: torch.Tensor, shape: list[int]
) -> None:
    """Pictures (1, 6, 6) and flat rows for whatever the file declares."""
    if len(shape) == 1:
        nodes = [node("MatMul", ["x", "w"], ["a"]), node("Add", ["a", "b"], ["y"])]
        written(model(nodes, {"x": shape}, ["y"], {"w": W, "b": B}), folder)
    else:
        network(folder, shape)
    for data in ("data.npz", "data.csv"):
        assert run("certify", "net.onnx", data, *COMMON, "--output", data.replace(".", "-")) == 0
        found = torch.tensor(results(data.replace(".", "-"))[0]["margins"], dtype=torch.float64)
        torch.testing.assert_close(found, margins(pixels), atol=1e-5, rtol=1e-4)


def test_packed_and_normalised(folder: Path, pixels: torch.Tensor) -> None:
    path = network(folder, [1, 1, 6, 6])
    (folder / "net.onnx.gz").write_bytes(gzip.compress(path.read_bytes()))
    options = ["--mean", "0.4", "--std", "0.3"]
    assert run("certify", "net.onnx.gz", "data.npz", *COMMON, *options) == 0
    torch.testing.assert_close(printed(), margins(pixels, 0.4, 0.3), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        ([1, 4, 9], [], "bring their dimensions into that order"),
        ([1, 6, 6], ["--weights", "w.pt"], "leave out --weights"),
    ],
)
def test_refusals(
    folder: Path,
    shape: list[int],
    options: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    network(folder, shape)
    assert message in error(capsys, "certify", "net.onnx", "data.npz", *COMMON, *options)


def test_another_number_of_values(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network(folder, [1, 1, 6, 6])
    np.savez("small.npz", images=np.zeros((2, 25), np.float32), labels=np.zeros(2, int))
    message = "takes images of shape (1, 6, 6), 36 values; these have the shape (25,), 25 values"
    assert message in error(capsys, "certify", "net.onnx", "small.npz", *COMMON)


def test_several_inputs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = model([node("Add", ["left", "right"], ["y"])], {"left": [1, 3], "right": [1, 3]}, "y")
    written(content, folder)
    assert "net.onnx takes left, right" in error(capsys, "certify", "net.onnx", "data.npz")
    (folder / "net.onnx").write_bytes(b"no network")
    assert "is no ONNX file" in error(capsys, "certify", "net.onnx", "data.npz")


@pytest.mark.parametrize("training", [False, True])
def test_a_normalisation_has_the_mode_of_the_model(training: bool) -> None:
    whole = normalised(torch.nn.Linear(4, 2).train(training), [0.5], [0.2], torch.zeros(1, 4))
    assert all(part.training == training for part in whole.modules())
