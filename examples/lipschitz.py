"""A local Lipschitz constant: bounds of the gradient of a network, written as an ordinary
function."""

import torch
from torch import Tensor, nn

import boundlab as bl


class Gradient(nn.Module):
    """The gradient of a two-layer tanh network in its input, in closed form."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(3, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        slope = 1 - torch.tanh(self.inner(x)) ** 2
        return (slope * self.outer.weight) @ self.inner.weight


def main() -> None:
    torch.manual_seed(0)
    gradient = Gradient()
    x = torch.zeros(1, 3)
    net = bl.capture(gradient, x)
    with torch.no_grad():
        for eps in (0.01, 0.1, 0.5):
            bounds = net.bounds(bl.Linf(x, eps))
            limit = torch.maximum(bounds.lower.abs(), bounds.upper.abs()).sum()
            seen = max(float(gradient(bl.Linf(x, eps).sample()).abs().sum()) for _ in range(500))
            print(
                f"within {eps}: Lipschitz constant (linf) at most {limit:.4f}, sampled {seen:.4f}"
            )


if __name__ == "__main__":
    main()
