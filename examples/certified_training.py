"""Training with bounds: two classes of points, and a network whose decisions provably survive a
perturbation of 0.1."""

import torch
from torch import nn

import boundlab as bl


def main() -> None:
    torch.manual_seed(0)
    labels = torch.randint(0, 2, (256,))
    angle = 6.28 * torch.rand(256)
    radius = torch.where(labels == 0, 0.3, 0.9) + 0.05 * torch.randn(256)
    x = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], 1)

    model = nn.Sequential(
        nn.Linear(2, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2)
    )
    net = bl.capture(model, x)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for step in range(151):
        eps = 0.1 * min(1.0, step / 100)
        margins = net.margins(bl.Linf(x, eps), labels, method="crown-ibp")
        loss = nn.functional.softplus(-margins).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step % 50 == 0:
            with torch.no_grad():
                verified = (net.margins(bl.Linf(x, 0.1), labels) > 0).all(1).float().mean()
            print(f"step {step:3d}  loss {loss.item():.3f}  verified at 0.1: {verified:.1%}")


if __name__ == "__main__":
    main()
