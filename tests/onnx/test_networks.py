"""Networks that others trained: what is loaded agrees with onnxruntime on inputs of their boxes,
and bounds of it hold."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.onnx.checking import run, session
from tests.helpers.shared import SHARED

FOLDER = SHARED / "vnncomp"
SETS = sorted(path.parent.name for path in FOLDER.glob("*/instances.csv")) or ["none"]
SLOW = {"cgan_2023_small", "vit_2023_small"}
"""Sets whose bounds take more than a second a network."""
TOLERANCE = 1e-5


def instances(name: str) -> dict[Path, Path]:
    """A property for each network of a set."""
    folder = FOLDER / name
    if not folder.exists():
        pytest.skip(f"no networks in BOUNDLAB_SHARED ({SHARED})")
    with (folder / "instances.csv").open() as file:
        rows = list(csv.reader(file))
    return {folder / f"{row[0]}.gz": folder / f"{row[1]}.gz" for row in rows}


def agrees(path: Path, x: Tensor) -> bool:
    """Whether both give the same for samples, together and one by one."""
    network, other = bl.load_onnx(path), session(path)
    with torch.no_grad():
        together = network(x).reshape(len(x), -1).double()
        alone = torch.cat([network(one[None]).reshape(1, -1) for one in x]).double()
    theirs = torch.cat([run(other, [one], network.inputs)[0].reshape(1, -1) for one in x]).double()
    scale = TOLERANCE * theirs.abs().max()  # single outputs may cancel
    return bool(
        ((together - theirs).abs() <= scale).all() & ((alone - theirs).abs() <= scale).all()
    )


@pytest.mark.parametrize("name", SETS)
def test_outputs_are_those_of_onnxruntime(name: str) -> None:
    pytest.importorskip("onnxruntime")
    for network, prop in instances(name).items():
        region = bl.load_vnnlib(prop).regions[0]
        x = torch.cat([region.sample() for _ in range(7)]).float()
        assert agrees(network, x), network.name


def check_bounds(network: Path, prop: Path) -> None:
    model = bl.load_onnx(network)
    hull = bl.load_vnnlib(prop).regions[0].hull()
    box = bl.Box(hull.lower.float(), hull.upper.float())
    shape = model.example(1)[0].shape
    net = bl.capture(model)
    with torch.no_grad():
        bounds = net.bounds(bl.Box(box.lower.reshape(shape), box.upper.reshape(shape)))
        y = model(torch.cat([box.sample() for _ in range(1000)]))
    assert bounds.lower.isfinite().all() and bounds.upper.isfinite().all(), network.name
    room = 1e-4 * y.abs().max()  # both round
    assert (bounds.lower - room <= y).all() and (y <= bounds.upper + room).all(), network.name


@pytest.mark.parametrize("name", [name for name in SETS if name not in SLOW])
def test_bounds_hold(name: str) -> None:
    """Of the first networks of a set."""
    for network, prop in list(instances(name).items())[:2]:
        check_bounds(network, prop)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_bounds_of_all_networks_hold(name: str) -> None:
    for network, prop in instances(name).items():
        check_bounds(network, prop)
