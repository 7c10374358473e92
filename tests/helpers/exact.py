"""Bounds by every method against exact ones, or against values."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import boundlab as bl
from tests.helpers.contract import METHODS, assert_inside, steps

DUAL = {"Linf": 1.0, "L2": 2.0, "L1": math.inf}


def exact_affine(
    f: Callable[[Tensor], Tensor], x: Tensor, eps: Tensor | float, norm: str = "Linf"
) -> tuple[Tensor, Tensor]:
    """The extremes of an affine function of each sample, from its Jacobian and the dual norm."""
    lower, upper = [], []
    for sample, radius in zip(x, torch.as_tensor(eps, dtype=x.dtype).expand(x.shape), strict=True):
        one = lambda t: f(t[None])[0]
        matrix = torch.func.jacrev(one)(sample)
        scaled = (matrix * radius).reshape(*matrix.shape[: matrix.dim() - sample.dim()], -1)
        reach = torch.linalg.vector_norm(scaled, DUAL[norm], dim=-1)
        lower.append(one(sample) - reach)
        upper.append(one(sample) + reach)
    return torch.stack(lower).detach(), torch.stack(upper).detach()


def answers(f: Callable[..., Any], *entries: Any) -> dict[str, bl.Bounds]:
    """The bounds of f by every method."""
    net = bl.capture(
        f, *[entry.centre if isinstance(entry, bl.Region) else entry for entry in entries]
    )
    return {method: net.bounds(*entries, method=method, alpha=steps(method)) for method in METHODS}


def assert_exact(bounds: bl.Bounds, lower: Tensor, upper: Tensor, what: str) -> None:
    for found, expected in ((bounds.lower, lower), (bounds.upper, upper)):
        torch.testing.assert_close(
            found.detach(), expected.detach(), msg=lambda text: f"{what}: {text}"
        )


def assert_holds(bounds: bl.Bounds, values: Tensor, what: str) -> None:
    """values: (points, *shape of the output)."""
    for value in values:
        assert_inside(value.detach(), bounds.lower.detach(), bounds.upper.detach(), what)
