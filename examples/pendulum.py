"""A closed control loop: where can a pendulum be after ten steps under a neural controller?

The loop is plain PyTorch with sin; boundlab reads it as one graph. Compare the reachable interval
by method.
"""

import torch
from torch import Tensor, nn

import boundlab as bl


class Loop(nn.Module):
    """Ten steps of a damped pendulum (angle, speed) with a torque from a small network."""

    def __init__(self, steps: int = 10) -> None:
        super().__init__()
        self.steps = steps
        self.policy = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, state: Tensor) -> Tensor:
        angle, speed = state[:, 0], state[:, 1]
        for _ in range(self.steps):
            torque = self.policy(torch.stack([angle, speed], 1)).squeeze(1)
            angle, speed = (
                angle + 0.05 * speed,
                speed + 0.05 * (torch.sin(angle) - 0.3 * speed + torque),
            )
        return torch.stack([angle, speed], 1)


def main() -> None:
    torch.manual_seed(0)
    loop = Loop()
    start = torch.tensor([[0.5, 0.0]])
    region = bl.Linf(start, torch.tensor([[0.1, 0.05]]))
    net = bl.capture(loop, start)
    with torch.no_grad():
        reached = torch.cat([loop(region.sample()) for _ in range(1000)])
        print(f"sampled           angle [{reached[:, 0].min():.4f}, {reached[:, 0].max():.4f}]")
        for method in ("ibp", "forward", "crown"):
            bounds = net.bounds(region, method=method)
            print(f"{method:17s} angle [{bounds.lower[0, 0]:.4f}, {bounds.upper[0, 0]:.4f}]")


if __name__ == "__main__":
    main()
