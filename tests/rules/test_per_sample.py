"""What each sample asks of a weight."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.products import CentreForm, SignedForm, WithBias
from tests.helpers.watching import watch

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "tokens": (lambda: nn.Linear(4, 3), (2, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 7)),
    "conv2d": (
        lambda: nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1)),
        (2, 6, 5),
    ),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), (1, 3, 3, 3)),
    "same": (lambda: nn.Conv2d(1, 2, 3, padding="same"), (1, 4, 4)),
    "norm": (lambda: nn.BatchNorm2d(2).eval(), (2, 3, 3)),
}


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_by_samples_as_copies_would(name: str, both: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients by samples in closed form are those of a copy of the batch for every sample; one
    or both sides perturbed."""
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    model = make().double().eval()
    x = torch.rand(3, *shape, dtype=torch.float64)
    net = bl.capture(model, x)
    perturb: dict[str, bl.Region] = {"weight": bl.L2(eps=0.3), "bias": bl.Linf(eps=0.1)}
    entry = bl.Linf(x, 0.1) if both else x
    in_closed_form = watch(monkeypatch, AffineMap, "_of_units")
    lines = net.linear_bounds(entry, perturb=perturb)
    bounds, forward = (
        net.bounds(entry, perturb=perturb, method=method) for method in ("crown", "forward")
    )
    as_dense: list[Any] = []

    def of_dense(self: AffineMap, units: Any, apart: Any) -> Any:
        as_dense.append(self)
        return self._apply([unit.dense() for unit in units])

    monkeypatch.setattr(AffineMap, "_of_units", of_dense)
    declined: list[type] = []
    for kind in (AffineMap, CentreForm, Lines, Planes, SignedForm, WithBias):
        monkeypatch.setattr(kind, "backward_per_sample", lambda self, *_: declined.append(self))
    copies = net.linear_bounds(entry, perturb=perturb)
    assert declined
    for part in ("lower_A", "upper_A"):
        for key, value in getattr(lines, part).items():
            torch.testing.assert_close(value, getattr(copies, part)[key])
    torch.testing.assert_close(net.bounds(entry, perturb=perturb).lower, bounds.lower)
    torch.testing.assert_close(
        net.bounds(entry, perturb=perturb, method="forward").upper, forward.upper
    )
    assert bool(as_dense) == bool(in_closed_form)
    assert as_dense or name != "linear" or both


@pytest.mark.parametrize("name", ["linear", "conv2d", "same"])
def test_interval_arithmetic_knows_the_norm_of_a_weight(name: str) -> None:
    """One step from a Euclidean ball is exact: eps times the norm of what each weight is multiplied
    with."""
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    net = bl.capture(make().double(), x := torch.rand(2, *shape, dtype=torch.float64))
    perturb = {"weight": bl.L2(eps=0.3)}
    ibp, crown = (net.bounds(x, perturb=perturb, method=method) for method in ("ibp", "crown"))
    torch.testing.assert_close(ibp.lower, crown.lower)
    torch.testing.assert_close(ibp.upper, crown.upper)
    if name == "linear":
        torch.testing.assert_close(ibp.width, 0.6 * x.norm(dim=1, keepdim=True).expand(-1, 3))
