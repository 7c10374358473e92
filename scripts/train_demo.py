"""Train the network that ``boundlab demo`` certifies, and pick the digits that ship with it.

    python scripts/train_demo.py FILES

FILES: folder with the idx files of MNIST, as `make data` leaves it

Writes boundlab/demo/digits.pt and boundlab/demo/digits.npz. The recipe keeps a share of the clean
loss to the end, so that accuracy stays good and the methods differ: interval bounds prove less than
CROWN.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from boundlab.attacks import AttackSettings
from boundlab.data import load
from boundlab.demo.model import NETWORK
from boundlab.storage.files import write_atomically
from boundlab.training.evaluation import evaluate
from boundlab.training.recipe import Recipe
from boundlab.training.trainer import Progress, Trainer

FOLDER = Path(__file__).resolve().parent.parent / "boundlab" / "demo"
RECIPE = Recipe(
    name="demo",
    model=NETWORK,
    eps=0.1,
    factor=1.2,
    epochs=16,
    lr=1e-3,
    milestones=(11, 14),
    start=1,
    length=6,
    kappa=(0.5, 0.5),
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, help="folder with the idx files of MNIST")
    parser.add_argument(
        "--output", type=Path, default=FOLDER, help="where digits.pt and digits.npz go"
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    test = load("mnist", options.files, "test")
    model = Trainer(RECIPE, load("mnist", options.files, "train")).run(_tell)
    for eps in (0.05, 0.1, 0.12):
        found = evaluate(
            model, test, eps, ("ibp", "crown-ibp", "crown"), AttackSettings(steps=20, restarts=1)
        )
        print(
            f"at {eps:g}: clean error {found.clean:.2%}, attacked {found.attacked:.2%}, "
            f"verified {found.verified}"
        )
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    write_atomically(options.output / "digits.pt", buffer.getvalue())
    buffer = io.BytesIO()
    chosen = stratified(test.labels, each=10)
    np.savez_compressed(
        buffer,
        images=test.images[chosen, 0].numpy(),
        labels=test.labels[chosen].to(torch.uint8).numpy(),
    )
    write_atomically(options.output / "digits.npz", buffer.getvalue())


def _tell(progress: Progress) -> None:
    if progress.step == progress.steps:
        print({key: round(value, 4) for key, value in progress.row.items()}, flush=True)


def stratified(labels: Tensor, each: int) -> Tensor:
    """Indices of the first ``each`` examples of every class, in the order 0, 1, ..., 9, 0, 1,
    ..."""
    by_class = torch.stack([(labels == k).nonzero()[:each, 0] for k in range(10)])  # (10, each)
    return by_class.T.reshape(-1)


if __name__ == "__main__":
    main()
