"""Verified error of kw_mnist.pth at linf 0.1 on all MNIST test images, the ball cut to [0, 1].

    python -m benchmarks.kw_mnist --data FOLDER [--limit N] [--batch N] [--method crown] [--threads N]

Prints clean and verified error and the seconds per image. The published figure is 5.8 % (dual
network bounds); an independent CROWN reaches 5.26 %.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from rich.progress import track

import boundlab as bl
from benchmarks.shared import cnn_a, load_state, mnist_test
from benchmarks.timing import load, save


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--limit", type=int, default=10000)
    parser.add_argument("--batch", type=int, default=50)
    parser.add_argument("--method", default="crown")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    images, labels = (part[: options.limit] for part in mnist_test(options.data))
    model = load_state(cnn_a(), "kw_mnist.pth")
    net = bl.capture(model, images[:2])
    wrong = unverified = 0
    start = time.perf_counter()
    with torch.no_grad():
        for first in track(range(0, len(images), options.batch), "certifying"):
            x, y = images[first : first + options.batch], labels[first : first + options.batch]
            right = model(x).argmax(1) == y
            margins = net.margins(bl.Linf(x, 0.1, lower=0.0, upper=1.0), y, method=options.method)
            wrong += int((~right).sum())
            unverified += int((~((margins > 0).all(1) & right)).sum())
    seconds = time.perf_counter() - start
    count = len(images)
    print(
        f"{options.method}: {count} images, clean error {wrong / count:.2%}, verified error "
        f"{unverified / count:.2%}"
    )
    rates = {"clean": wrong / count, "verified_error": unverified / count}
    row = {
        "method": options.method,
        "images": count,
        **rates,
        "seconds": seconds,
        "each": seconds / count,
    }
    save("kw_mnist", (load("kw_mnist") or {}) | {options.method: row})
    print(
        f"{seconds:.0f} s, {seconds / count:.4f} s an image, {options.threads} threads, "
        f"batches of {options.batch}"
    )


if __name__ == "__main__":
    main()
