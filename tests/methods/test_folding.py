"""Folded graphs give what whole ones do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.methods.folding import fold
from boundlab.rules.registry import CUTS

# -- folding ---------------------------------------------------------------------------------------


FOLDED = {
    "conv": (
        nn.Sequential(
            nn.Conv2d(2, 3, 3, padding=1),
            nn.BatchNorm2d(3),
            nn.ReLU(),
            nn.Conv2d(3, 2, 3, bias=False),
            nn.BatchNorm2d(2),
        ),
        (2, 6, 6),
    ),
    "1d": (
        nn.Sequential(nn.Conv1d(2, 3, 3, stride=2), nn.BatchNorm1d(3, affine=False), nn.ReLU()),
        (2, 9),
    ),
    "3d": (nn.Sequential(nn.Conv3d(1, 2, 2, groups=1), nn.BatchNorm3d(2), nn.ReLU()), (1, 3, 3, 3)),
    "linear": (nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), (4,)),
}


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("name", FOLDED)
def test_folding_changes_nothing(name: str, train: bool) -> None:
    torch.manual_seed(0)
    model, shape = FOLDED[name]
    model = model.double().train()
    for _ in range(5):
        model(torch.rand(8, *shape, dtype=torch.float64))
    with torch.no_grad():
        for module in model:
            if hasattr(module, "running_mean") and module.weight is not None:
                module.weight.uniform_(-1, 1)
    x = torch.rand(3, *shape, dtype=torch.float64)
    model.train(train)
    net = bl.capture(model, x)
    norms = sum(hasattr(module, "running_mean") for module in model)
    variable = net.graph.dependents(set(net.graph.inputs), CUTS)
    folded = fold(net.graph, variable, tuple(o.name for o in net.graph.outputs))
    assert sum(node.name.endswith(".weight") for node in folded.nodes.values()) == norms
    region = bl.Linf(x, 0.05)
    for method in ("ibp", "crown", "forward", "crown-ibp"):
        short, whole = (
            net.bounds(region, method=method),
            net.bounds(region, method=method, intermediates=True),
        )
        # intermediates=True refines more, folding may only be tighter too
        tighter = 1e-9 + 1e-6 * whole.width.abs()
        assert (short.lower >= whole.lower - tighter - 0.02 * whole.width).all() and (
            short.upper <= whole.upper + tighter + 0.02 * whole.width
        ).all()
    point = net.bounds(bl.Linf(x, 0.0), method="ibp")
    torch.testing.assert_close(point.lower, model(x))


def test_what_is_perturbed_or_read_elsewhere_is_not_folded() -> None:
    torch.manual_seed(0)
    conv, norm = nn.Conv2d(1, 2, 3).double(), nn.BatchNorm2d(2).double().eval()

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = conv, norm

        def forward(self, x: Tensor) -> Tensor:
            h = self.conv(x)
            return self.norm(h) + h

    x = torch.rand(2, 1, 5, 5, dtype=torch.float64)
    net = bl.capture(Twice().eval(), x)
    variable = net.graph.dependents(set(net.graph.inputs), CUTS)
    assert not any(".weight" in name for name in fold(net.graph, variable, ()).nodes)
    plain = bl.capture(nn.Sequential(conv, norm).eval(), x)
    found = plain.bounds(x, perturb={"1.weight": bl.Linf(eps=0.1)}, method="ibp")
    scale = torch.rsqrt(norm.running_var + norm.eps)[:, None, None]
    # exact, as the input is fixed
    exact = ((conv(x) - norm.running_mean[:, None, None]) * scale).abs() * 0.1
    torch.testing.assert_close(found.width, 2 * exact)
