"""Operators with parameters that can be perturbed, as modules with an input for each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class Weighted(nn.Module):
    """A function of x and parameters."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        generator = torch.Generator().manual_seed(len(shapes))
        self.weights = nn.ParameterList(torch.randn(shape, generator=generator) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.weights)


WORDS = torch.tensor([[0, 3, 3], [1, 0, 4], [2, 2, 2], [4, 1, 0]])


PARAMETERS: dict[str, tuple[nn.Module, Any]] = {
    "embedding": (nn.Embedding(5, 3), WORDS),
    "embedding, padding_idx": (nn.Embedding(5, 3, padding_idx=0), WORDS),
    "embedding, nonlinear": (
        nn.Sequential(nn.Embedding(5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)),
        WORDS,
    ),
    "linear": (nn.Linear(3, 4), (3,)),
    "linear, two": (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (3,)),
    "conv1d": (nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 5)),
    "conv2d": (nn.Conv2d(2, 2, 2, dilation=2), (2, 4, 4)),
    "conv2d, reflect": (nn.Conv2d(1, 2, 2, padding=1, padding_mode="reflect"), (1, 3, 3)),
    "conv3d": (nn.Conv3d(1, 1, 2, bias=False), (1, 2, 2, 3)),
    "conv_transpose1d": (nn.ConvTranspose1d(2, 1, 2, stride=2, output_padding=1), (2, 3)),
    "conv_transpose2d": (nn.ConvTranspose2d(2, 2, 2, groups=2), (2, 2, 3)),
    "conv_transpose3d": (nn.ConvTranspose3d(1, 1, 2), (1, 2, 1, 2)),
    "batch_norm": (nn.BatchNorm1d(3).eval(), (3,)),
    "layer_norm": (nn.LayerNorm(3), (3,)),
    "group_norm": (nn.GroupNorm(2, 4), (4, 2)),
    "bilinear": (nn.Bilinear(3, 3, 2), None),
    "LSTM": (nn.LSTM(2, 2, batch_first=True), (2, 2)),
    "mul": (Weighted(torch.mul, (3,)), (3,)),
    "mul, parameters alone": (Weighted(lambda x, v, w: x + (v * w).sum(), (3,), (3,)), (3,)),
    "mm": (Weighted(torch.mm, (3, 3)), (3,)),
    "matmul, left": (Weighted(lambda x, w: w @ x.unsqueeze(-1), (3, 3)), (3,)),
    "matmul, batched": (Weighted(lambda x, w: x[:, None, None] @ w, (2, 3, 3)), (3,)),
    "mv": (Weighted(torch.mv, (3,)), (3,)),
    "dot": (Weighted(lambda x, v, w: x * torch.dot(v, w), (3,), (3,)), (3,)),
    "inner": (Weighted(torch.inner, (3, 3)), (3,)),
    "inner, vector": (Weighted(torch.inner, (3,)), (3,)),
    "outer": (Weighted(lambda x, v, w: x @ torch.outer(v, w), (3,), (3,)), (3,)),
    "addmm": (
        Weighted(lambda x, b, w: torch.addmm(b, x, w, alpha=2.0, beta=-1.0), (3,), (3, 3)),
        (3,),
    ),
    "addmv": (
        Weighted(lambda x, b, w, v: x * torch.addmv(b, w, v, beta=-1.0), (3,), (3, 3), (3,)),
        (3,),
    ),
    "einsum": (Weighted(lambda x, w: torch.einsum("bi,oi->bo", x, w), (3, 3)), (3,)),
    "einsum, outer": (Weighted(lambda x, w: torch.einsum("bi,o->bio", x, w), (3,)), (3,)),
    "div": (Weighted(lambda x, w: x / (w.abs() + 1), (3,)), (3,)),
    "expanded": (
        Weighted(lambda x, w: torch.cat([x, w.expand(x.shape[0], 2)], 1).tanh(), (2,)),
        (3,),
    ),
    "shared": (Weighted(lambda x, w: (x @ w).relu() @ w, (3, 3)), (3,)),
    "maximum": (Weighted(torch.maximum, (3,)), (3,)),
}
