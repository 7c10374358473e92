"""Members of the regions of a program that try to leave its bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import boundlab as bl
from tests.helpers.contract import members
from tests.programs.program import Program

Points = tuple[Tensor, ...]
"""A member of each region."""


class Attacked:
    """A program's model, captured or not, its regions, and outputs at members of these."""

    def __init__(self, program: Program, count: int = 6, elements: int = 4, steps: int = 3) -> None:
        self.model, self.regions = program.model(), program.regions()
        self.given, self.named = program.constants()
        self.batched = program.batched
        points = [*self._drawn(count), *self._climbed(elements, steps)]
        rows = [[y.detach() for y in self.outputs(*point)] for point in points]
        self.values = [torch.stack(column) for column in zip(*rows, strict=True)]

    def capture(self) -> bl.Net:
        centres = [region.centre for region in self.regions]
        return bl.capture(self.model, *centres, *self.given, **self.named)

    def bounds(self, net: bl.Net, method: str, **options: Any) -> list[bl.Bounds]:
        """Bounds of the outputs that are tensors, in order."""
        found = net.bounds(*self.regions, *self.given, method=method, **self.named, **options)
        leaves = pytree.tree_leaves(found, is_leaf=lambda leaf: isinstance(leaf, bl.Bounds))
        return [leaf for leaf in leaves if isinstance(leaf, bl.Bounds)]

    def outputs(self, *point: Tensor) -> list[Tensor]:
        return list(tensors(self.model(*point, *self.given, **self.named)))

    def _drawn(self, count: int) -> Iterator[Points]:
        """Random members, vertices, and points of faces: some elements at an end, others not."""
        lists = [
            members(region, count, seed, self.batched) for seed, region in enumerate(self.regions)
        ]
        drawn = list(zip(*lists, strict=True))
        yield from drawn
        generator = torch.Generator().manual_seed(7)
        for inner, vertex in zip(drawn[1 : count + 1], drawn[-count:], strict=True):
            yield tuple(
                torch.where(torch.rand(a.shape, generator=generator) < 0.5, a, b)
                for a, b in zip(inner, vertex, strict=True)
            )

    def _climbed(self, elements: int, steps: int) -> Iterator[Points]:
        """What steps along the sign of the gradient find, for single elements of the outputs and
        both ends of each."""
        centres = tuple(region.centre for region in self.regions)
        for leaf, y in enumerate(self.outputs(*centres)):
            size = y[0].numel() if self.batched and y.dim() else y.numel()
            if not y.is_floating_point() or not size:
                continue
            for element in torch.linspace(0, size - 1, min(elements, size)).long().tolist():
                for sign in (1.0, -1.0):
                    yield from self._path(self._score(leaf, element, sign), centres, steps)

    def _score(self, leaf: int, element: int, sign: float) -> Callable[[Points], Tensor]:
        def score(point: Points) -> Tensor:
            y = self.outputs(*point)[leaf]
            flat = y.flatten(1) if self.batched and y.dim() > 1 else y.reshape(-1, 1)
            return sign * flat[:, min(element, flat.shape[1] - 1)].sum()

        return score

    def _path(
        self, score: Callable[[Points], Tensor], point: Points, steps: int
    ) -> Iterator[Points]:
        for _ in range(steps):
            point = tuple(x.detach().requires_grad_() for x in point)
            height = score(point)
            if not height.requires_grad:
                return
            slopes = torch.autograd.grad(height, point, allow_unused=True, materialize_grads=True)
            point = tuple(map(_step, self.regions, point, slopes))
            yield point


def _step(region: bl.Linf, x: Tensor, slope: Tensor) -> Tensor:
    """A member as far along the sign of a slope as the radius allows."""
    box = region.hull()
    moved = x.detach() + region.eps * slope.sign()
    return torch.minimum(torch.maximum(moved, box.lower), box.upper)


def tensors(value: object) -> Iterator[Tensor]:
    """The tensors of a structure, dataclasses included."""
    if hasattr(value, "__dataclass_fields__"):
        value = list(vars(value).values())
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
