"""Methods as rows: names, aliases, and a row of one's own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.graph.graph import Node
from boundlab.methods.method import METHODS, Mode, find_method

ALIASES = {
    "CROWN": "crown",
    "backward": "crown",
    "IBP": "ibp",
    "CROWN-IBP": "crown-ibp",
    "alpha-CROWN": "alpha-crown",
    "CROWN-Optimized": "alpha-crown",
    "Forward+Backward": "forward+backward",
    "\u03b1-CROWN": "alpha-crown",
    "beta_crown": "beta-crown",
}


@pytest.mark.parametrize("name", ALIASES)
def test_names_of_other_libraries(name: str) -> None:
    assert find_method(name) is METHODS[ALIASES[name]]


def test_an_unknown_name_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(bl.ArgumentError, match="Did you mean 'crown'"):
        find_method("crwn")
    with pytest.raises(bl.ArgumentError, match="method must be one of"):
        find_method(3)  # type: ignore[arg-type]


def network() -> tuple[nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.Flatten()]
    model = nn.Sequential(*layers, nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3))
    return model, torch.rand(2, 1, 6, 6)


def test_crown_with_ibp_for_convolutions_is_a_row() -> None:
    """The exercise "add a method", in one place."""

    def by_layer(node: Node) -> Mode:
        return "interval" if "conv" in str(node.op) else "backward"

    mixed = bl.Method("crown, ibp for convolutions", by_layer, "backward", after="crown-ibp")
    model, x = network()
    net, region = bl.capture(model, x), bl.Linf(x, 0.1)
    found = {name: net.bounds(region, method=name) for name in ("crown-ibp", mixed, "crown")}
    loose, between, tight = found.values()
    room = 1e-5
    assert (loose.lower <= between.lower + room).all()
    assert (between.width <= loose.width + room).all()
    assert between.width.mean() < loose.width.mean() - 1e-3  # the linear layer is refined
    assert tight.width.mean() < between.width.mean() - 1e-3  # the convolutions are not


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (lambda: bl.Method("a", "sideways", "backward"), "a mode must be one of"),  # type: ignore[arg-type]
        (lambda: bl.Method("a", "interval", "interval", optimize=True), "output must be"),
    ],
)
def test_rows_that_make_no_sense(row: object, message: str) -> None:
    with pytest.raises(bl.ArgumentError, match=message):
        row()  # type: ignore[operator]


def test_a_row_that_gives_a_node_no_mode() -> None:
    model, x = network()
    row = bl.Method("odd", lambda node: "forward", "backward")
    with pytest.raises(bl.ArgumentError, match="'interval' or 'backward'"):
        bl.capture(model, x).bounds(bl.Linf(x, 0.1), method=row)


@pytest.mark.parametrize("seed", range(4))
def test_crown_behind_forward_mode(seed: int) -> None:
    """It holds, is at least as tight as forward mode with a backward pass behind it, and close to
    crown: what both leave open is pulled back alike."""
    torch.manual_seed(seed)
    layers: list[nn.Module] = [nn.Linear(3, 20), nn.ReLU()]
    for _ in range(3):
        layers += [nn.Linear(20, 20), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Tanh(), nn.Linear(20, 4)).double()
    x = torch.rand(5, 3).double()
    net, region = bl.capture(model, x), bl.Linf(x, 0.3)
    with torch.no_grad():
        found = net.bounds(region, method="forward+crown")
        forward = net.bounds(region, method="forward+backward")
        crown = net.bounds(region, method="crown")
        for _ in range(200):
            y = model(region.sample())
            assert ((found.lower - 1e-9 <= y) & (y <= found.upper + 1e-9)).all()
    assert ((found.lower >= forward.lower - 1e-9) & (found.upper <= forward.upper + 1e-9)).all()
    width = float((found.upper - found.lower).mean())
    assert width <= 1.01 * float((crown.upper - crown.lower).mean())
