"""Operators that torch has under a second name, or in another unit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from boundlab.graph.graph import Operator
from boundlab.rules.registry import aten, composition

NAMES: dict[Any, Callable[..., Tensor]] = {
    aten.special_digamma.default: torch.digamma,
    aten.special_erf.default: torch.erf,
    aten.special_erfc.default: torch.erfc,
    aten.special_erfinv.default: torch.erfinv,
    aten.special_exp2.default: torch.exp2,
    aten.special_expit.default: torch.sigmoid,
    aten.special_expm1.default: torch.expm1,
    aten.special_gammaln.default: torch.lgamma,
    aten.special_log1p.default: torch.log1p,
    aten.special_log_softmax.default: torch.log_softmax,
    aten.special_logit.default: torch.logit,
    aten.special_logsumexp.default: torch.logsumexp,
    aten.special_psi.default: torch.digamma,
    aten.special_round.default: torch.round,
    aten.special_sinc.default: torch.sinc,
    aten.special_softmax.default: torch.softmax,
    aten.arctan2.default: torch.atan2,
    aten.clip.default: torch.clamp,
    aten.clip.Tensor: torch.clamp,
}
"""Second name -> the operator itself, which takes the same arguments."""


def _other_name(op: Operator) -> Callable[..., Tensor]:
    def same(*args: Any, **kwargs: Any) -> Tensor:
        result: Tensor = op(*args, **kwargs)
        return result

    return same


for second, first in NAMES.items():
    composition(second)(_other_name(first))


@composition(aten.deg2rad.default)
def deg2rad(x: Tensor) -> Tensor:
    return x * (torch.pi / 180)


@composition(aten.rad2deg.default)
def rad2deg(x: Tensor) -> Tensor:
    return x * (180 / torch.pi)


@composition(aten.round.decimals)
def round_decimals(x: Tensor, *, decimals: int) -> Tensor:
    """Of so many digits behind the point, or so many zeros before it."""
    ten = 10.0 ** abs(decimals)
    if decimals < 0:
        return torch.round(x / ten) * ten
    return torch.round(x * ten) / ten
