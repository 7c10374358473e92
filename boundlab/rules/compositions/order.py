"""Order statistics, as entries of what is sorted."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.compat.private import trace_by
from boundlab.errors import CaptureError
from boundlab.rules.registry import aten, composition

Pair = tuple[Tensor, Tensor]
"""Values, and the places that they come from."""


@composition(aten.msort.default)
def msort(x: Tensor) -> Tensor:
    return torch.sort(x, 0)[0]


@composition(aten.argsort.default, aten.argsort.stable)
def argsort(
    x: Tensor, dim: int = -1, descending: bool = False, *, stable: bool | None = None
) -> Tensor:
    return torch.sort(x, dim=dim, descending=descending, stable=stable)[1]


@composition(aten.topk.default)
def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Pair:
    if not sorted:
        raise CaptureError(
            "topk with sorted=False: torch does not say in which order the values come. Use "
            "sorted=True"
        )
    values, places = torch.sort(x, dim, largest)
    if x.dim() == 0:
        return values, places
    return values.narrow(dim, 0, k), places.narrow(dim, 0, k)


@composition(aten.kthvalue.default)
def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Pair:
    values, places = torch.sort(x, dim)
    return _entry(values, k - 1, dim, keepdim), _entry(places, k - 1, dim, keepdim)


def _entry(x: Tensor, place: int, dim: int, keepdim: bool) -> Tensor:
    if x.dim() == 0:
        return x
    if keepdim:
        return x.narrow(dim, place, 1)
    return x.select(dim, place)


@composition(aten.median.dim)
def median(x: Tensor, dim: int, keepdim: bool = False) -> Pair:
    """The lower of the two in the middle."""
    count = 1
    if x.dim():
        count = x.shape[dim]
    return kthvalue(x, (count + 1) // 2, dim, keepdim)


@composition(aten.median.default)
def median_all(x: Tensor) -> Tensor:
    return median(x.flatten(), 0)[0]


@composition(aten.quantile.default, aten.quantile.scalar)
def quantile(
    x: Tensor,
    q: Tensor | float,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """Between two entries of what is sorted; in front, one for each of several shares."""
    if not isinstance(q, Tensor):
        q = torch.full((), q, dtype=x.dtype, device=x.device)
    kept = [1] * x.dim()
    if dim is None:
        dim, x = 0, x.flatten()
    elif keepdim:
        kept = list(x.shape)
        kept[dim] = 1
    entries = torch.sort(x, dim)[0].movedim(dim, -1)
    rank = q.reshape(-1) * (entries.shape[-1] - 1)
    if interpolation == "nearest":
        rank = rank.round()
    low, high = rank.floor(), rank.ceil()
    share = {"lower": low - low, "higher": high - low, "midpoint": 0.5 * (high - low)}.get(
        interpolation, rank - low
    )
    below = entries.index_select(-1, low.long())
    above = entries.index_select(-1, high.long())
    # as a mean: it is monotone in both
    found = ((1 - share) * below + share * above).movedim(-1, 0)
    if keepdim:
        found = found.reshape(-1, *kept)
    if q.dim() == 0:
        return found.squeeze(0)
    return found


trace_by(aten.quantile.default, quantile)
trace_by(aten.quantile.scalar, quantile)
