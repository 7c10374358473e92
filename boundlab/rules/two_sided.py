"""Products of two perturbed sides as operators, without a slope for every elementary product:
around their centres, with a side that is not negative, and over a set that is smaller than its
hull."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.kernels.reductions import all_finite
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import DualNormInterval, Interval
from boundlab.relaxations.products import CentreForm, SignedForm
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.facts import Facts
from boundlab.rules.mccormick import McCormick
from boundlab.rules.one_sided import absolute, per_sample
from boundlab.rules.product import Operand, Product

Times = Callable[[Tensor | float, Tensor | float], Tensor]


def in_x(product: Product, facts: Facts, y: Tensor) -> AffineMap:
    """x -> B(x, y) for a constant y."""
    return AffineMap(
        lambda u: product.times(u, y),
        lambda u: product.times(u, y.abs()),
        (product.intervals[0],),
        facts.transpose_of(product.with_constant(1, y)),
        0.0,
    )


def in_y(product: Product, facts: Facts, x: Tensor) -> AffineMap:
    """y -> B(x, y) for a constant x."""
    call = product.with_constant(0, x)
    return AffineMap(
        lambda v: product.times(x, v),
        lambda v: product.times(x.abs(), v),
        (product.intervals[1],),
        facts.transpose_of(call),
        0.0,
        per_sample=per_sample(product, facts, call, x),
    )


@dataclass(frozen=True, eq=False)
class InBall:
    """A product with a side h = c + d in a set that is smaller than its hull, whose dual norm is
    known; ``other``: the other side o, perturbed or not; ``times``: B as a function of (o, h).

    o h = o c + o d, and |o d| is at most the reach of max |o| over the set.
    """

    product: Product
    hull: DualNormInterval
    other: Operand
    times: Times

    @staticmethod
    def of(product: Product) -> InBall | None:
        """None if neither side is such a set, or for single products, where the hull says all."""
        x, y = product.x, product.y
        if product.is_elementwise:
            return None
        if isinstance(y, DualNormInterval):
            return InBall(product, y, x, product.times)
        if isinstance(x, DualNormInterval):
            return InBall(product, x, y, lambda other, own: product.times(own, other))
        return None

    def interval(self) -> Interval:
        """Bound the result, bias included, by an interval of its shape."""
        bias = self.product.bias
        if isinstance(self.other, Interval):
            middle, spread = self.other.ball
            centre = self.times(middle, self.hull.centre)
            reach = self._reach(middle.abs() + spread)
            reach = reach + self.times(spread, self.hull.centre.abs())
        else:
            centre = self.times(self.other, self.hull.centre)
            reach = self._reach(absolute(self.other))
        if isinstance(bias, Interval):
            centre = centre + self.product.spread_bias(bias.centre)
            reach = reach + self.product.spread_bias(bias.radius)
        elif isinstance(bias, Tensor):
            centre = centre + self.product.spread_bias(bias)
        return Interval.around(centre, reach)

    def slack(self) -> Tensor:
        """How far the product of the two deviations from the centres can be from 0."""
        assert isinstance(self.other, Interval)
        return self._reach(self.other.ball[1])

    def _reach(self, largest: Tensor | float) -> Tensor:
        """How far products with at most ``largest`` move over the set. Powers are taken of
        fractions of the largest of all, so that they do not overflow; where they vanish, the reach
        that is assumed of almost nothing is larger."""
        hull = self.hull
        size = torch.as_tensor(largest, dtype=hull.dtype, device=hull.device).detach()
        if size.numel():
            scale = size.amax().clamp(min=torch.finfo(hull.dtype).tiny)
        else:
            scale = size.new_ones(())
        scale = torch.where(torch.isfinite(scale), scale, 1)
        ones = torch.ones_like(hull.lower)
        return scale * hull.reach(lambda q: self.times((largest / scale) ** q, ones))


@dataclass(frozen=True, eq=False)
class Centred:
    """x y = cx y + cy x - cx cy + (x - cx)(y - cy), the last term bounded by the radii."""

    product: Product
    facts: Facts

    def interval(self) -> Interval:
        """Bound B(x, y) by an interval of the shape of the result."""
        x, y = self.product.intervals
        times = self.product.times
        centre = times(x.centre, y.centre)
        radius = times(x.radius, y.centre.abs() + y.radius) + times(x.centre.abs(), y.radius)
        return Interval(centre - radius, centre + radius)

    def relax(self, constant: Tensor | float) -> Relaxation:
        """Relax B(x, y) + constant."""
        product = self.product
        x, y = product.intervals
        (middle, radius), (centre, spread) = x.ball, y.ball
        ball = InBall.of(product)
        if ball is None:
            slack = product.times(radius, spread)
        else:
            slack = ball.slack()
        return CentreForm(
            in_x(product, self.facts, centre),
            in_y(product, self.facts, middle),
            product.times(middle, centre) - constant,
            slack,
        )


@dataclass(frozen=True, eq=False)
class Signed:
    """A product with a side s that is not negative; ``times``: B as a function of (s, the other).
    Those planes that McCormick's rule takes then, as operators."""

    product: Product
    facts: Facts
    side: Interval
    other: Interval
    times: Times

    @staticmethod
    def of(product: Product, facts: Facts) -> Signed | None:
        """None if both sides may be negative or are not finite, or for single products, whose
        planes are as cheap."""
        x, y = product.intervals
        if product.is_elementwise or not all_finite(x.lower, x.upper, y.lower, y.upper):
            return None
        if bool((x.lower >= 0).all()):
            return Signed(product, facts, x, y, product.times)
        if bool((y.lower >= 0).all()):
            return Signed(product, facts, y, x, lambda s, t: product.times(t, s))
        return None

    def interval(self) -> Interval:
        """Bound B(x, y) by the exact range of every elementary product: an interval of the shape of
        the result."""
        s, t = self.side, self.other
        times = self.times
        low = times(s.lower, t.lower.clamp(min=0)) + times(s.upper, t.lower.clamp(max=0))
        up = times(s.upper, t.upper.clamp(min=0)) + times(s.lower, t.upper.clamp(max=0))
        return Interval(low, up)

    def relax(self, constant: Tensor | float) -> Relaxation:
        """Relax B(x, y) + constant for x that is not negative."""
        product = self.product
        x, y = product.intervals
        return SignedForm(
            in_x(product, self.facts, y.lower),
            in_x(product, self.facts, y.upper),
            in_y(product, self.facts, x.lower),
            constant - product.times(x.lower, y.lower),
            constant - product.times(x.lower, y.upper),
            lambda: McCormick(product).relax(constant),
        )
