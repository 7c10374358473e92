"""The network that ships with the package; ``scripts/train_demo.py`` makes its weights and picks
the digits."""

from __future__ import annotations

import io
from importlib import resources

import numpy as np
import torch
from torch import Tensor, nn

from boundlab.models import build

NETWORK = "tiny-cnn"


def load_model() -> nn.Sequential:
    """The trained network, in eval mode: (batch, 1, 28, 28) with values in [0, 1] -> logits (batch,
    10)."""
    # the weights bring their own normalisation
    model = build(NETWORK, 1, 28, 10, mean=(0.0,), std=(1.0,))
    data = resources.files(__package__).joinpath("digits.pt").read_bytes()
    model.load_state_dict(torch.load(io.BytesIO(data), weights_only=True, map_location="cpu"))
    return model.eval()


def load_digits(count: int | None = None) -> tuple[Tensor, Tensor]:
    """The first ``count`` of the test digits that ship with the package: uint8 (N, 1, 28, 28),
    int64 labels (N,).

    Ten of each class, in the order 0, 1, ..., 9, 0, 1, ...: a prefix is balanced too.
    """
    data = resources.files(__package__).joinpath("digits.npz").read_bytes()
    with np.load(io.BytesIO(data), allow_pickle=False) as arrays:
        images, labels = torch.from_numpy(arrays["images"]), torch.from_numpy(arrays["labels"])
    return images[:count, None], labels[:count].long()
