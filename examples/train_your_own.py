"""A residual network of one's own, trained so that its robustness can be proved. With a folder the
same call goes on from the checkpoint there, whatever has interrupted it (kill -9 too):

    python -m examples.train_your_own IMAGES.npz runs/mine
"""

import sys

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import boundlab as bl
from boundlab.demo import load_digits


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        parts = [nn.Conv2d(channels, channels, 3, 1, 1), nn.BatchNorm2d(channels), nn.ReLU()]
        self.body = nn.Sequential(*parts, nn.Conv2d(channels, channels, 3, 1, 1))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def resnet() -> nn.Module:
    first = [nn.Conv2d(1, 16, 5, 3, 1), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*first, Block(16), nn.Flatten(), nn.Linear(16 * 9 * 9, 10))


def main(file: str | None = None, folder: str | None = None) -> None:
    torch.manual_seed(0)
    images, labels = load_digits(100)  # bytes, which are divided by 255, and whole numbers
    if file is not None:
        with np.load(file) as arrays:
            images, labels = (torch.from_numpy(arrays[name]) for name in ("images", "labels"))
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    recipe = bl.Recipe(method="ibp", eps=0.1, epochs=8, start=1, length=4, milestones=(7,))
    bl.fit(resnet(), loader, recipe, output=folder)


if __name__ == "__main__":
    main(*sys.argv[1:3])
