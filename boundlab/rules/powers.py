"""Powers: of a perturbed base, of a perturbed exponent, of both."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules import curves
from boundlab.rules.curves import Curve, Line
from boundlab.rules.elementwise import (
    CONCAVE,
    CONVEX,
    DIVISION_BY_ZERO,
    OneSigned,
    piecewise_linear,
)
from boundlab.rules.mccormick import mccormick
from boundlab.rules.registry import Call, Relaxed, Rule, aten, register


def power_curve(exponent: float) -> Curve:
    """The shape of x ** exponent; for whole negative exponents on either side of 0, which the rule
    keeps outside."""
    if exponent in (0, 1):
        return piecewise_linear()
    slope = lambda x: exponent * x ** (exponent - 1)
    if not float(exponent).is_integer():
        kind = "convex"
        if 0 < exponent < 1:
            kind = "concave"
        return Curve((kind,), domain=(0.0, math.inf, exponent > 0), derivative=slope)
    if int(exponent) % 2:
        return Curve(("concave", "convex"), (0.0,), derivative=slope)
    if exponent < 0:
        return Curve(("convex",), derivative=slope)
    return Curve(("convex",), turns=(0.0,), derivative=slope)


def has_pole(exponent: float) -> bool:
    return float(exponent).is_integer() and exponent < 0


register(aten.pow.Tensor_Scalar, rule=OneSigned(power_curve, pole=has_pole))


def _positive(call: Call, base: Tensor) -> None:
    call.require(base > 0, "a power with a perturbed exponent needs a positive base")


def _exponential(call: Call) -> Lines:
    """base ** y for a constant base is convex in y."""
    (y,) = call.inputs
    base = torch.as_tensor(call["self"], dtype=y.dtype, device=y.device)
    _positive(call, base)
    slope = lambda t: torch.pow(base, t) * torch.log(base)
    (a, b), (c, d) = curves.lines(
        lambda t: torch.pow(base, t), Curve(("convex",), derivative=slope), _expanded(y, base)
    )
    return Lines((a,), b, (c,), d, (y.shape,))


def _expanded(x: Interval, other: Tensor) -> Interval:
    shape = torch.broadcast_shapes(x.shape, other.shape)
    return Interval(x.lower.expand(shape), x.upper.expand(shape))


def _exponential_interval(call: Call) -> Interval:
    (y,) = call.inputs
    base = torch.as_tensor(call["self"], dtype=y.dtype, device=y.device)
    _positive(call, base)
    ends = torch.pow(base, y.lower), torch.pow(base, y.upper)
    return Interval(torch.minimum(*ends), torch.maximum(*ends))


register(aten.pow.Scalar, rule=Relaxed(_exponential_interval, _exponential, kind="elementwise"))


class Piece(NamedTuple):
    """The elements with one exponent: where they are, their function and curve, and the base there,
    with a harmless 1 elsewhere."""

    where: Tensor
    f: curves.Function
    curve: Curve
    base: Interval


def _require_domain(call: Call, base: Interval, exponent: float) -> None:
    """Refuse bases for which a power that is not a whole number has no value."""
    if exponent > 0:
        call.require(base.lower >= 0, f"a base of the power {exponent:g} must not be negative")
    else:
        call.require(
            base.lower > 0, f"a base of the power {exponent:g} must not be negative or zero"
        )


@dataclass(frozen=True, eq=False)
class TensorPower(Rule):
    """x ** y for tensors. With constant exponents each of them has its own curve; with a perturbed
    one x must be positive, and then x ** y = exp(y log x)."""

    kind: str = "relaxed"

    def nonlinear(self, call: Call) -> bool:
        return True

    def interval(self, call: Call) -> Interval:
        x, y = call["self"], call["exponent"]
        if not isinstance(x, Interval):
            return _exponential_interval(call)
        if not isinstance(y, Interval):
            pieces = self._by_exponent(call)
            ranges = [(p.where, curves.interval(p.f, p.curve, p.base)) for p in pieces]
            lower = _merged([(where, part.lower) for where, part in ranges])
            upper = _merged([(where, part.upper) for where, part in ranges])
            return Interval(lower, upper)
        _positive(call, x.lower)
        # y log x is linear in y and in log x
        ends = itertools.product((x.lower, x.upper), (y.lower, y.upper))
        corners = torch.stack([torch.pow(a, b) for a, b in ends])
        return Interval(corners.amin(0), corners.amax(0))

    def relax(self, call: Call) -> Relaxation:
        x, y = call["self"], call["exponent"]
        if not isinstance(x, Interval):
            return _exponential(call)
        if isinstance(y, Interval):
            return self._both(call, x, y)
        pieces = self._by_exponent(call)
        found = [(p.where, curves.lines(p.f, p.curve, p.base)) for p in pieces]
        pick = lambda side, k: _merged([(where, lines[side][k]) for where, lines in found])
        return Lines((pick(0, 0),), pick(0, 1), (pick(1, 0),), pick(1, 1), (x.shape,))

    def _by_exponent(self, call: Call) -> list[Piece]:
        """A piece for each exponent."""
        x, y = call["self"], call["exponent"]
        assert isinstance(x, Interval) and isinstance(y, Tensor)
        wide, y = _expanded(x, y), y.to(x.dtype).expand(torch.broadcast_shapes(x.shape, y.shape))
        found = []
        for exponent in y.unique().tolist() or [1.0]:
            where = y == exponent
            base = Interval(torch.where(where, wide.lower, 1), torch.where(where, wide.upper, 1))
            curve = power_curve(exponent)
            if has_pole(exponent):
                call.require((base.lower > 0) | (base.upper < 0), DIVISION_BY_ZERO)
            if curve.domain is not None:
                _require_domain(call, base, exponent)
            found.append(Piece(where, partial(torch.pow, exponent=exponent), curve, base))
        return found

    def _both(self, call: Call, x: Interval, y: Interval) -> Lines:
        """The lines of log in x, McCormick's planes of y times log x, the lines of exp along them,
        which rise."""
        _positive(call, x.lower)
        log = Interval(torch.log(x.lower), torch.log(x.upper))
        log_lines = curves.lines(torch.log, CONCAVE, x)
        planes = mccormick(y, log)
        ends = self.interval(call)
        exponent = Interval(torch.log(ends.lower), torch.log(ends.upper))
        exp_lines = curves.lines(torch.exp, CONVEX, exponent)
        sides: list[tuple[Tensor, Tensor, Tensor]] = []
        parts = zip((1, -1), planes, exp_lines, strict=True)
        for sign, (in_y, in_log, constant), (rise, start) in parts:
            # the lower line of log below a rising term, the upper one below a falling
            a, b = _pick(in_log * sign >= 0, *log_lines)
            sides.append((rise * in_log * a, rise * in_y, rise * (in_log * b + constant) + start))
        (low_x, low_y, low), (up_x, up_y, up) = sides
        return Lines((low_x, low_y), low, (up_x, up_y), up, (x.shape, y.shape))


def _pick(first: Tensor, a: Line, b: Line) -> Line:
    return torch.where(first, a[0], b[0]), torch.where(first, a[1], b[1])


def _merged(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    result = parts[0][1]
    for where, value in parts[1:]:
        result = torch.where(where, value, result)
    return result


register(aten.pow.Tensor_Tensor, rule=TensorPower())
