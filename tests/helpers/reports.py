"""Certifications that no model made, of any size, for tests of reports."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.commands.certificates import AttackRun, Certification, Run, Task
from boundlab.commands.counterexamples import Counterexamples

RADII = (0.05, 0.1, 0.15)
METHODS = ("ibp", "crown", "forward+backward")


def made_up(
    count: int, classes: int = 10, side: int = 28, seed: int = 0
) -> tuple[Certification, Tensor]:
    """A certification of images (count, 1, side, side) with every verdict: margins fall with the
    radius, later methods have larger ones, one image in 15 is misclassified, and one in 10 has a
    counterexample from the second radius on."""
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(count) % classes
    wrong = torch.arange(count) % 15 == 7
    predictions = torch.where(wrong, (labels + 1) % classes, labels)
    base = 6 * torch.rand(count, classes - 1, generator=generator, dtype=torch.float64) + 1
    base[wrong] -= 8
    broken = ~wrong & (torch.arange(count) % 10 == 3)
    base[broken, 0] = 0.4
    runs = [
        Run(method, radius, base - (12 - 2 * m) * radius**1.5 * 5 - r, 0.01 * count)
        for m, method in enumerate(METHODS)
        for r, radius in enumerate(RADII)
    ]
    images = pictures(labels, side, generator)
    places = broken.nonzero().flatten()
    change = 0.1 * (2 * torch.rand(len(places), 1, side, side, generator=generator) - 1)
    outputs = torch.nn.functional.one_hot((labels[places] + 1) % classes, classes).float()
    examples = Counterexamples(
        places,
        labels[places],
        torch.full((len(places),), 0.1, dtype=torch.float64),
        (images[places] + change).clamp(0, 1),
        outputs,
    )
    attack = AttackRun(
        0.1, 20, 1, places, (labels[places] + 1) % classes, -torch.ones(len(places)).double(), 1.0
    )
    task = Task("m" * 32, "d" * 32, count, classes, "inf", (0.0, 1.0))
    found = Certification(task, labels, predictions, tuple(runs), (attack,), examples)
    return found, images


def pictures(labels: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Grey images with a soft spot whose place depends on the label: (N, 1, side, side)."""
    at = torch.linspace(-1, 1, side)
    angle = 0.6 * labels + 0.3 * torch.rand(len(labels), generator=generator)
    x = at[None, None, :] - 0.5 * angle.cos()[:, None, None]
    y = at[None, :, None] - 0.5 * angle.sin()[:, None, None]
    spot = torch.exp(-8 * (x**2 + y**2))
    return (spot + 0.1 * torch.rand(spot.shape, generator=generator)).clamp(0, 1)[:, None]
