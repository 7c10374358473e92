"""Boxes and polygons contain what the network reaches."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.patches import Polygon
from matplotlib.path import Path
from torch import nn

import boundlab as bl

INF = float("inf")


def drawn(ax: Axes) -> list[np.ndarray]:
    """The corners of the polygons in a picture."""
    return [artist.get_xy() for artist in ax.get_children() if isinstance(artist, Polygon)]


@pytest.fixture(scope="module")
def reached() -> tuple[bl.Net, bl.Linf, torch.Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 3))
    region = bl.Linf(torch.zeros(1, 2), 0.5)
    net = bl.capture(model, region.centre)
    members = torch.cat([region.sample() for _ in range(200)])
    return net, region, model(members).detach()


def test_boxes_and_polygons_contain_all_outputs(
    reached: tuple[bl.Net, bl.Linf, torch.Tensor],
) -> None:
    net, region, outputs = reached
    spec = bl.plot.directions(5, outputs=3, dims=(0, 2))
    with torch.no_grad():
        bounds, strips = net.bounds(region), net.bounds(region, spec=spec)
    ax = bl.plot.boxes(bounds, (0, 2), points=outputs, label="box")
    assert bl.plot.polygon(strips, spec, (0, 2), label="polygon", ax=ax) is ax
    box, polygon = drawn(ax)
    for corners in (box, polygon):
        assert (
            Path(corners).contains_points(outputs[:, [0, 2]], radius=1e-5).all()
            or Path(corners).contains_points(outputs[:, [0, 2]], radius=-1e-5).all()
        )
    assert len(box) == 5
    assert len(polygon) > 5
    assert ax.get_xlabel() == "output 0"
    (left, right), (bottom, top) = ax.get_xlim(), ax.get_ylim()
    assert left < outputs[:, 0].min() < outputs[:, 0].max() < right
    assert bottom < outputs[:, 2].min() < outputs[:, 2].max() < top
    assert ax.get_legend() is not None


def test_one_box_for_each_sample_step_and_region() -> None:
    bounds = bl.Bounds(torch.zeros(3, 2), torch.ones(3, 2))
    assert len(drawn(bl.plot.boxes(bounds))) == 3
    assert len(drawn(bl.plot.boxes([bl.Linf(torch.zeros(1, 2), 1.0), bounds]))) == 4


def test_a_side_without_limit_leaves_the_picture() -> None:
    bounds = bl.Bounds(torch.tensor([[0.0, -INF]]), torch.tensor([[1.0, 2.0]]))
    ax = bl.plot.boxes(bounds)
    (corners,) = drawn(ax)
    assert corners[:, 1].min() < ax.get_ylim()[0] < 2 < ax.get_ylim()[1] < 100
    everything = bl.Bounds(torch.full((1, 2), -INF), torch.full((1, 2), INF))
    ax = bl.plot.boxes(everything)
    (corners,) = drawn(ax)
    assert corners.min() < ax.get_xlim()[0] < ax.get_xlim()[1] < corners.max()


def test_a_point_is_marked() -> None:
    ax = bl.plot.boxes(bl.Bounds(torch.ones(1, 2), torch.ones(1, 2)))
    assert any(line.get_marker() == "o" for line in ax.get_lines())


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (bl.Bounds(torch.tensor([[0.0, float("nan")]]), torch.ones(1, 2)), "NaN"),
        (bl.Bounds(torch.ones(1, 2), torch.zeros(1, 2)), "exceeds"),
        (bl.Bounds(torch.full((1, 2), INF), torch.full((1, 2), INF)), "lower bound is inf"),
        (bl.Bounds(torch.zeros(1, 1), torch.ones(1, 1)), "no output 1"),
        (torch.zeros(1, 2), "result of net.bounds"),
        ([], "no bounds"),
        ([bl.Bounds(torch.zeros(n), torch.ones(n)) for n in (2, 3)], "same number"),
    ],
)
def test_odd_bounds_are_refused(bounds: object, message: str) -> None:
    with pytest.raises(bl.ArgumentError, match=message):
        bl.plot.boxes(bounds)


def test_a_spec_must_speak_of_the_two_outputs_alone() -> None:
    bounds = bl.Bounds(torch.zeros(1, 1), torch.ones(1, 1))
    with pytest.raises(bl.ArgumentError, match="zero for all outputs but 0 and 1"):
        bl.plot.polygon(bounds, torch.ones(1, 3))
    with pytest.raises(bl.ArgumentError, match="2 directions, but there are bounds of 1"):
        bl.plot.polygon(bounds, torch.eye(2))
    with pytest.raises(bl.ArgumentError, match="shape"):
        bl.plot.polygon(bounds, torch.zeros(1, 1, 2))
    with pytest.raises(bl.ArgumentError, match="at least 1"):
        bl.plot.directions(0)
