"""A training loop of one's own with batch norm done right: the model itself runs once a step, which
moves the running statistics, and a clean pass lends the statistics of that batch to the bounds."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from boundlab.training.schedules import Schedule

EPS, EPOCHS, BATCH = 0.1, 9, 64


def points(count: int) -> tuple[Tensor, Tensor]:
    """Two classes: points near the middle, and points around them."""
    labels = torch.arange(count) % 2
    angle = 6.28 * torch.rand(count)
    radius = 0.2 + 0.8 * labels + 0.05 * torch.randn(count)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1), labels


def main() -> None:
    torch.manual_seed(0)
    x, y = points(256)
    layers = [nn.Linear(2, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(32, 2)).train()
    net = bl.capture(model, x[:2])
    optimiser = torch.optim.Adam(model.parameters(), 5e-3)
    schedule = Schedule("smooth", start=1, length=5)  # in epochs
    for epoch in range(EPOCHS):
        order = torch.randperm(len(x)).split(BATCH)
        for step, batch in enumerate(order):
            share = schedule.share(epoch + step / len(order))
            with bl.CleanPass(net) as seen:
                clean = F.cross_entropy(model(x[batch]), y[batch])
            region = bl.Linf(x[batch], EPS * share)
            robust = bl.robust_cross_entropy(net, region, y[batch], beta=1 - share, clean=seen)
            loss = 0.2 * clean + 0.8 * robust.mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 8.0)
            optimiser.step()
        if epoch % 3 == 2:
            print(f"epoch {epoch + 1:2d}  eps {EPS * share:.3f}  loss {loss.item():.3f}")

    x, y = points(200)
    verifier = bl.capture(model.eval(), x)  # a graph of its own, with the running statistics
    verified = (verifier.margins(bl.Linf(x, EPS), y) > 0).all(1).float().mean()
    print(f"verified at {EPS}: {verified:.1%} of {len(y)} new points")


if __name__ == "__main__":
    main()
