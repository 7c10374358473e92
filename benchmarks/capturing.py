"""What is captured to see how long that takes: small networks of each kind, and public models.

python -m benchmarks.compare ../before --parts capture --threads 1
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

import boundlab as bl
from benchmarks.public_models import MODELS


class Last(nn.Module):
    """The last state of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.lstm(x)
        out: Tensor = self.head(states[:, -1])
        return out


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 3)
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(8 * 6 * 6, 10),
    )  # fmt: skip


SMALL: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (2, 8)),
    "cnn": (cnn, (2, 3, 16, 16)),
    "lstm": (Last, (2, 5, 4)),
}
"""Name -> network, and the shape of its example."""


def subjects() -> Iterator[str]:
    yield from SMALL
    if importlib.util.find_spec("transformers"):
        yield from MODELS


def task(name: str) -> Callable[[], object]:
    """Capture one of them; models that are refused are refused."""
    if name in SMALL:
        build, shape = SMALL[name]
        model, x = build().eval(), torch.rand(shape)
    else:
        model, x = MODELS[name].build(), MODELS[name].example()

    def capture() -> object:
        try:
            return bl.capture(model, x)
        except bl.BoundlabError as refusal:
            return refusal

    return capture
