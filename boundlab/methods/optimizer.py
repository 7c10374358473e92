"""Gradient ascent on lower bounds, for slopes and multipliers alike."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

SETTLED, WORTH = 0.01, 0.0005
"""A bound is idle in a step that raises it by less than the first share of its whole rise, or by
less than the second share of its room. It has settled after ``PATIENCE`` such steps in a row."""
PATIENCE = 6
PROMISING = 0.003
"""A bound has settled when all its variables together promise to raise it by less than this share
of its room."""
MOMENTUM = 0.3
"""The share of the last direction in the next one: less to and fro at a kink."""


@dataclass(eq=False)
class Variable:
    """A tensor that bounds depend on, with the range [0, upper].

    scale: the length of a step of size 1; a tensor with as many dimensions as the value, 1 where
    entries share it. rows_of: from a mask (rows, samples) of bounds to one that broadcasts against
    the value; None if all bounds share it.
    """

    value: Tensor
    scale: Tensor | float = 1.0
    upper: float = 1.0
    rows_of: Callable[[Tensor], Tensor] | None = None

    def step(self, gradient: Tensor, length: float) -> None:
        """Move uphill and project onto the range: along the signs of the gradient in a bounded
        range, where every entry has the same way to go; else along the gradient, in units of its
        largest entry among those that share a scale."""
        direction = gradient.sign()
        if math.isinf(self.upper) and isinstance(self.scale, Tensor):
            shared = [d for d, size in enumerate(self.scale.shape) if size == 1]
            largest = gradient.abs().amax(shared, keepdim=True)
            direction = gradient / largest.clamp(min=torch.finfo(gradient.dtype).tiny)
        self.value.add_(direction * self.scale, alpha=length).clamp_(0, self.upper)

    def promise(self, gradient: Tensor, like: Tensor) -> Tensor:
        """How far each bound, in the shape of ``like`` (rows, samples), rises if every entry moves
        to the end of its range that the gradient points to, to first order.

        Bounds are concave in the slopes of one node, so that they rise no further than that by
        these alone. Infinite where it is not known.
        """
        if self.rows_of is None or math.isinf(self.upper):
            return torch.full_like(like, torch.inf)
        way = torch.where(gradient > 0, self.upper - self.value.detach(), -self.value.detach())
        rows = torch.zeros_like(like, requires_grad=True)
        with torch.enable_grad():
            spread = self.rows_of(rows)
        (found,) = torch.autograd.grad(spread, rows, (gradient * way).sum_to_size(spread.shape))
        return found


Key = TypeVar("Key")


def ascend(
    bound: Callable[[], Tensor],
    variables: dict[Key, Variable],
    steps: int,
    length: Callable[[int], float],
    enough: float | None = None,
    report: Callable[[], None] = lambda: None,
    room: Callable[[Tensor], Tensor] = torch.zeros_like,
) -> tuple[Tensor, dict[Key, Tensor]]:
    """The best bounds (rows, samples) found in some steps, and the values of the variables that
    give them.

    bound: the bounds for the present values, as a function of them; its first call may add
    variables. length: of step i. enough: a bound that is high enough. room: from the first
    bounds to how far they may rise, about; 0 where nothing is known of that. Each bound stops for
    itself, so that no sample depends on the others of its batch.
    """
    with torch.set_grad_enabled(steps > 0):
        found = bound()
    best = first = found.detach()
    above = room(first)
    kept = {name: variable.value.detach().clone() for name, variable in variables.items()}
    direction: dict[Key, Tensor] = {}
    idle = torch.zeros(best.shape, dtype=torch.int32, device=best.device)
    for i in range(steps):
        report()
        active = idle < PATIENCE
        if enough is not None:
            active &= best <= enough
        if not variables or not bool(active.any()):
            break
        gradients = _gradients(found, active, variables)
        promising = _promise(gradients, variables, first) >= PROMISING * above
        goes_on = i + 1 < steps and bool((active & promising).any())
        with torch.no_grad():
            for name, gradient in gradients.items():
                if name in direction:
                    gradient = direction[name].mul_(MOMENTUM).add_(gradient)
                direction[name] = gradient
                variables[name].step(gradient, length(i))
        with torch.set_grad_enabled(goes_on):  # the last evaluation needs no gradient
            found = bound()
        value = found.detach()
        better = active & (value > best)
        for name, variable in variables.items():
            kept[name] = _better_of(kept.get(name), variable, better)
        rise = torch.where(better, value - best, 0)
        idle += 1
        idle[rise > torch.maximum(SETTLED * (best - first), WORTH * above)] = 0
        idle[~promising] = PATIENCE
        best = torch.where(better, value, best)
        if not goes_on:
            break
    report()
    return best, kept


def _gradients(bounds: Tensor, active: Tensor, variables: dict[Key, Variable]) -> dict[Key, Tensor]:
    """The gradients of the sum of the active bounds by the variables that it depends on."""
    values = [variable.value for variable in variables.values()]
    with torch.enable_grad():
        total = torch.where(active, bounds, 0).sum()
        found = torch.autograd.grad(total, values, allow_unused=True)
    by_name = zip(variables, found, strict=True)
    return {name: gradient for name, gradient in by_name if gradient is not None}


def _promise(gradients: dict[Key, Tensor], variables: dict[Key, Variable], like: Tensor) -> Tensor:
    """How far bounds rise if all variables move as far as they can, to first order."""
    promise = torch.zeros_like(like)
    for name, gradient in gradients.items():
        promise += variables[name].promise(gradient, like)
        if not bool(promise.isfinite().any()):
            break
    return promise


def _better_of(kept: Tensor | None, variable: Variable, better: Tensor) -> Tensor:
    """The kept values with those of the bounds that got better; shared values are the latest."""
    latest = variable.value.detach()
    if kept is None or variable.rows_of is None or kept.shape != latest.shape:
        return latest.clone()
    # a mean with weights 0 and 1: choosing takes many times as long
    return kept.lerp_(latest, variable.rows_of(better).to(latest.dtype))
