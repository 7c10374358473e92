"""A region of one's own: a zonotope, all x = centre + z_1 G_1 + ... + z_k G_k with |z_i| <= 1.

The minimum of <a, x> over it is <a, centre> - sum |<a, G_i>|: each z_i takes the sign that lowers
it. With that, any method bounds any model over the set. Here images get brighter or darker and gain
or lose contrast, all pixels together: far less than a box lets each pixel do by itself.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import boundlab as bl
from boundlab.demo import load_digits, load_model
from boundlab.relaxations.interval import Interval


@dataclass(frozen=True, eq=False)
class Zonotope(bl.Region):
    """x: centres, (samples, *shape); generators: (samples, k, *shape)."""

    x: Tensor
    generators: Tensor

    @property
    def centre(self) -> Tensor:
        return self.x

    def hull(self) -> Interval:
        radius = self.generators.abs().sum(1)
        return Interval(self.x - radius, self.x + radius)

    def minimum(self, coefficients: Tensor) -> Tensor:
        rows = coefficients.flatten(2)  # (rows, samples, n)
        along = torch.einsum("rsn,skn->rsk", rows, self.generators.flatten(2))
        return (rows * self.x.flatten(1)).sum(2) - along.abs().sum(2)

    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        z = 2 * torch.rand(self.generators.shape[:2], generator=generator).to(self.x) - 1
        return self.x + torch.einsum("sk,sk...->s...", z, self.generators)

    def samples(self, chosen: slice | Tensor) -> Zonotope:
        return Zonotope(self.x[chosen], self.generators[chosen])


def lighting(x: Tensor, brightness: float, contrast: float) -> Zonotope:
    """Images (samples, *shape) under other light: x + z_1 brightness + z_2 contrast (x - 1/2)."""
    return Zonotope(x, torch.stack([torch.full_like(x, brightness), contrast * (x - 0.5)], 1))


def main() -> None:
    images, labels = load_digits(30)
    x = images.float() / 255
    net = bl.capture(load_model(), x)
    with torch.no_grad():
        for amount in (0.05, 0.1):
            region = lighting(x, amount, amount)
            box = bl.Box(region.hull().lower, region.hull().upper)
            safe, in_box = ((net.margins(r, labels) > 0).all(1).sum() for r in (region, box))
            print(f"light {amount}: {safe} of {len(x)} digits certified, over the box {in_box}")


if __name__ == "__main__":
    main()
