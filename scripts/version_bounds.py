"""Save bounds of networks of the tests, to be compared between versions of torch.

python scripts/version_bounds.py FILE.npz
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import boundlab as bl
from tests.networks import NETWORKS

NAMES = (
    "mlp", "activations", "glu", "maxout", "cnn", "resnet-basic", "unet-bilinear", "conv1d",
    "lstm", "gru", "attention-by-hand", "encoder-pre-gelu", "mixer",
)  # fmt: skip
METHODS = {"ibp": None, "crown": None, "alpha-crown": bl.Alpha(iterations=4)}
BATCH = 2


def drawn(shape: tuple[int, ...], seed: int) -> Tensor:
    """Numbers of single precision in [-1, 1] that depend on nothing but numpy's generator."""
    numbers = np.random.default_rng(seed).uniform(-1, 1, shape).astype(np.float32)
    return torch.from_numpy(numbers).double()


def bounds_of(name: str) -> dict[str, np.ndarray]:
    """By method, lower and upper bounds of the outputs of a network in double precision, whose
    parameters are drawn anew: how a version of torch initialises them makes no difference."""
    case = NETWORKS[name]
    model = case.model().double()
    inputs = tuple(drawn((BATCH, *shape), 1000 + i) for i, shape in enumerate(case.shapes))
    found = {}
    with torch.no_grad():
        for seed, parameter in enumerate(model.parameters()):
            width = max(1, parameter[0].numel())
            parameter.copy_(drawn(tuple(parameter.shape), seed) / width**0.5)
        net = bl.capture(model, *inputs)
        regions = tuple(bl.Linf(x, case.eps) for x in inputs)
        for method, alpha in METHODS.items():
            bounds = net.bounds(*regions, method=method, alpha=alpha)
            found[f"{name}, {method}"] = np.stack([bounds.lower.numpy(), bounds.upper.numpy()])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[str, np.ndarray] = {}
    for name in NAMES:
        found |= bounds_of(name)
    np.savez(options.file, **found)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
