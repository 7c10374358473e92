"""Places in sorted sequences, and lookups by an index that the perturbation moves."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.operator_cases.case import add


def fill() -> None:
    knots, values = torch.tensor([-2.0, -0.5, 0.0, 0.3, 1.5]), torch.randn(6)
    rows, matrix = torch.randn(6, 2), torch.randn(6, 6)
    add((6,), {
        "bucketize": (lambda x, b: torch.bucketize(x, b).to(x.dtype), knots),
        "bucketize, right": (lambda x, b: torch.bucketize(x, b, right=True, out_int32=True).to(x.dtype), knots),
        "searchsorted": (lambda x, b: torch.searchsorted(b, x).to(x.dtype), knots),
        "searchsorted, side": (lambda x, b: torch.searchsorted(b, x, side="right", out_int32=True).to(x.dtype), knots),
        "searchsorted, sorter": (
            lambda x, b: torch.searchsorted(b.flip(0), x, right=True, sorter=torch.arange(5).flip(0)).to(x.dtype), knots,
        ),
        "index, looked up": (lambda x, b, t: x * t[torch.bucketize(x, b)], knots, values),
        "index, from the end": (lambda x, b, t: t[torch.bucketize(x, b) - 4], knots, values),
        "index, with neighbours": (_shares, knots, torch.tensor([-3.0, -2.0, -0.5, 0.0, 0.3, 1.5, 4.0])),
        "index, rounded": (lambda x, t: t[(x.clamp(-1, 1) * 2.5).round().int() + 2], values),
    }, elementwise=True)  # fmt: skip
    add((6,), {
        "searchsorted, rows": (
            lambda x, b: torch.searchsorted(b.repeat(x.shape[0], 1, 1), x.reshape(-1, 2, 3)).to(x.dtype), torch.stack([knots, 2 * knots]),
        ),
        "gather, looked up": lambda x: x.gather(1, x.flip(1).argmax(1, keepdim=True)),
        "gather, looked up in a constant": (lambda x, b, t: t.expand(x.shape[0], 6, 6).gather(2, torch.bucketize(x, b).unsqueeze(2)), knots, matrix),
        "index_select, looked up": (lambda x, b, t: torch.index_select(t, 0, torch.bucketize(2 * x[:, 0], b)), knots, rows),
        "embedding, looked up": (lambda x, b, t: F.embedding(torch.bucketize(x, b), t, padding_idx=1), knots, rows),
        "index, two looked up": (lambda x, b, t: t[torch.bucketize(2 * x[:, :3], b), torch.bucketize(2 * x[:, 3:], b)], knots, matrix),
        "index, one looked up": (lambda x, b, t: t[:, torch.bucketize(x, b)].transpose(0, 1), knots, matrix),
        "index, own row": lambda x: torch.relu(x)[torch.arange(x.shape[0]), x.argmax(1)],
        "index of a maximum": lambda x: torch.stack([x.max(1).indices, x.min(1).indices], 1).to(x.dtype),
        "one_hot of a perturbed index": lambda x: F.one_hot(x.argmax(1), 6).to(x.dtype) * x,
        "experts": (_experts, (4, 6), (4, 3, 6)),
    })  # fmt: skip
    add((6,), {
        "take_along_dim, looked up": lambda x: torch.take_along_dim(x * x, x.argmin(1, keepdim=True), 1),
    }, alone=True)  # fmt: skip
    add((3, 3), {
        "whole, take, looked up": (lambda x, b: torch.take(x * 2, torch.bucketize(x[0], b) - 4), knots),
        "whole, index, looked up": (lambda x, b: x[torch.bucketize(x[0], b), torch.bucketize(x[1], b)], torch.tensor([-0.5, 0.5])),
    }, batched=False)  # fmt: skip


def _shares(x: Tensor, boundaries: Tensor, knots: Tensor) -> Tensor:
    """Where x lies between the two knots beside it, whose distance is never 0."""
    i = torch.bucketize(x, boundaries)
    return (x - knots[i]) / (knots[i + 1] - knots[i])


def _experts(x: Tensor, gate: Tensor, weights: Tensor) -> Tensor:
    """Of four layers the one whose gate is the widest open."""
    outputs = torch.einsum("eoi,bi->beo", weights, x)
    index = F.linear(x, gate).argmax(1)[:, None, None].expand(-1, 1, 3)
    return outputs.gather(1, index).squeeze(1)
