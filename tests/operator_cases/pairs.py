"""Operators on two variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.operator_cases.case import add, on, written


def fill() -> None:
    add((6,), {
        "mul, two variables": halves(torch.mul),
        "mul, with the flipped": lambda x: x * x.flip(1),
        "mul, broadcast variables": lambda x: x[:, :2, None] * x[:, None, 2:],
        "maximum": halves(torch.maximum),
        "minimum": halves(torch.minimum),
        "fmax, fmin": halves(lambda a, b: torch.fmax(a, b) - torch.fmin(a, b) + torch.max(a, b) + torch.min(a, b)),
        "maximum with a constant": (lambda x, w: torch.maximum(x, w) - torch.minimum(w, x), (6,)),
        "where, perturbed condition": halves(lambda a, b: torch.where(a > b, a, -b)),
        "where, condition apart": lambda x: torch.where(x[:, :2] > 0.1, x[:, 2:4], x[:, 4:]),
        "where, broadcast condition": lambda x: torch.where(x[:, :1] > 0.1, x[:, 2:4], x[:, 4:5] * 2),
        "comparison of two variables": halves(lambda a, b: (a >= b).to(a.dtype) + (a < b).to(a.dtype) * 2 + (a <= b) * a),
        "comparison, equal variables": halves(lambda a, b: (a.round() == b.round()).to(a.dtype) - (a.round() != b.round()).to(a.dtype)),
        "addcmul, variables": lambda x: torch.addcmul(x[:, :2], x[:, 2:4], x[:, 4:], value=-0.5),
        "lerp, variables": lambda x: torch.lerp(x[:, :2], x[:, 2:4], x[:, 4:]),
        "logaddexp": halves(torch.logaddexp),
        "hypot": halves(torch.hypot),
        "dot by sum": halves(lambda a, b: (a * b).sum(1)),
        "mse_loss, l1_loss": halves(lambda a, b: F.mse_loss(a, b, reduction="none") + F.l1_loss(a, b, reduction="none")),
        "pairwise_distance": halves(F.pairwise_distance),
        "pairwise_distance, 1": halves(on(F.pairwise_distance, p=1.0, keepdim=True)),
        "einsum, outer": halves(lambda a, b: torch.einsum("bi,bj->bij", a, b)),
        "einsum, outer transposed": halves(lambda a, b: torch.einsum("bi,bj->bji", a, b)),
        "einsum, elementwise": halves(lambda a, b: torch.einsum("bi,bi->bi", a, b)),
        "einsum, inner": halves(lambda a, b: torch.einsum("bi,bi->b", a, b)),
        "einsum, quadratic form": (lambda x, w: torch.einsum("bi,ij,bj->b", x[:, :3], w, x[:, 3:]), (3, 3)),
        "einsum, quadratic form of one": (lambda x, w: torch.einsum("bi,ij,bj->b", x, w, x), (6, 6)),
        "einsum, three variables": lambda x: torch.einsum("bi,bj,bk->bkij", *x.chunk(3, 1)),
        "einsum, four operands": (lambda x, w: torch.einsum("bi,ij,jk,bk->bj", x[:, :3], w, w, x[:, 3:]), (3, 3)),
        "einsum, square": lambda x: torch.einsum("bi,bj->bij", x[:, :3], x[:, :3]),
        "bilinear": (lambda x, w, b: F.bilinear(x[:, :3], x[:, 3:], w, b), (2, 3, 3), (2,)),
    })  # fmt: skip
    add((2, 6), {
        "matmul, two variables": lambda x: x[..., :3] @ x[..., 3:].mT,
        "bmm, two variables": lambda x: torch.bmm(x[..., :3], x[..., 3:].mT),
        "baddbmm, two variables": lambda x: torch.baddbmm(x[:, :, :2], x[..., :3], x[..., 3:].mT, alpha=-0.5, beta=2.0),
        "matmul, broadcast variables": lambda x: x[:, None, :, :3] @ x[:, :, 3:, None],
        "matmul with itself": lambda x: x @ x.mT,
        "matmul, vector of variables": lambda x: (x.unsqueeze(1) @ x.mT.unsqueeze(1)).squeeze(1),
        "einsum, two variables": lambda x: torch.einsum("bij,bkj->bik", x[..., :3], x[..., 3:]),
        "einsum, transposed product": lambda x: torch.einsum("bij,bij->bji", x[..., :2], x[..., 2:4]),
        "einsum, implicit output": lambda x: torch.einsum("bik,bjk->bij", x[..., :2], x[..., 2:4]) * 0.5,
        "einsum, summed away": lambda x: torch.einsum("bij,bkl->bk", x[..., :2], x[..., 2:]),
        "einsum, dots of two variables": lambda x: torch.einsum("...ij,...kj->...ik", x[..., :3], x[..., 3:]),
        "einsum, implied dots": (lambda x, w: torch.einsum("...ij,jk", x.tanh(), w), (6, 2)),
        "einsum, dots of a product with a constant": (lambda x, w: torch.einsum("...i,ij,...j->...", x[..., :3], w, x[..., 3:]), (3, 3)),
        "linear of variables": lambda x: torch.vmap(F.linear)(x[..., :3], x[..., 3:]),
        "attention scores by einsum": lambda x: torch.softmax(torch.einsum("bqd,bkd->bqk", x[..., :3], x[..., 3:]), -1),
        "write, product": written(lambda y, x: y[:, 0].mul_(x[:, 1])),
    })  # fmt: skip
    add((6,), {
        "div, two variables": halves(torch.div),
        "addcdiv, variables": lambda x: torch.addcdiv(x[:, :2], x[:, 2:4], x[:, 4:], value=-0.5),
        "div, by a sum": lambda x: x / x.sum(1, keepdim=True),
        "remainder, variables": halves(torch.remainder),
        "div, floor of variables": halves(lambda a, b: torch.div(a, b, rounding_mode="floor")),
        "pow, variables": halves(torch.pow),
    }, 0.2)  # fmt: skip
    add((6,), {"div, negative denominator": halves(lambda a, b: (a + 2) / b)}, high=-0.2)


def halves(f: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor], Any]:
    """A function of two variables, which are the halves of dimension 1 of x."""
    return lambda x: f(*x.chunk(2, 1))
