"""Weights as perturbed nodes: how much does a prediction depend on the precision of each layer's
weights?"""

import torch
from torch import nn

import boundlab as bl


def main() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 3)
    )
    x = torch.randn(4, 1, 8)
    net = bl.capture(model, x)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            eps = 0.004 * weight.abs().max()  # rounding to 8 bits
            bounds = net.bounds(x, perturb={name: bl.Linf(eps=eps)}, method="crown-ibp")
            print(
                f"{name:10s} rounded to 8 bits moves an output by at most "
                f"{bounds.width.max() / 2:.5f}"
            )


if __name__ == "__main__":
    main()
