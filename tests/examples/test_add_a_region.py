"""The example of a region of one's own against the corners of its cube."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from examples.add_a_region import Zonotope, lighting
from tests.helpers.contract import METHODS, assert_close, assert_inside, check_sound, steps


def zonotope(dtype: torch.dtype = torch.float64) -> Zonotope:
    """Two sets in three dimensions with four generators each."""
    torch.manual_seed(0)
    return Zonotope(torch.randn(2, 3, dtype=dtype), 0.5 * torch.randn(2, 4, 3, dtype=dtype))


def corners(region: Zonotope) -> Tensor:
    """What the corners of the cube of z are taken to: (corners, samples, *shape). A linear function
    is least at one of them."""
    signs = itertools.product((-1.0, 1.0), repeat=region.generators.shape[1])
    z = torch.tensor(list(signs), dtype=region.x.dtype)
    return region.x + torch.einsum("ck,sk...->cs...", z, region.generators)


def network(dtype: torch.dtype = torch.float64) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)
    ).to(dtype)


def test_the_minimum_is_attained_at_a_corner() -> None:
    region = zonotope()
    rows = torch.randn(50, 2, 3, dtype=torch.float64)
    values = (rows * corners(region).unsqueeze(1)).sum(3)  # (corners, rows, samples)
    assert_close(region.minimum(rows), values.amin(0))


def test_the_hull_touches_the_corners() -> None:
    region = zonotope()
    assert_close(region.hull().lower, corners(region).amin(0))
    assert_close(region.hull().upper, corners(region).amax(0))


def test_samples_are_members_and_reach_far() -> None:
    """With fewer generators than dimensions, z can be read off a member."""
    torch.manual_seed(0)
    region = Zonotope(torch.randn(2, 5).double(), torch.randn(2, 3, 5).double())
    generator = torch.Generator().manual_seed(0)
    moves = torch.stack([region.sample(generator) for _ in range(500)]) - region.x
    z = torch.einsum("csn,snk->csk", moves, torch.linalg.pinv(region.generators))
    assert_close(torch.einsum("csk,skn->csn", z, region.generators), moves)
    assert (z.abs() <= 1 + 1e-9).all()
    assert (z.amax(0) > 0.95).all() and (z.amin(0) < -0.95).all()


@pytest.mark.parametrize("method", METHODS)
def test_bounds_of_a_linear_model_are_exact(method: str) -> None:
    """Those by interval arithmetic are not: it knows of the box alone."""
    region, model = zonotope(), nn.Linear(3, 4).double()
    found = bl.capture(model, region.x).bounds(region, method=method, alpha=steps(method))
    values = model(corners(region))
    for value in values:
        assert_inside(value, found.lower, found.upper, method)
    if method != "ibp":
        assert_close(found.lower, values.amin(0))
        assert_close(found.upper, values.amax(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bounds_hold_for_members(dtype: torch.dtype) -> None:
    region, model = zonotope(dtype), network(dtype)
    found = check_sound(model, (region,), count=200)
    assert set(found) == set(METHODS)
    for corner in corners(region):
        for method, bounds in found.items():
            assert_inside(model(corner), bounds.lower, bounds.upper, f"{method}, corner")


def test_a_wrong_minimum_is_found() -> None:
    class Forgetful(Zonotope):
        """The minimum without the last generator."""

        def minimum(self, coefficients: Tensor) -> Tensor:
            return Zonotope(self.x, self.generators[:, :-1]).minimum(coefficients)

    whole = zonotope()
    region = Forgetful(whole.x, whole.generators)
    with pytest.raises(AssertionError, match="bound"):
        check_sound(network(), (region,), count=200)


def test_samples_of_a_batch_are_their_own() -> None:
    region = zonotope()
    net = bl.capture(network(), region.x)
    whole, last = net.bounds(region), net.bounds(region.samples(slice(1, 2)))
    assert_close(last.lower, whole.lower[1:])
    assert_close(last.upper, whole.upper[1:])


def test_tighter_than_the_box_around_it() -> None:
    x = torch.rand(2, 1, 6, 6)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3))
    region = lighting(x, 0.1, 0.1)
    box = bl.Box(region.hull().lower, region.hull().upper)
    net = bl.capture(model, x)
    assert (net.bounds(region).width < 0.9 * net.bounds(box).width).all()
    check_sound(model, (region,), net=net, count=100)
