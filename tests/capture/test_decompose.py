"""Operators without a rule: taken apart where that helps, else whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import boundlab as bl
from tests.helpers.contract import assert_all_inside

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) + 0.5

TAKEN_APART: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise, of pointwise ones": lambda x: functional.soft_margin_loss(
        x, torch.ones(3, 4), reduction="none"
    ),
    "whose parts are taken apart too": lambda x: functional.cosine_embedding_loss(
        x, x.roll(1, 1), torch.ones(3), reduction="none"
    ),
    "with sizes that are computed": lambda x: torch.tensordot(x, torch.ones(4, 2), 1),
    "several in one model": lambda x: torch.addr(x, x[:, 0], x[0]) + torch.frac(x),
}
WHOLE = {
    "an operator of no rule is left": (torch.special.i0, "aten.special_i0"),
    "a decomposition that checks values": (
        lambda x: torch.linalg.cholesky(x.unsqueeze(2) * x.unsqueeze(1) + torch.eye(4)),
        "aten.linalg_cholesky",
    ),
    "several outputs": (lambda x: torch.linalg.svdvals(x.view(-1, 2, 2)), "aten.linalg_svdvals"),
}


@pytest.mark.parametrize("name", TAKEN_APART)
def test_what_torch_takes_apart_has_bounds(name: str) -> None:
    model = TAKEN_APART[name]
    net = bl.capture(model, X, batched=False)
    noise = 0.05 * (2 * torch.rand(200, *X.shape) - 1)
    values = torch.stack([model(X + one) for one in noise])
    for method in ("ibp", "crown", "forward"):
        with torch.no_grad():
            bounds = net.bounds(bl.Linf(X, 0.05), method=method)
        assert_all_inside(values, bounds.lower, bounds.upper, method)


@pytest.mark.parametrize("name", WHOLE)
def test_what_would_leave_something_without_a_rule_stays_whole(name: str) -> None:
    model, operator = WHOLE[name]
    net = bl.capture(model, X)
    assert operator in {str(node.op).removesuffix(".default") for node in net.graph.nodes.values()}
    with pytest.raises(bl.UnsupportedOperator, match=operator):
        net.bounds(bl.Linf(X, 0.05))
