"""Networks whose bounds an independent implementation has computed.

`cases.npz` beside this file holds, for every case `NAME`, the weights (`NAME/w/<parameter>`),
the input (`NAME/x`), and the bounds that the independent implementation returned
(`NAME/<norm>/<method>/lower` and `.../upper`). `cases.json` says which radius belongs to which
norm. Build a case with `build(name)`, load the weights with `load_state_dict`, put the module in
eval mode, and compare.
"""

import itertools
import math

import torch
from torch import nn


class Residual(nn.Module):
    """Two blocks: one with an identity shortcut, one with a strided 1x1 shortcut, all with batch
    norm."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU())
        self.a = nn.Sequential(
            nn.Conv2d(6, 6, 3, padding=1),
            nn.BatchNorm2d(6),
            nn.ReLU(),
            nn.Conv2d(6, 6, 3, padding=1),
            nn.BatchNorm2d(6),
        )
        self.b = nn.Sequential(
            nn.Conv2d(6, 8, 3, stride=2, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
        )
        self.skip = nn.Conv2d(6, 8, 1, stride=2)
        self.head = nn.Linear(8 * 4 * 4, 10)

    def forward(self, x):
        h = self.stem(x)
        h = torch.relu(h + self.a(h))
        h = torch.relu(self.skip(h) + self.b(h))
        return self.head(h.flatten(1))


class Dense(nn.Module):
    """Densely connected: every stage sees the concatenation of all earlier ones."""

    def __init__(self):
        super().__init__()
        self.c1, self.c2, self.c3 = (
            nn.Conv2d(3, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Conv2d(8, 4, 3, padding=1),
        )
        self.head = nn.Linear(12 * 4 * 4, 10)

    def forward(self, x):
        a = torch.relu(self.c1(x))
        b = torch.relu(self.c2(a))
        c = torch.relu(self.c3(torch.cat([a, b], 1)))
        h = nn.functional.avg_pool2d(torch.cat([a, b, c], 1), 2)
        return self.head(h.flatten(1))


class Grouped(nn.Module):
    """ResNeXt-like: grouped convolution inside a residual branch."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.outer = nn.Conv2d(8, 8, 1)
        self.head = nn.Linear(8 * 8 * 8, 10)

    def forward(self, x):
        h = torch.relu(self.stem(x))
        h = torch.relu(h + self.outer(torch.relu(self.inner(h))))
        return self.head(h.flatten(1))


class Recurrent(nn.Module):
    """A hand-written LSTM cell unrolled over the sequence, then a linear head on the last state."""

    def __init__(self, width=8, hidden=8, classes=2):
        super().__init__()
        self.hidden = hidden
        self.inp, self.rec = nn.Linear(width, 4 * hidden), nn.Linear(hidden, 4 * hidden)
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        h = torch.zeros(x.shape[0], self.hidden, dtype=x.dtype)
        c = torch.zeros_like(h)
        for t in range(x.shape[1]):
            g = self.inp(x[:, t]) + self.rec(h)
            i, f, o, u = (
                g[:, : self.hidden],
                g[:, self.hidden : 2 * self.hidden],
                g[:, 2 * self.hidden : 3 * self.hidden],
                g[:, 3 * self.hidden :],
            )
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(u)
            h = torch.sigmoid(o) * torch.tanh(c)
        return self.head(h)


class Attention(nn.Module):
    """One encoder layer, four heads, mean-only layer normalisation, mean pooling."""

    def __init__(self, width=16, heads=4, inner=32, classes=2):
        super().__init__()
        self.heads, self.dim = heads, width // heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)
        self.head = nn.Linear(width, classes)

    def split(self, t):
        return t.reshape(t.shape[0], t.shape[1], self.heads, self.dim).permute(0, 2, 1, 3)

    def forward(self, x):
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        w = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.dim), -1)
        a = torch.matmul(w, v).permute(0, 2, 1, 3).reshape(x.shape)
        h = x + self.o(a)
        h = h - h.mean(-1, keepdim=True)
        h = h + self.down(torch.relu(self.up(h)))
        h = h - h.mean(-1, keepdim=True)
        return self.head(h.mean(1))


class Products(nn.Module):
    """Multiplication, division, exp, sqrt and a reduction: nonlinear operations that are not
    activations."""

    def __init__(self):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(6, 12), nn.Linear(6, 12), nn.Linear(12, 4)

    def forward(self, x):
        a, b = torch.tanh(self.a(x)), torch.sigmoid(self.b(x))
        h = a * b + torch.exp(-a) / (1.5 + b)
        return self.head(h) + torch.sqrt(1.0 + (a * a).sum(-1, keepdim=True))


class FusedLoss(nn.Module):
    """The loss-fusion output of a classifier: sum_k exp(z_k - z_y) for a fixed label y = 3."""

    def __init__(self):
        super().__init__()
        self.net = _mlp(nn.ReLU, 20, 32, 10)

    def forward(self, x):
        z = self.net(x)
        return torch.exp(z - z[:, 3:4]).sum(-1, keepdim=True)


def _mlp(act, *sizes):
    layers = []
    for i, (m, n) in enumerate(itertools.pairwise(sizes)):
        layers += [nn.Linear(m, n)] + ([act()] if i < len(sizes) - 2 else [])
    return nn.Sequential(*layers)


def _cnn():
    return nn.Sequential(
        nn.Conv2d(1, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 7 * 7, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def _cnn_maxpool():
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 3 * 3, 10),
    )


def _generator():
    return nn.Sequential(
        nn.Linear(5, 4 * 3 * 3),
        nn.ReLU(),
        nn.Unflatten(1, (4, 3, 3)),
        nn.ConvTranspose2d(4, 3, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(3, 1, 4, stride=2, padding=1),
    )


# name -> (constructor, input shape with batch first, {norm: radius})
CASES = {
    "mlp_relu": (
        lambda: _mlp(nn.ReLU, 20, 64, 64, 10),
        (4, 20),
        {"inf": 0.05, "2": 0.15, "1": 0.3},
    ),
    "mlp_leaky": (lambda: _mlp(lambda: nn.LeakyReLU(0.1), 20, 64, 64, 10), (4, 20), {"inf": 0.05}),
    "mlp_tanh": (lambda: _mlp(nn.Tanh, 20, 64, 64, 10), (4, 20), {"inf": 0.05, "2": 0.15}),
    "mlp_sigmoid": (lambda: _mlp(nn.Sigmoid, 20, 64, 64, 10), (4, 20), {"inf": 0.1}),
    "cnn": (_cnn, (2, 1, 28, 28), {"inf": 0.02, "2": 0.2}),
    "cnn_maxpool": (_cnn_maxpool, (2, 1, 12, 12), {"inf": 0.02}),
    "residual": (Residual, (2, 3, 8, 8), {"inf": 0.02, "2": 0.1}),
    "dense": (Dense, (2, 3, 8, 8), {"inf": 0.02}),
    "grouped": (Grouped, (2, 3, 8, 8), {"inf": 0.02}),
    "recurrent": (Recurrent, (3, 5, 8), {"inf": 0.05}),
    "attention": (Attention, (3, 5, 16), {"inf": 0.02, "2": 0.05}),
    "products": (Products, (4, 6), {"inf": 0.1}),
    "generator": (_generator, (3, 5), {"inf": 0.1}),
    "fused_loss": (FusedLoss, (4, 20), {"inf": 0.05}),
}


def build(name):
    return CASES[name][0]().eval()
