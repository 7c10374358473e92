"""McCormick's planes: the relaxation of a product x y over a box.

For x in [lx, ux], y in [ly, uy]:

    (x - lx)(y - ly) >= 0  gives  x y >= ly x + lx y - lx ly     (A)
    (ux - x)(uy - y) >= 0  gives  x y >= uy x + ux y - ux uy     (B)

Both touch x y on two edges of the box. The upper planes are minus the lower planes of (-x) y: x y
<= ly x + ux y - ux ly and x y <= uy x + lx y - lx uy. Which pair is taken: if x keeps its sign (a
gate, a probability), the end of x nearer to 0 as the slope in y, below and above alike; else the
same for y; else, below and above for themselves, the plane whose extreme value over the box is
better, which for the lower ones is (A) exactly if lx ly <= ux uy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.kernels.reductions import seems_finite, spares
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.product import Product
from boundlab.rules.registry import SlopeFamily


def _corners(x: Interval, y: Interval) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return x.lower * y.lower, x.lower * y.upper, x.upper * y.lower, x.upper * y.upper


def product(x: Interval, y: Interval) -> Interval:
    """The exact range of x y over the box, elementwise with broadcasting."""
    a, b, c, d = _corners(x, y)
    return Interval(
        torch.minimum(torch.minimum(a, b), torch.minimum(c, d)),
        torch.maximum(torch.maximum(a, b), torch.maximum(c, d)),
    )


Plane = tuple[Tensor, Tensor, Tensor]
"""Slopes in x and y and intercept."""


def mccormick(x: Interval, y: Interval, alphas: Tensor | None = None) -> tuple[Plane, Plane]:
    """The lower and the upper plane, elementwise with broadcasting.

    alphas: the fractions of (A) in the lower plane and of the first one in the upper, instead of
    one or the other.
    """
    first = {"lower": (y.lower, x.lower), "upper": (y.lower, x.upper)}
    second = {"lower": (y.upper, x.upper), "upper": (y.upper, x.lower)}
    finite = seems_finite(x.lower, x.upper, y.lower, y.upper)
    shares: Iterable[Tensor]
    if alphas is None:
        shares = chosen_planes(x, y)
    else:
        shares = alphas
    planes: list[Plane] = []
    for side, share in zip(("lower", "upper"), shares, strict=True):
        (a, b), (c, d) = first[side], second[side]
        if finite:
            share = share.to(x.dtype)
        in_x, in_y = _blend(share, a, c), _blend(share, b, d)
        # the intercept of each plane is minus the product of its slopes
        if alphas is None:
            level = in_x * in_y
        else:
            level = _blend(share, a * b, c * d)
        planes.append((in_x, in_y, -level))
    return planes[0], planes[1]


def _blend(share: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """share a + (1 - share) b, exactly a or b for a share of 1 or 0; a choice, which is slow for
    broadcast tensors, only for a truth value, as where a or b are infinite."""
    if share.dtype == torch.bool:
        return torch.where(share, a, b)
    return torch.addcmul(share * a, 1 - share, b)


def chosen_planes(x: Interval, y: Interval) -> tuple[Tensor, Tensor]:
    """Whether the lower plane is (A), and whether the upper one is the first; broadcastable to the
    products."""
    x_signed, y_signed = (x.lower >= 0) | (x.upper <= 0), (y.lower >= 0) | (y.upper <= 0)
    x_low, y_low = x.lower >= 0, y.lower >= 0  # the end nearer to 0, where the sign is kept
    if spares(x_signed):
        return x_low, ~x_low
    ll, lu, ul, uu = _corners(x, y)
    # where x keeps its sign, that decides; else where y does, that; else the corners (truth tables
    # are quicker than choosing)
    by_y = lambda corners: ~x_signed & ((y_signed & y_low) | (~y_signed & corners))
    return (x_signed & x_low) | by_y(ll <= uu), (x_signed & ~x_low) | by_y(ul >= lu)


@dataclass(frozen=True, eq=False)
class McCormick:
    """Planes for every elementary product of a sum of products over indices."""

    product: Product

    def interval(self) -> Interval:
        """Bound B(x, y) by the exact range of every elementary product: an interval of the shape of
        the result."""
        terms = product(*self._sides)
        return Interval(self._summed(terms.lower), self._summed(terms.upper))

    def relax(self, constant: Tensor | float, alphas: Tensor | None = None) -> Relaxation:
        """Relax B(x, y) + constant. alphas: (2, *space), the fractions of the two planes below and
        above, instead of the rule's own choice."""
        lower, upper = mccormick(*self._sides, alphas)
        x, y = self.product.intervals
        shapes = x.shape, y.shape
        if self.product.is_elementwise:
            return Lines(lower[:2], lower[2] + constant, upper[:2], upper[2] + constant, shapes)
        full = lower[2].shape
        return Planes(
            self.product.space,
            self.product.letters[2],
            self.product.letters[:2],
            tuple(slope.expand(full) for slope in lower[:2]),
            self._summed(lower[2]) + constant,
            tuple(slope.expand(full) for slope in upper[:2]),
            self._summed(upper[2]) + constant,
            shapes,
        )

    def family(self, constant: Tensor | float) -> SlopeFamily:
        """The fractions of the two planes below and above, of every product."""
        x, y = self._sides
        shape = torch.broadcast_shapes(x.shape, y.shape)
        start = torch.stack([choice.expand(shape) for choice in chosen_planes(x, y)]).to(x.dtype)
        return SlopeFamily(
            start,
            lambda alphas: self.relax(constant, alphas),
            by_row=self.product.is_elementwise,
        )

    @property
    def _sides(self) -> tuple[Interval, Interval]:
        """x and y with one dimension for every letter of the space, of size 1 where they do not
        vary."""
        x, y = self.product.intervals
        letters, space = self.product.letters, self.product.space
        return _spread(x, letters[0], space), _spread(y, letters[1], space)

    def _summed(self, terms: Tensor) -> Tensor:
        """(*space) summed to (*shape of the result)."""
        result = self.product.letters[2]
        summed = [i for i, letter in enumerate(self.product.space) if letter not in result]
        if not summed:
            return terms
        return terms.sum(summed)


def _spread(x: Interval, letters: str, space: str) -> Interval:
    """x with its dimensions at the places of its letters in ``space`` and ones elsewhere."""
    order = sorted(range(len(letters)), key=lambda i: space.index(letters[i]))
    sizes = dict(zip(letters, x.shape, strict=True))
    shape = [sizes.get(letter, 1) for letter in space]
    return Interval(x.lower.permute(order).reshape(shape), x.upper.permute(order).reshape(shape))
