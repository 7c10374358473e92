"""Networks that read sequences: recurrent layers, loops over cells, a convolution over words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.case import NetworkCase


class Recurrent(nn.Module):
    """A classifier on a sequence (batch, time, features); with batch_first=False it transposes for
    itself."""

    def __init__(self, kind: type[nn.RNNBase], batch_first: bool = True, **options: Any) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.rnn = kind(3, 4, batch_first=batch_first, **options)
        self.fc = nn.Linear(8 if options.get("bidirectional") else 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(x if self.batch_first else x.transpose(0, 1))
        return self.fc(out[:, -1] if self.batch_first else out[-1])


class LastState(nn.Module):
    """An LSTM read through its final hidden and cell states, from a given initial state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        start = torch.full((2, x.shape[0], 4), 0.1), torch.zeros(2, x.shape[0], 4)
        _, (h, c) = self.lstm(x, start)
        return self.fc(torch.cat([h[-1], c[-1]], dim=1))


class CellLoop(nn.Module):
    def __init__(self, kind: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell, self.fc = kind(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.size(0), 4)
        c = torch.zeros_like(h)
        for t in range(x.size(1)):
            if isinstance(self.cell, nn.LSTMCell):
                h, c = self.cell(x[:, t], (h, c))
            else:
                h = self.cell(x[:, t], h)
        return self.fc(h)


class TextCNN(nn.Module):
    """On embeddings: convolutions of several widths, each with its maximum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(1, 2, (k, 4)) for k in (2, 3))
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]
        return self.fc(torch.cat(x, 1))


def lstm(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Recurrent(nn.LSTM, **options)


def gru(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Recurrent(nn.GRU, **options)


def rnn(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Recurrent(nn.RNN, **options)


NETWORKS: dict[str, NetworkCase] = {
    "lstm": NetworkCase(lstm(), ((3, 3),), 0.05),
    "lstm-time-first": NetworkCase(lstm(batch_first=False), ((3, 3),), 0.05),
    "lstm-two-layers": NetworkCase(lstm(num_layers=2, dropout=0.3), ((3, 3),), 0.02),
    "lstm-both-ways": NetworkCase(lstm(bidirectional=True, batch_first=False), ((3, 3),), 0.02),
    "lstm-last-state": NetworkCase(LastState, ((3, 3),), 0.02),
    "gru": NetworkCase(gru(), ((3, 3),), 0.05),
    "gru-two-layers": NetworkCase(gru(num_layers=2, batch_first=False), ((3, 3),), 0.02),
    "gru-both-ways": NetworkCase(gru(bidirectional=True), ((3, 3),), 0.02),
    "rnn-tanh": NetworkCase(rnn(num_layers=2), ((4, 3),), 0.05),
    "rnn-relu": NetworkCase(
        rnn(nonlinearity="relu", bidirectional=True, batch_first=False), ((3, 3),), 0.05
    ),
    "lstm-cell": NetworkCase(lambda: CellLoop(nn.LSTMCell), ((3, 3),), 0.05),
    "gru-cell": NetworkCase(lambda: CellLoop(nn.GRUCell), ((3, 3),), 0.05),
    "rnn-cell": NetworkCase(lambda: CellLoop(nn.RNNCell), ((3, 3),), 0.05),
    "text-cnn": NetworkCase(TextCNN, ((5, 4),), 0.05),
}
