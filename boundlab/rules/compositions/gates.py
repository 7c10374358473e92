"""Gated units and recurrent cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition


@composition(aten.glu.default)
def glu(x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * torch.sigmoid(x.narrow(dim, half, half))


def _gates(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> tuple[Tensor, Tensor]:
    return torch.nn.functional.linear(x, w_ih, b_ih), torch.nn.functional.linear(h, w_hh, b_hh)


@composition(aten.lstm_cell.default)
def lstm_cell(
    x: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> tuple[Tensor, Tensor]:
    h, c = hx
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = (a + b).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@composition(aten.gru_cell.default)
def gru_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
    z = torch.sigmoid(az + bz)
    n = torch.tanh(an + torch.sigmoid(ar + br) * bn)
    return n + z * (h - n)


@composition(aten.rnn_tanh_cell.default)
def rnn_tanh_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    return torch.tanh(a + b)


@composition(aten.rnn_relu_cell.default)
def rnn_relu_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    return torch.relu(a + b)
