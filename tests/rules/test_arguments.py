"""Arguments of calls by name and place, however they were given."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from boundlab.graph.graph import Node
from boundlab.rules.arguments import argument, parameters
from boundlab.rules.casts import cut_off
from boundlab.rules.registry import Call, within

aten = torch.ops.aten
X = torch.zeros(2, 3)


def call(op: Any, *args: Any, **kwargs: Any) -> Call:
    return Call.of(Node("y", op, args, kwargs), {}.__getitem__)


CASES = [
    (call(aten.sum.dim_IntList, X, [1]), {"dim": [1], "keepdim": False, "dtype": None}),
    (call(aten.sum.dim_IntList, X, dim=[1], keepdim=True), {"dim": [1], "keepdim": True}),
    (call(aten.add.Tensor, X, X, alpha=2), {"alpha": 2}),
    (call(aten.add.Scalar, X, 1, 3), {"alpha": 3, "other": 1}),
    (call(aten.sub.Tensor, X, other=X), {1: X, "alpha": 1}),
    (call(aten.conv2d.default, X, X, None, [2]), {"stride": [2], "groups": 1, "bias": None}),
    (call(aten.avg_pool2d.default, X, [2]), {"stride": [], "ceil_mode": False}),
    (call(aten.slice.Tensor, X, 1, step=2), {"dim": 1, "start": None, "step": 2}),
    (call(aten.where.ScalarOther, X > 0, other=1, self=X), {"self": X, "other": 1}),
    (call(within, X, 0.0, high=1.0), {"x": X, 0: X, "low": 0.0, "high": 1.0}),
    (call(cut_off, X, dtype=torch.int8), {"dtype": torch.int8}),
]


@pytest.mark.parametrize(("given", "expected"), CASES, ids=lambda v: str(getattr(v, "node", "")))
def test_arguments_are_found_by_name(given: Call, expected: dict[Any, Any]) -> None:
    for key, value in expected.items():
        found = given[key]
        assert found is value or found == value, key


def test_an_argument_that_an_overload_does_not_have() -> None:
    of_all = call(aten.sum.default, X)
    assert of_all.get("dim") is None and of_all.get("keepdim", False) is False
    with pytest.raises(KeyError):
        of_all["dim"]
    with pytest.raises(KeyError):
        argument(aten.neg.default, (), {}, "self")


def test_the_schema_is_read_once() -> None:
    assert parameters(aten.linear.default) is parameters(aten.linear.default)
