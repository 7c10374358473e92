"""A residual network of one's own, trained certifiably: ``bl.fit`` runs a recipe, batch norm
included. With ``output="runs/mine"`` it writes checkpoints, and the same script goes on from them
after whatever has interrupted it."""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import boundlab as bl
from boundlab.training.recipes import recipe_named


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))))


def resnet() -> nn.Module:
    first = [nn.Conv2d(1, 8, 2, 2), nn.BatchNorm2d(8), nn.ReLU()]
    return nn.Sequential(*first, Block(8), nn.Flatten(), nn.Linear(8 * 4 * 4, 3))


def stripes(count: int) -> tuple[Tensor, Tensor]:
    """Images 8 x 8 in [0, 1] of three classes, which differ by where they are bright."""
    labels = torch.arange(count) % 3
    x = 0.5 * torch.rand(count, 1, 8, 8)
    for k in range(3):
        x[labels == k, :, :, 2 * k : 2 * k + 3] += 0.5
    return x, labels


def main() -> None:
    torch.manual_seed(0)
    model, (x, y) = resnet(), stripes(192)
    loader = DataLoader(TensorDataset(x, y), batch_size=64, shuffle=True)
    recipe = replace(recipe_named("mnist-0.3-ibp"), eps=0.1, epochs=10, start=1, length=4, lr=5e-3)
    bl.fit(model, loader, recipe)

    x, y = stripes(90)
    net = bl.capture(model, x)  # in eval mode, with the running statistics
    region = bl.Linf(x, recipe.eps, lower=0.0, upper=1.0)
    verified = (net.margins(region, y) > 0).all(1).float().mean()
    print(f"verified at {recipe.eps}: {verified:.1%} of {len(y)} new images")


if __name__ == "__main__":
    main()
