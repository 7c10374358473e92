"""Images and labels in files: the order of their values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.commands.arrays import load_data
from boundlab.defaults import LAYOUTS
from tests.helpers.commands import error, results, run

MODEL = """
import torch
from torch import nn

def rgb():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 3))
"""
IMAGES = np.random.default_rng(0).random((4, 3, 4, 5)).astype(np.float32)
LABELS = np.array([0, 1, 2, 0])


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same images with the channels first and last, with their shapes and flat."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("layouts.py").write_text(MODEL)
    orders = {"chw": IMAGES, "hwc": IMAGES.transpose(0, 2, 3, 1)}
    for layout, images in orders.items():
        np.savez(f"{layout}.npz", images=images, labels=LABELS)
        flat = images.reshape(len(images), -1)
        np.savez(f"{layout}-flat.npz", images=flat, labels=LABELS)
        np.savetxt(f"{layout}-flat.csv", np.hstack([LABELS[:, None], flat]), delimiter=",")
    return tmp_path


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("end", [".npz", "-flat.npz", "-flat.csv"])
@pytest.mark.parametrize("limit", [None, 3])
def test_layouts(files: Path, layout: str, end: str, limit: int | None) -> None:
    shape = (3, 4, 5) if "flat" in end else None
    images, labels = load_data(Path(f"{layout}{end}"), shape, limit, layout)
    assert images.shape == (limit or 4, 3, 4, 5) and images.is_contiguous()
    assert torch.equal(images, torch.from_numpy(IMAGES[:limit]))
    assert labels.tolist() == LABELS[:limit].tolist()


def test_layout_and_shape_of_an_array_with_dimensions(files: Path) -> None:
    images, _ = load_data(Path("hwc.npz"), (3, 4, 5), layout="hwc")
    assert torch.equal(images, torch.from_numpy(IMAGES))


@pytest.mark.parametrize("end", ["-flat.npz", "-flat.csv"])
def test_flat_images_have_no_layout(files: Path, end: str) -> None:
    with pytest.raises(bl.ArgumentError, match=r"have the shape \(60,\): give --shape C,H,W"):
        load_data(Path(f"hwc{end}"), layout="hwc")
    with pytest.raises(bl.ArgumentError, match="--layout hwc is for images of height, width"):
        load_data(Path(f"hwc{end}"), (60,), layout="hwc")


def test_certify_with_the_channels_last(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["certify", "layouts:rgb", "--methods", "crown", "--eps", "0.01", "--no-attack"]
    flat = ["hwc-flat.csv", "--shape", "3,4,5", "--layout", "hwc"]
    assert run(*call, "chw.npz", "--output", "a") == 0, capsys.readouterr().err
    assert run(*call, *flat, "--output", "b") == 0, capsys.readouterr().err
    first, second = (torch.tensor(results(name)[0]["margins"]) for name in "ab")
    torch.testing.assert_close(first, second)
    assert "does not run on images of shape" in error(capsys, *call, "hwc.npz", "--output", "c")


@pytest.mark.parametrize("command", ["certify", "attack", "radius"])
def test_commands_that_have_layouts(
    files: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    line = [command, "layouts:rgb", "hwc-flat.npz", "--layout", "hwc"]
    assert "give --shape C,H,W" in error(capsys, *line)
