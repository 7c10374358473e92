"""Training for a loss that is provably flat in the weights, and attacks on weights that say how
tight its bounds are."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from boundlab.errors import ArgumentError
from boundlab.losses.flatness import mean_loss_bound, weight_balls
from boundlab.net import Net, capture
from boundlab.regions import L2, Lp, Region
from boundlab.training.objective import ScheduleValues
from boundlab.training.recipe import Recipe


class FlatObjective(nn.Module):
    """The upper bound of the mean loss of a batch over Euclidean balls of radius eps around all
    weight matrices and kernels."""

    def __init__(self, model: nn.Module, recipe: Recipe, example: Tensor) -> None:
        super().__init__()
        self.model, self.recipe = model, recipe
        self.net: Net = capture(model, example)

    def forward(
        self, images: Tensor, labels: Tensor, weights: ScheduleValues
    ) -> tuple[Tensor, Tensor]:
        """The loss, and (clean loss, bound, clean errors, clean errors) of the batch, without
        gradient."""
        logits = self.model(images)
        clean, wrong = F.cross_entropy(logits, labels), (logits.argmax(1) != labels).sum()
        if self.recipe.method == "natural" or weights.eps == 0:
            return clean, torch.stack([clean.detach(), clean.detach(), wrong, wrong])
        balls = weight_balls(self.net, weights.eps, relative=False)
        bound = mean_loss_bound(self.net, images, labels, perturb=balls, method=self.recipe.method)
        loss = weights.mixed(bound, clean)
        return loss, torch.stack([clean.detach(), bound.detach(), wrong, wrong])


@torch.enable_grad()
def attack_weights(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    balls: Mapping[str, Region],
    *,
    steps: int = 20,
    restarts: int = 2,
    seed: int = 0,
) -> tuple[float, dict[str, Tensor]]:
    """The largest mean loss that gradient ascent finds for weights in Euclidean balls around them,
    and those weights.

    A linear function is largest at a known point of a ball; each step goes from where it is towards
    that point for the gradient there (the method of Frank and Wolfe), so that it never leaves the
    balls.
    """
    generator = torch.Generator().manual_seed(seed)
    centres, radii = _centres(model, balls), _radii(balls)
    best, found = -torch.inf, centres
    for _ in range(restarts):
        noise = {
            name: torch.randn(value.shape, generator=generator).to(value)
            for name, value in centres.items()
        }
        moved = {name: centres[name] + radii[name] * _unit(noise[name]) for name in centres}
        for step in range(steps + 1):
            leaves = {name: value.clone().requires_grad_() for name, value in moved.items()}
            loss = F.cross_entropy(functional_call(model, leaves, (x,)), labels)
            if float(loss.detach()) > best:
                best = float(loss.detach())
                found = {name: value.detach() for name, value in leaves.items()}
            gradients = torch.autograd.grad(loss, list(leaves.values()))
            share = 2 / (step + 2)
            for name, gradient in zip(leaves, gradients, strict=True):
                corner = centres[name] + radii[name] * _unit(gradient)
                moved[name] = torch.lerp(moved[name], corner, share)
    return best, found


def _centres(model: nn.Module, balls: Mapping[str, Region]) -> dict[str, Tensor]:
    """The weights that move; one that the model uses twice goes by all of its names."""
    found = {
        name: value.detach()
        for name, value in model.named_parameters(remove_duplicate=False)
        if name in balls
    }
    missing = sorted(set(balls) - set(found))
    if missing:
        raise ArgumentError(f"the model has no parameter {', '.join(missing)}")
    return found


def _radii(balls: Mapping[str, Region]) -> dict[str, Tensor]:
    """The radii (scalars) of Euclidean balls; other regions are refused."""
    radii = {}
    for name, ball in balls.items():
        if (
            not isinstance(ball, L2 | Lp)
            or ball.order != 2
            or torch.as_tensor(ball.eps).numel() != 1
        ):
            raise ArgumentError(
                f"weights are attacked and drawn in Euclidean balls; that of {name} is another "
                "region"
            )
        radii[name] = torch.as_tensor(ball.eps).detach().reshape(())
    return radii


def _unit(direction: Tensor) -> Tensor:
    """Of length 1, however small it was; zero stays zero."""
    largest = direction.abs().amax()
    scaled = direction / torch.where(largest > 0, largest, 1)
    return scaled / scaled.norm().clamp(min=1)


@torch.enable_grad()
def surface(
    model: nn.Module,
    x: Tensor,
    labels: Tensor,
    balls: Mapping[str, Region],
    points: int = 25,
    reach: float = 1.0,
    *,
    seed: int = 0,
) -> Tensor:
    """The mean loss on a grid in the plane of the gradient and a random direction: (points,
    points), both from -reach to reach.

    In every weight both directions have the length of its ball's radius and are orthogonal, so that
    all points within the unit circle lie in all balls.
    """
    generator = torch.Generator().manual_seed(seed)
    centres, radii = _centres(model, balls), _radii(balls)
    leaves = {name: value.clone().requires_grad_() for name, value in centres.items()}
    loss = F.cross_entropy(functional_call(model, leaves, (x,)), labels)
    uphill = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))
    planes = {}
    for name, centre in centres.items():
        first = _unit(uphill[name])
        other = torch.randn(centre.shape, generator=generator).to(centre)
        other = other - (other * first).sum() * first
        planes[name] = radii[name] * first, radii[name] * _unit(other)
    ticks = torch.linspace(-reach, reach, points)
    found = torch.zeros(points, points)
    with torch.no_grad():
        for i, a in enumerate(ticks):
            for j, b in enumerate(ticks):
                moved = {
                    name: centres[name] + a * first + b * second
                    for name, (first, second) in planes.items()
                }
                found[i, j] = F.cross_entropy(functional_call(model, moved, (x,)), labels)
    return found
