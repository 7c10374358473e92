"""Operators on several variables: angles, losses, products of many factors, small matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, special

from tests.operator_cases.case import BATCH, add
from tests.operator_cases.pairs import halves


def fill() -> None:
    _pairs()
    _losses()
    _matrices()


def _pairs() -> None:
    add((6,), {
        "atan2": halves(torch.atan2),
        "atan2, by its second name": halves(lambda a, b: torch.arctan2(a, b + 3)),
        "atan2 of a constant": (lambda x, w: torch.atan2(w, x), (6,)),
        "atan2 to a constant": (lambda x, w: torch.atan2(x, w), (6,)),
        "atan2, broadcast": lambda x: torch.atan2(x[:, :2, None] + 4, x[:, None, 2:]),
        "copysign, variables": halves(torch.copysign),
        "heaviside, variables": halves(lambda a, b: torch.heaviside(a.detach(), b.detach())),
        "fmod, shifted variables": halves(lambda a, b: torch.fmod(a, b.abs() + 0.3)),
        "xlogy, constant base": (lambda x, w: torch.xlogy(x, w.abs()) + torch.xlogy(x, 2.5), (6,)),
        "cumprod": lambda x: x.cumprod(1),
        "cumprod, of mostly constants": (lambda x, w: torch.cat([x[:, :1], w.expand(x.shape[0], 3)], 1).cumprod(-1), (3,)),
        "cross": halves(lambda a, b: torch.cross(a, b, dim=1)),
        "cross with a constant": (lambda x, w: torch.linalg.cross(x[:, :3], w) + torch.linalg.cross(w, x[:, 3:]), (1, 3)),
        "cross, unnamed dimension": lambda x: torch.ops.aten.cross(x.reshape(-1, 2, 3), x.reshape(-1, 2, 3).flip(1)),
        "one_hot": (lambda x, i: x.unsqueeze(-1) * F.one_hot(i, 4), torch.tensor([0, 3, 1, 2, 0, 1])),
        "aminmax": lambda x: torch.stack(torch.aminmax(x, dim=1), 1),
    })  # fmt: skip
    add((6,), {
        "xlogy, operator": halves(torch.xlogy),
        "xlogy of a number": lambda x: torch.xlogy(2.0, x) + special.xlogy(-1.0, x) + special.xlogy(x, 3.0),
        "xlogy of constants": (lambda x, w: torch.xlogy(w, x) + special.xlogy(x, w + 1), torch.tensor([0.0, 0.0, 1.0, 2.0, 0.5, 3.0])),
        "xlog1py": halves(lambda a, b: special.xlog1py(a, b) + special.xlog1py(2.0, a) - special.xlog1py(b, 0.3)),
        "special xlogy": halves(special.xlogy),
        "fmod, variables": halves(torch.fmod),
    }, 0.2)  # fmt: skip


def _losses() -> None:
    losses = {
        "smooth_l1_loss": halves(each(F.smooth_l1_loss)),
        "smooth_l1_loss, 0.3": halves(each(F.smooth_l1_loss, beta=0.3)),
        "huber_loss": halves(each(F.huber_loss)),
        "huber_loss, 0.3": halves(each(F.huber_loss, delta=0.3)),
        "kl_div, logarithms": halves(each(F.kl_div, log_target=True)),
        "binary_cross_entropy_with_logits": halves(each(F.binary_cross_entropy_with_logits)),
        "triplet_margin_loss": lambda x: F.triplet_margin_loss(x[:, :2], x[:, 2:4], x[:, 4:], reduction="none"),
        "triplet_margin_loss, swapped": lambda x: F.triplet_margin_loss(x[:, :2], x[:, 2:4], x[:, 4:], 0.3, 1.0, swap=True, reduction="none"),
    }  # fmt: skip
    add((6,), losses)
    targets = torch.rand(BATCH, 6).round()
    shares = torch.rand(BATCH, 6) * torch.tensor([0.0, 1, 1, 1, 1, 1])
    signs = 2 * targets - 1
    add((6,), {
        "binary_cross_entropy_with_logits, weights": (
            lambda x, y, w, p: F.binary_cross_entropy_with_logits(x, y, w.abs(), pos_weight=p.abs(), reduction="none"),
            shares, (6,), (6,),
        ),
        "kl_div": (each(F.kl_div), shares),
        "huber_loss, constant": (each(F.huber_loss), shares),
        "soft_margin_loss": (each(F.soft_margin_loss), signs),
        "margin_ranking_loss": (lambda x, y: F.margin_ranking_loss(x, x.flip(1), y, 0.2, reduction="none"), signs),
    }, alone=True)  # fmt: skip
    add((6,), {
        "binary_cross_entropy": (each(F.binary_cross_entropy), targets),
        "binary_cross_entropy, weights": (lambda x, y, w: F.binary_cross_entropy(x, y, w.abs(), reduction="none"), shares, (6,)),
    }, 0.02, 0.97, alone=True)  # fmt: skip
    add((3, 3), {
        "whole, other losses": lambda x: F.huber_loss(x, x.t(), reduction="mean") + F.smooth_l1_loss(x, x.flip(0), reduction="sum"),
        "whole, prod": lambda x: torch.prod(x[:2]),
        "whole, dist": lambda x: torch.dist(x, x.t(), 1) + torch.dist(x[0], x[1]),
        "whole, aminmax": lambda x: torch.stack(torch.aminmax(x)),
    }, batched=False)  # fmt: skip


def each(f: Callable[..., Tensor], **options: Any) -> Callable[[Tensor, Tensor], Tensor]:
    """A loss of each element alone."""
    return lambda a, b: f(a, b, reduction="none", **options)


def _matrices() -> None:
    add((2, 2), {
        "det, 2 x 2": torch.det,
        "det of one": lambda x: torch.linalg.det(x[:, :1, :1]),
    })  # fmt: skip
    add((3, 3), {
        "det, 3 x 3": torch.linalg.det,
        "cdist": lambda x: torch.cdist(x, x.flip(1) + 1),
        "cdist, 1": lambda x: torch.cdist(x, x.flip(1), 1.0),
        "cdist to constants": (lambda x, w: torch.cdist(x, w), (2, 3)),
        "cdist, largest": (lambda x, w: torch.cdist(x, w, torch.inf), (2, 3)),
    })  # fmt: skip
    add((3, 3), {
        "inverse, 3 x 3": lambda x: torch.linalg.inv(_dominant(x)),
        "inverse, by its second name": lambda x: torch.inverse(_dominant(x)[:, :2, :2]),
        "inverse of one": lambda x: torch.inverse(_dominant(x)[:, :1, :1]),
        "logdet": lambda x: torch.logdet(_dominant(x)),
        "inverse of a constant": (lambda x, w: x @ torch.linalg.inv(w + 3 * torch.eye(4, dtype=w.dtype))[:3, :3] * torch.det(w), (4, 4)),
    })  # fmt: skip


def _dominant(x: Tensor) -> Tensor:
    """Matrices that are far from singular, whatever x is."""
    return 0.4 * torch.tanh(x) + 2 * torch.eye(3, dtype=x.dtype)
