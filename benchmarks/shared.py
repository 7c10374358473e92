"""Where benchmarks find networks and data that are not part of the project, and how they time."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, nn

from boundlab.data import load
from boundlab.errors import ArgumentError

SHARED = Path(os.environ.get("BOUNDLAB_SHARED", Path(__file__).parent.parent.parent / "shared"))


def network_file(name: str) -> Path:
    path = SHARED / "networks" / name
    if not path.exists():
        raise SystemExit(
            f"{name} is not there: set BOUNDLAB_SHARED to the folder that holds networks/"
        )
    return path


def load_state(model: nn.Module, name: str) -> nn.Module:
    """Load a state dict, a dict that holds one under 'state_dict', or a list whose first entry is
    one."""
    state = torch.load(network_file(name), weights_only=True, map_location="cpu")
    while isinstance(state, list) or "state_dict" in state:
        state = state[0] if isinstance(state, list) else state["state_dict"]
    model.load_state_dict(state)
    return model.eval()


def mnist_test(folder: Path | None) -> tuple[Tensor, Tensor]:
    """All 10000 test images in [0, 1], (10000, 1, 28, 28), and their labels."""
    try:
        data = load("mnist", folder or Path(os.environ.get("BOUNDLAB_DATA", "data")), "test")
    except ArgumentError as error:
        raise SystemExit(f"{error} Or pass --data DIRECTORY.") from None
    return data.images.float() / 255, data.labels


def cnn_a(channels: int = 1, features: int = 1568) -> nn.Sequential:
    """Two strided convolutions and two linear layers: kw_mnist, mnist_cnn_a_adv and others."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, stride=2, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(features, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip
