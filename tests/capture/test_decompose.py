"""Operators without a rule: taken apart where that helps, else whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import boundlab as bl
from tests.helpers.contract import assert_all_inside

X = torch.rand(3, 4, generator=torch.Generator().manual_seed(0)) + 0.5

TAKEN_APART: dict[str, Callable[[Tensor], Tensor]] = {
    "pointwise, of pointwise ones": lambda x: torch.special.entr(x),
    "whose parts are taken apart too": lambda x: torch.nn.functional.cosine_similarity(x, x.roll(1, 1)),
    "with sizes that are computed": lambda x: torch.tensordot(x.unsqueeze(2) * x.unsqueeze(1), torch.ones(4, 4), 2),
    "several in one model": lambda x: torch.cov(x[0, :2]).unsqueeze(0) + torch.special.xlog1py(x, x + 1).sum(1),
}  # fmt: skip
WHOLE = {
    "an operator of no rule is left": (torch.special.i0, "aten.special_i0"),
    "a decomposition that checks values": (
        lambda x: torch.linalg.inv(x.unsqueeze(2) * x.unsqueeze(1) + torch.eye(4)),
        "aten.linalg_inv",
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
