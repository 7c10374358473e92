"""Pieces of models that let samples meet, and veils that hide it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.attacks.pieces import Extra, Shape, mask_of, scale_of

Mix = Callable[[Tensor], Tensor]
"""From x to a value of its shape, of which each sample depends on other samples."""


def _batch_last(f: Mix) -> Mix:
    """f on (elements of a sample, batch)."""
    return lambda x: f(x.flatten(1).T).T.reshape(x.shape)


def _resplit(x: Tensor) -> Tensor:
    """A transpose that somebody wrote as a reshape."""
    return x.reshape(*x.shape[1:], x.shape[0]).cumsum(-1).movedim(-1, 0)


def _pasted(x: Tensor) -> Tensor:
    y = x.clone()
    y[1:] = y[1:] + x[:-1]
    y[0] = x[-1]
    return y


def _rows_of_two(x: Tensor) -> Tensor:
    pairs = x.reshape(-1, 2, *x.shape[1:])
    return (pairs + pairs.sum(1, keepdim=True)).reshape(x.shape)


def _recurrent_over_samples(x: Tensor) -> Tensor:
    state, rows = torch.zeros_like(x[0]), []
    for row in x.unbind(0):
        state = (state + row).tanh()
        rows.append(state)
    return torch.stack(rows)


MIXING: dict[str, Mix] = {
    "mean": lambda x: x.mean(0, keepdim=True).expand_as(x), "minus mean": lambda x: x - x.mean(0),
    "cumsum": lambda x: x.cumsum(0),
    "softmax": lambda x: 9 * x.softmax(0), "flip": lambda x: x.flip(0),
    "roll by 1": lambda x: x.roll(1, 0), "roll by 3": lambda x: x.roll(3, 0),
    "sort": lambda x: x.sort(0).values, "amax": lambda x: x.amax(0, keepdim=True).expand_as(x),
    "max": lambda x: x + x.max(0, keepdim=True).values,
    "logsumexp": lambda x: x.logsumexp(0, keepdim=True).expand_as(x),
    "standardised": lambda x: (x - x.mean(0)) / (x.var(0, correction=0) + 0.1).sqrt(),
    "normalised over the batch": lambda x: 9 * F.normalize(x, dim=0),
    "sum of everything": lambda x: x.sum().expand(x.shape),
    "rolled index": lambda x: x[torch.arange(x.shape[0]).roll(3)],
    "reversed index": lambda x: x.index_select(0, torch.arange(x.shape[0]).flip(0)),
    "gather along the batch": lambda x: x.gather(0, torch.zeros_like(x, dtype=torch.int64)),
    "first sample added": lambda x: x[:1].expand_as(x),
    "last sample added": lambda x: x[-1].expand_as(x),
    "shifted by 3": lambda x: torch.cat([x[-3:], x[:-3]], 0),
    "shifted with zeros": lambda x: F.pad(x, (0, 0) * (x.dim() - 1) + (1, 0))[:-1],
    "gram matrix": lambda x: ((x.flatten(1) @ x.flatten(1).T) @ x.flatten(1)).reshape(x.shape),
    "attention over the batch": lambda x: ((x.flatten(1) @ x.flatten(1).T).softmax(-1) @ x.flatten(1)).reshape(x.shape),
    "einsum over the batch": lambda x: torch.einsum("bi,ci->bc", x.flatten(1), x.flatten(1)).sum(1).reshape(-1, *[1] * (x.dim() - 1)).expand_as(x),
    "batch as positions": _batch_last(lambda t: F.avg_pool1d(F.pad(t.unsqueeze(0), (1, 1)), 3, 1).squeeze(0)),
    "batch as image": lambda x: F.avg_pool2d(x.flatten(1)[None, None], 3, 1, 1).reshape(x.shape),
    "cumsum of the transposed": _batch_last(lambda t: t.cumsum(1)),
    "softmax of the transposed": _batch_last(lambda t: 9 * t.softmax(-1)),
    "flip of the transposed": _batch_last(lambda t: t.flip(-1)),
    "layer_norm of the transposed": _batch_last(lambda t: F.layer_norm(t, t.shape[-1:])),
    "merged and rolled": lambda x: x.reshape(-1).roll(x.shape[1:].numel()).reshape(x.shape),
    "merged and summed up": lambda x: x.flatten().cumsum(0).reshape(x.shape),
    "transpose written as reshape": _resplit, "pasted": _pasted, "pairs": _rows_of_two,
    "comparison with the mean": lambda x: (x > x.mean(0)).to(x.dtype) * 5,
    "any sample": lambda x: (x > 0.5).any(0, keepdim=True).to(x.dtype).expand_as(x),
    "argmax over the batch": lambda x: x.argmax(0, keepdim=True).to(x.dtype).expand_as(x),
    "diagonal of products": lambda x: (x.flatten(1) @ x.flatten(1).T).roll(1, 1).diagonal().reshape(-1, *[1] * (x.dim() - 1)).expand_as(x),
    "distance to the neighbour": lambda x: (x - x.roll(-1, 0)).abs(),
    "broadcast pairs": lambda x: (x.unsqueeze(0) - x.unsqueeze(1)).abs().mean(0),
    "unbound along the batch": _recurrent_over_samples,
    "tensor_split along the batch": lambda x: torch.cat(list(reversed(x.tensor_split(2, 0))), 0),
    "scatter into another sample": lambda x: torch.zeros_like(x).scatter(0, torch.zeros_like(x[:1], dtype=torch.int64).expand_as(x), x) + x[1:2],
    "repeat, wrongly split": lambda x: x.repeat_interleave(2, 0).reshape(2, *x.shape).sum(0),
    "doubled, wrongly split": lambda x: torch.cat([x, x], 0).reshape(x.shape[0], 2, *x.shape[1:]).sum(1),
    "index_add": lambda x: torch.zeros_like(x).index_add(0, torch.arange(x.shape[0]).flip(0), x),
}  # fmt: skip


@dataclass(frozen=True)
class Hiding:
    """What hides mixing in the example. before: veil(x, *extra) is what gets mixed, and the mixed
    value is added to x; else veil(x, mixed, *extra) is the result. weight: hidden by a parameter of
    zeros, given last. fixes: the batch has six samples."""

    veil: Callable[..., Tensor]
    extra: Callable[[Shape], Extra] | None = None
    before: bool = False
    weight: bool = False
    fixes: bool = False


def _zeros_of(s: Shape) -> Extra:
    return Extra(
        lambda n: torch.zeros(n, *[1] * len(s), dtype=torch.int64),
        lambda n: torch.randint(0, 3, (n, *[1] * len(s))),
    )


def _one_zero(s: Shape) -> Extra:
    return Extra(
        lambda n: torch.zeros(1, *[1] * len(s)),
        lambda n: torch.randn(1, *[1] * len(s)),
        batched=False,
    )


def _order(s: Shape) -> Extra:
    return Extra(torch.arange, lambda n: torch.randint(0, n, (n,)))


def _one_sample(x: Tensor, m: Tensor) -> Tensor:
    y = x.clone()
    y[4] = y[4] + m[4]
    return y


def _one_pair(x: Tensor, m: Tensor) -> Tensor:
    y = x.clone()
    y[4] = y[4] + x[3]
    return y


def _one_pair_by_matrix(x: Tensor, m: Tensor) -> Tensor:
    matrix = torch.eye(6)
    matrix[4, 3] = 1
    return (matrix @ x.flatten(1)).reshape(x.shape)


VEILS: dict[str, Hiding] = {
    "in the open": Hiding(lambda x, m: m),
    "added": Hiding(lambda x, m: x + m),
    "added, small": Hiding(lambda x, m: x + 0.01 * m),
    "relu": Hiding(lambda x, m: x + torch.relu(m - 1e3)),
    "clamp": Hiding(lambda x, m: x + (m - 1e3).clamp(min=0)),
    "clamp of both": Hiding(lambda x, m: x + m.clamp(1e3, 1e4)),
    "comparison": Hiding(lambda x, m: x + (m > 1e3).to(x.dtype)),
    "where, large argument": Hiding(lambda x, m: torch.where(x > 1e3, m, x)),
    "hardshrink": Hiding(lambda x, m: x + F.hardshrink(m, 1e3)),
    "threshold": Hiding(lambda x, m: x + F.threshold(m, 1e3, 0.0)),
    "sigmoid": Hiding(lambda x, m: x + torch.sigmoid(m - 1e3)),
    "exp": Hiding(lambda x, m: x + torch.exp(m - 1e3).clamp(max=1e3)),
    "floor": Hiding(lambda x, m: x + (m * 1e-3 + 0.5).floor()),
    "whole numbers": Hiding(lambda x, m: x + (m * 1e-3).long().to(x.dtype)),
    "maximum": Hiding(lambda x, m: torch.maximum(x, m - 1e3)),
    "mask, all False": Hiding(lambda x, m, mask: x + m * mask, mask_of(False)),
    "mask a sample, all False": Hiding(
        lambda x, m, mask: torch.where(mask, m, x), mask_of(False, per_sample=True)
    ),
    "mask, all True": Hiding(lambda x, m, mask: x + m.masked_fill(mask, 0.0), mask_of(True)),
    "mask without batch": Hiding(lambda x, m, mask: x + m * mask, mask_of(False, batched=False)),
    "integer zero": Hiding(lambda x, m, k: x + m * k, _zeros_of),
    "zero without batch": Hiding(lambda x, m, k: x + m * k, _one_zero),
    "weight of zeros": Hiding(lambda x, m, w: x + m * w, weight=True),
    "one sample of six": Hiding(_one_sample, fixes=True),
    "mask of another sample": Hiding(
        lambda x, m, mask: x.masked_fill(mask.roll(1, 0), 0.5), mask_of(False)
    ),
    "mask of any sample": Hiding(
        lambda x, m, mask: torch.where(mask.any(0), x, -x), mask_of(False)
    ),
    "truth of another sample": Hiding(
        lambda x, m, mask: torch.where(mask.flip(0), x, -x), mask_of(True, per_sample=True)
    ),
    "integer of another sample": Hiding(lambda x, m, k: x + k.flip(0), _zeros_of),
    "number of another sample": Hiding(lambda x, m, scale: x * scale.roll(1, 0), scale_of),
    "index of samples": Hiding(lambda x, m, order: x[order], _order),
    "index of samples, gathered": Hiding(lambda x, m, order: x.index_select(0, order), _order),
    "one pair of six": Hiding(_one_pair, fixes=True),
    "one pair of six, by matrix": Hiding(_one_pair_by_matrix, fixes=True),
    "before: relu": Hiding(lambda x: torch.relu(x - 1e3), before=True),
    "before: clamp": Hiding(lambda x: x.clamp(1e3, 1e4), before=True),
    "before: comparison": Hiding(lambda x: (x > 1e3).to(x.dtype), before=True),
    "before: equality": Hiding(
        lambda x: (x.round() == 1e3).to(x.dtype) + (x.abs() > 2e3), before=True
    ),
    "before: where": Hiding(lambda x: torch.where(x > 1e3, x, 0.0), before=True),
    "before: hardshrink": Hiding(lambda x: F.hardshrink(x, 1e3), before=True),
    "before: threshold": Hiding(lambda x: F.threshold(x, 1e3, 1.0), before=True),
    "before: exp": Hiding(lambda x: torch.exp(x - 1e3).clamp(max=1e3), before=True),
    "before: floor": Hiding(lambda x: (x * 1e-3 + 0.5).floor(), before=True),
    "before: whole numbers": Hiding(lambda x: (x * 1e-3).long().to(x.dtype), before=True),
    "before: relu6": Hiding(lambda x: F.relu6(x - 1e3), before=True),
    "before: mask, all False": Hiding(lambda x, mask: x * mask, mask_of(False), before=True),
    "before: mask a sample, all False": Hiding(
        lambda x, mask: torch.where(mask, x, 0.0), mask_of(False, per_sample=True), before=True
    ),
    "before: mask, all True": Hiding(
        lambda x, mask: x.masked_fill(mask, 0.0), mask_of(True), before=True
    ),
    "before: mask without batch": Hiding(
        lambda x, mask: x * mask, mask_of(False, batched=False), before=True
    ),
    "before: integer zero": Hiding(lambda x, k: x * k, _zeros_of, before=True),
    "before: zero without batch": Hiding(lambda x, k: x * k, _one_zero, before=True),
    "before: weight of zeros": Hiding(lambda x, w: x * w, before=True, weight=True),
}


class Mixes(nn.Module):
    """x with a mixing value that a veil hides."""

    def __init__(self, mix: Mix, hiding: Hiding) -> None:
        super().__init__()
        self.mix, self.hiding = mix, hiding
        self.weight = nn.Parameter(torch.zeros(())) if hiding.weight else None

    def forward(self, x: Tensor, *extra: Tensor) -> Tensor:
        further = extra if self.weight is None else (*extra, self.weight)
        if self.hiding.before:
            return x + self.mix(self.hiding.veil(x, *further))
        return self.hiding.veil(x, self.mix(x), *further)
