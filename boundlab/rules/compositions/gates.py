"""Gated units and recurrent cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.rules.registry import aten, composition

State = TypeVar("State", Tensor, Sequence[Tensor])
"""What a cell remembers: its hidden state, alone or first."""
Result = TypeVar("Result", Tensor, tuple[Tensor, Tensor])


@composition(aten.glu.default)
def glu(x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * torch.sigmoid(x.narrow(dim, half, half))


def recurrent(step: Callable[[Tensor, Tensor, State], Result]) -> Callable[..., Result]:
    """Decorator: the cell whose next state is a function of two linear layers, of its input and of
    its hidden state, and of its state itself."""

    def cell(
        x: Tensor,
        state: State,
        w_ih: Tensor,
        w_hh: Tensor,
        b_ih: Tensor | None = None,
        b_hh: Tensor | None = None,
    ) -> Result:
        return step(F.linear(x, w_ih, b_ih), F.linear(_hidden(state), w_hh, b_hh), state)

    return cell


def _hidden(state: Tensor | Sequence[Tensor]) -> Tensor:
    if isinstance(state, Tensor):
        return state
    return state[0]


@composition(aten.lstm_cell.default)
@recurrent
def lstm_cell(a: Tensor, b: Tensor, state: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    _, c = state
    i, f, g, o = (a + b).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@composition(aten.gru_cell.default)
@recurrent
def gru_cell(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
    z = torch.sigmoid(az + bz)
    n = torch.tanh(an + torch.sigmoid(ar + br) * bn)
    return n + z * (h - n)


@composition(aten.rnn_tanh_cell.default)
@recurrent
def rnn_tanh_cell(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    return torch.tanh(a + b)


@composition(aten.rnn_relu_cell.default)
@recurrent
def rnn_relu_cell(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    return torch.relu(a + b)
