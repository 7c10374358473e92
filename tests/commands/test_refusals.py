"""What ``boundlab certify`` and ``boundlab demo`` refuse, in one line that says why."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.helpers.commands import error


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("zoo", "package.module:factory"),
        ("nowhere.models:cnn", "ModuleNotFoundError"),
        ("bad_syntax:f", "SyntaxError"),
        ("needs_more:f", "a_package_that_is_not_there"),
        ("zoo:missing", "zoo has no 'missing'; it has: cnn"),
        ("zoo:none", "must return a torch.nn.Module, not NoneType"),
        ("zoo:broken", "zoo:broken() failed: KeyError: 'weights' (zoo.py, line"),
        ("zoo:quitting", "SystemExit"),
        ("zoo:number", "is a int"),
        ("missing.pt2", "there is no file missing.pt2"),
        ("missing.onnx", "there is no file missing.onnx"),
        ("best.pth", "weights go to --weights; MODEL builds the network"),
        ("runs/best.pt", "package.module:factory, with --weights runs/best.pt"),
        ("data.npz.pt2", "is not a program saved with torch.export.save"),
    ],
)
def test_bad_models(
    folder: Path, model: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data.npz.pt2").write_bytes((folder / "data.npz").read_bytes())
    assert message in error(capsys, "certify", model, "data.npz", "--methods", "ibp")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "there is no data file gone.npz"),
        ("data.txt", b"", "neither .npz nor .csv"),
        ("text.npz", b"hello", "is not an .npz file"),
        ("empty.csv", b"", "has no rows"),
        ("ragged.csv", b"1,2,3\n1,2\n", "rows of 2, 3 fields"),
        ("words.csv", b"1,2,3\n1,x,3\n", "not a number"),
        ("half.csv", b"0.5,2,3\n", "whole numbers"),
        ("nan.csv", b"1,nan,3\n", "NaN"),
        ("short.csv", b"1,2,3\n", "does not run on images of shape (1, 2)"),
    ],
)
def test_bad_data_files(
    folder: Path, name: str, content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (folder / name).write_bytes(content)
    model = "zoo:cnn"
    if name == "nan.csv":
        (folder / "flat.py").write_text("from torch import nn\ndef f(): return nn.Linear(2, 2)\n")
        model = "flat:f"
    assert message in error(capsys, "certify", model, name, "--methods", "ibp", "--range", "none")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": np.zeros(3)}, "has no array 'images' (or 'x'); it has: pictures"),
        ({"x": np.zeros((2, 1, 6, 6), np.uint8)}, "has no array 'labels'"),
        ({"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.zeros(3, int)}, "2 images but 3 labels"),
        (
            {"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.array([0, 7])},
            "labels must lie in 0 ... 2",
        ),
        ({"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.array([0.5, 1])}, "whole numbers"),
        (
            {"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.zeros((2, 3))},
            "one class number per image",
        ),
        ({"x": np.zeros((2, 1, 6, 6), complex), "y": np.zeros(2, int)}, "must be numbers"),
        (
            {"x": np.zeros((2, 1, 9, 9), np.uint8), "y": np.zeros(2, int)},
            "does not run on images of shape (2, 1, 9, 9)",
        ),
        (
            {"x": np.full((2, 1, 6, 6), 2.0), "y": np.zeros(2, int)},
            "outside the valid range 0 ... 1",
        ),
        ({"x": np.array([{}, {}]), "y": np.zeros(2, int)}, "plain arrays"),
    ],
)
def test_bad_arrays(
    folder: Path, arrays: dict[str, np.ndarray], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("bad.npz", **arrays)
    assert message in error(capsys, "certify", "zoo:cnn", "bad.npz", "--methods", "ibp")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "crwn"], "no method 'crwn'; there are: ibp"),
        (["--methods", "CRWN"], "complete. Did you mean 'crown'?"),
        (["--eps=-0.1"], ">= 0"),
        (["--range", "0"], "--range takes two numbers"),
        (["--range", "a", "b"], "--range takes two numbers"),
        (["--range", "1", "0"], "low <= high"),
        (["--shape", "1,7,7"], "has 49 values, but the images in data.npz have 36"),
        (["--mean", "1", "2"], "--mean takes one number or one per channel (1), not 2"),
        (["--std", "0"], "--std must be positive"),
        (["--std", "nan"], "--std must be positive"),
        (["--std", "1e-50"], "--std must be positive"),
        (["--weights", "gone.pt"], "there is no weights file gone.pt"),
        (["--weights", "data.csv"], "cannot read data.csv"),
        (["--weights", "other.pt"], "do not fit the model: missing: 0.weight"),
        (["--weights", "shape.pt"], "of another shape: 3.bias (7,) instead of (3,)"),
        (["--weights", "number.pt"], "holds no state dict"),
        (["--device", "nonsense"], "the device 'nonsense' cannot be used"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--batch", "0"], "batch size"),
        (["--output", "data.csv/sub"], "cannot write"),
    ],
)
def test_bad_options(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import zoo

    torch.save({"weight": torch.zeros(1)}, "other.pt")
    torch.save({**zoo.cnn().state_dict(), "3.bias": torch.zeros(7)}, "shape.pt")
    torch.save(3, "number.pt")
    methods = [] if "--methods" in options else ["--methods", "ibp"]
    assert message in error(capsys, "certify", "zoo:cnn", "data.npz", *methods, *options)


def test_weights_of_a_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "leave out --weights" in error(
        capsys, "certify", "model.pt2", "data.npz", "--weights", "data.npz"
    )


def test_demo_checks_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert "between 1 and 100" in error(capsys, "demo", "--images", "0")
    assert "no method 'x'" in error(capsys, "demo", "--methods", "x")
