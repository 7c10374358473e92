"""Order statistics: planes over many boxes, entries whose rank is settled, places of values."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import boundlab as bl


def boxes(count: int, entries: int, seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Boxes of every width, many of them with ends that are whole numbers and so meet, some of them
    points, some as large as numbers go."""
    g = torch.Generator().manual_seed(seed)
    shape = (count, entries)
    uniform = lambda: torch.rand(shape, generator=g, dtype=torch.float64)
    ends = 4 * torch.randn((2, *shape), generator=g, dtype=torch.float64)
    ends[1] = torch.where(uniform() < 0.5, ends[1], ends[0] + 10 ** (4 * uniform() - 4))
    ends = torch.where(uniform() < 0.5, ends.round(), ends)
    scale = torch.where(uniform()[:, :1] < 0.1, 10 ** (60 * uniform()[:, :1] - 30), 1)
    low, up = ends.amin(0), ends.amax(0)
    up = torch.where(uniform() < 0.1, low, up)
    return (scale * low).to(dtype), (scale * up).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("entries", [1, 2, 3, 5, 8])
def test_lines_hold_at_vertices_and_inside(entries: int, dtype: torch.dtype) -> None:
    low, up = boxes(500, entries, entries, dtype)
    net = bl.capture(lambda x: x.sort(1).values, low)
    box = bl.Box(low, up)
    lines, (lower, upper) = net.linear_bounds(box), net.bounds(box, method="ibp")
    (source,) = net.graph.inputs
    assert torch.equal(lower, low.sort(1).values) and torch.equal(upper, up.sort(1).values)
    g = torch.Generator().manual_seed(0)
    size = torch.maximum(low.abs(), up.abs()).amax(1, keepdim=True)
    for k in range(60):
        share = torch.rand(low.shape, generator=g, dtype=dtype)
        if k % 2:
            share = share.round()
        x = torch.minimum(torch.maximum(low + share * (up - low), low), up)
        y, line = x.sort(1).values, lines.evaluate({source: x})
        room = 8 * torch.finfo(dtype).eps * entries * size
        assert bool((line.lower <= y + room).all() and (y <= line.upper + room).all())


def test_an_entry_of_settled_rank_is_itself() -> None:
    low = torch.tensor([[3.0, 0.0, 1.0, 5.0]])
    net = bl.capture(lambda x: x.sort(1, descending=True).values, low)
    lines = net.linear_bounds(bl.Box(low, low + 1))  # of which two meet in a point
    expected = torch.tensor([[3, 0, 2, 1]]).unsqueeze(-1) == torch.arange(4)
    for found in (lines.lower_A["x"], lines.upper_A["x"]):
        torch.testing.assert_close(found, expected.to(low.dtype))
    torch.testing.assert_close(lines.lower_b, torch.zeros(1, 4), atol=1e-5, rtol=0)


def test_differences_of_settled_entries_know_that_they_move_together() -> None:
    x = torch.tensor([[0.0, 2.0, 4.0]])
    weight = torch.tensor([[1.0, 1.0, 1.0]])
    net = bl.capture(lambda t: (t @ weight + x).sort(1).values.diff(dim=1), torch.zeros(1, 1))
    bounds = net.bounds(bl.Linf(torch.zeros(1, 1), 0.5), method="crown")
    torch.testing.assert_close(bounds.lower, torch.full((1, 2), 2.0))
    torch.testing.assert_close(bounds.upper, torch.full((1, 2), 2.0))


def test_places_that_depend_on_what_is_perturbed_pick_what_is_in_reach() -> None:
    x = torch.tensor([[3.0, 0.0, 0.1]])
    net = bl.capture(lambda x: x.gather(1, x.sort(1).indices), x)
    bounds = net.bounds(bl.Linf(x, 0.2))
    torch.testing.assert_close(bounds.lower, torch.tensor([[-0.2, -0.2, 2.8]]))
    torch.testing.assert_close(bounds.upper, torch.tensor([[0.3, 0.3, 3.2]]))


def test_places_of_constants_may_be_used() -> None:
    order = torch.tensor([3.0, 0.0, 1.0])
    x = torch.randn(2, 3)
    net = bl.capture(lambda x: x[:, order.sort().indices], x)
    torch.testing.assert_close(net.bounds(bl.Linf(x, 0.1)).lower, x[:, [1, 2, 0]] - 0.1)


def test_topk_without_an_order_is_refused() -> None:
    with pytest.raises(bl.CaptureError, match="sorted=False"):
        bl.capture(lambda x: x.topk(2, sorted=False).values, torch.randn(2, 5))
