"""Verified share of the first 100 test images of networks that others trained: by the attack, by
alpha-crown and by the complete verifier.

    python -m benchmarks.complete [--only NAME ...] [--timeout 60] [--jobs 2] [--again]

Networks and images are found through BOUNDLAB_SHARED. Every image is a task of one thread; --jobs
tasks run at once. What is done is kept in benchmarks/results/complete.csv and not done again,
unless --again is given. An image that is classified wrongly counts as falsified.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, fields
from functools import lru_cache
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn

import boundlab as bl
from benchmarks.networks import ENTRIES
from benchmarks.shared import network_file
from benchmarks.timing import RESULTS

FILE = RESULTS / "complete.csv"
IMAGES = {"mnist": "mnist_test.csv", "cifar": "cifar10_test.csv"}


@dataclass(frozen=True)
class Row:
    """What came of one image. attacked: whether the attack alone broke it; alpha_crown: whether
    alpha-crown alone proved it; status: "holds", "violated" or "unknown"; stage: which decided."""

    network: str
    image: int
    timeout: float
    attacked: bool
    alpha_crown: bool
    status: str
    seconds: float
    domains: int
    bound: float
    stage: str


def first_images(data: str) -> tuple[Tensor, Tensor]:
    """100 test images in [0, 1], (100, channels, height, width), and their labels."""
    table = np.loadtxt(network_file(IMAGES[data]), delimiter=",", dtype=np.int64)
    labels, pixels = torch.from_numpy(table[:, 0]), torch.from_numpy(table[:, 1:]).float() / 255
    if data == "mnist":
        return pixels.reshape(-1, 1, 28, 28), labels
    return pixels.reshape(-1, 32, 32, 3).permute(0, 3, 1, 2).contiguous(), labels


@lru_cache(1)
def loaded(name: str) -> tuple[nn.Module, bl.Net, Tensor, Tensor]:
    images, labels = first_images(ENTRIES[name].data)
    model = ENTRIES[name].load()
    return model, bl.capture(model, images[:2]), images, labels


def run(name: str, image: int, timeout: float) -> Row:
    """Verify one image."""
    torch.set_num_threads(1)
    model, net, images, labels = loaded(name)
    x, label, eps = images[image : image + 1], labels[image : image + 1], ENTRIES[name].eps
    with torch.no_grad():
        right = bool((model(x).argmax(1) == label).all())
    if not right:
        return Row(name, image, timeout, True, False, "violated", 0.0, 0, float("nan"), "clean")
    region = bl.Linf(x, eps, lower=0.0, upper=1.0)
    attacked = bool(bl.attack(model, region, label).violated.all())
    alpha_crown = False
    if not attacked:
        with torch.no_grad():
            alpha = bl.Alpha(stop_when=0.0)
            margins = net.margins(region, label, method="alpha-crown", alpha=alpha)
        alpha_crown = bool((margins > 0).all())
    start = time.monotonic()
    prop = bl.robust(x, eps=eps, label=int(label), lower=0.0, upper=1.0)
    verdict = bl.verify(model, prop, timeout=timeout)
    seconds = time.monotonic() - start
    stage = verdict.stages[-1].name if verdict.stages else ""
    found = (verdict.status, seconds, verdict.domains, verdict.bound, stage)
    return Row(name, image, timeout, attacked, alpha_crown, *found)


def read(path: Path) -> list[Row]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [_row(words) for words in csv.DictReader(file)]


def _row(words: dict[str, str]) -> Row:
    as_type = {"int": int, "float": float, "bool": "True".__eq__, "str": str}
    return Row(**{field.name: as_type[str(field.type)](words[field.name]) for field in fields(Row)})


def append(path: Path, row: Row) -> None:
    new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, [field.name for field in fields(Row)])
        if new:
            writer.writeheader()
        writer.writerow(asdict(row))


def table(rows: Iterable[Row]) -> Table:
    by_network: dict[str, list[Row]] = {}
    for row in rows:
        by_network.setdefault(row.network, []).append(row)
    shown = Table()
    heads = ("network", "images", "clean", "not attacked", "alpha-crown", "verified", "falsified")
    for head in (*heads, "open", "median s", "domains"):
        shown.add_column(head, justify="left" if head == "network" else "right")
    for name, own in by_network.items():
        count = lambda status, own=own: sum(row.status == status for row in own)
        right = [row for row in own if row.stage != "clean"]
        proved = [row.seconds for row in own if row.status == "holds"] or [float("nan")]
        shown.add_row(
            name,
            *map(str, (len(own), len(right), sum(not row.attacked for row in own))),
            *map(str, (sum(row.alpha_crown for row in own), count("holds"), count("violated"))),
            str(count("unknown")),
            f"{statistics.median(proved):.1f}",
            str(sum(row.domains for row in own)),
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(ENTRIES), choices=list(ENTRIES))
    parser.add_argument("--timeout", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=int, default=100)
    parser.add_argument("--output", type=Path, default=FILE)
    parser.add_argument("--again", action="store_true")
    options = parser.parse_args()
    if options.again:
        options.output.unlink(missing_ok=True)
    known = {(row.network, row.image) for row in read(options.output)}
    tasks = [(name, image) for name in options.only for image in range(options.limit)]
    tasks = [task for task in tasks if task not in known]
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        futures = [pool.submit(run, *task, options.timeout) for task in tasks]
        for future in track(as_completed(futures), "images", total=len(futures)):
            append(options.output, future.result())
    Console().print(table(sorted(read(options.output), key=lambda row: (row.network, row.image))))


if __name__ == "__main__":
    main()
