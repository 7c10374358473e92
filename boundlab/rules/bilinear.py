"""Operators that are linear in each of two arguments: products, matrix products, convolutions.

With one side constant they are affine, with the absolute value of that side as absolute
coefficients. With both sides perturbed every elementary product x y is relaxed by McCormick's
planes. For x in [lx, ux], y in [ly, uy]:

    (x - lx)(y - ly) >= 0  gives  x y >= ly x + lx y - lx ly     (A)
    (ux - x)(uy - y) >= 0  gives  x y >= uy x + ux y - ux uy     (B)

Both touch x y on two edges of the box. The upper planes are minus the lower planes of (-x) y: x y
<= ly x + ux y - ux ly and x y <= uy x + lx y - lx uy. Which pair is taken: if x keeps its sign (a
gate, a probability), the end of x nearer to 0 as the slope in y, below and above alike; else the
same for y; else, below and above for themselves, the plane whose extreme value over the box is
better, which for the lower ones is (A) exactly if lx ly <= ux uy.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.kernels.reductions import all_finite, seems_finite, spares
from boundlab.kernels.trained_linear import interval_linear, is_trained
from boundlab.relaxations.interval import DualNormInterval, Interval
from boundlab.relaxations.products import CentreForm, SignedForm, WithBias
from boundlab.relaxations.relaxation import (
    AffineMap,
    Lines,
    Planes,
    Relaxation,
    Rows,
    constant_lines,
)
from boundlab.rules import per_sample, transposes, windows
from boundlab.rules.affine import around
from boundlab.rules.facts import UNKNOWN, Facts
from boundlab.rules.registry import Call, Rule, SlopeFamily, aten, register

Letters = tuple[str, str, str]
"""The indices of the two arguments and of the result, one letter a dimension."""


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

    numbers: the shares of (A) in the lower plane and of the first one in the upper, instead of one
    or the other.
    """
    first = {"lower": (y.lower, x.lower), "upper": (y.lower, x.upper)}
    second = {"lower": (y.upper, x.upper), "upper": (y.upper, x.lower)}
    shares: Sequence[Tensor] = chosen_planes(x, y) if alphas is None else list(alphas)
    finite = seems_finite(x.lower, x.upper, y.lower, y.upper)
    planes: list[Plane] = []
    for side, share in zip(("lower", "upper"), shares, strict=True):
        (a, b), (c, d) = first[side], second[side]
        share = share.to(x.dtype) if finite else share
        in_x, in_y = _blend(share, a, c), _blend(share, b, d)
        # the intercept of each plane is minus the product of its slopes
        planes.append(
            (in_x, in_y, -(in_x * in_y) if alphas is None else -_blend(share, a * b, c * d))
        )
    return planes[0], planes[1]


def _blend(share: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """share a + (1 - share) b, exactly a or b for a share of 1 or 0; a choice, which is slow for
    broadcast tensors, only for a truth value, as where a or b are infinite."""
    return (
        torch.where(share, a, b)
        if share.dtype == torch.bool
        else torch.addcmul(share * a, 1 - share, b)
    )


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
class Bilinear(Rule):
    """``op(x, y, *rest)`` or ``op(x, y, bias, *rest)``.

    ``letters``: from the arguments of the operator, the indices of x, y and the result, if it is a
    sum of products over indices; None: it is not (a convolution). ``is_plain``: whether the
    operator is called as op(x, y), so that it can be called with other numbers in their place.
    """

    letters: Callable[..., Letters] | None
    has_bias: bool = False
    is_plain: bool = True
    kind: str = "bilinear"
    exact_in_balls: bool = True
    facts: Facts = UNKNOWN

    def _sides(self, call: Call) -> tuple[Any, Any, Any]:
        x, y = call[0], call[1]
        if any(isinstance(v, Interval) and not v.dtype.is_floating_point for v in (x, y)):
            x, y = _as_numbers(x, y)
        bias = call["bias"] if self.has_bias else None
        return x, y, bias

    def nonlinear(self, call: Call) -> bool:
        x, y, _ = self._sides(call)
        return isinstance(x, Interval) and isinstance(y, Interval)

    def _one_sided(self, call: Call) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
        """The operator in its perturbed arguments (one side, and perhaps the bias), and with
        absolute coefficients."""
        x, y, bias = self._sides(call)

        def absolute(u: Any, v: Any, *rest: Any, **kwargs: Any) -> Tensor:
            if isinstance(x, Interval):
                v = _abs(v)
            elif isinstance(y, Interval):
                u = _abs(u)
            else:  # only the bias moves
                u = torch.zeros_like(u)
            if self.has_bias and not isinstance(bias, Interval):
                rest, kwargs = (None, *rest[1:]), {k: v for k, v in kwargs.items() if k != "bias"}
            return call.node.call((u, v, *rest), kwargs)

        return call.bind(), call.bind(absolute)

    def interval(self, call: Call) -> Interval:
        found = self._by_reach(call)
        if found is not None:
            return found
        if not self.nonlinear(call):
            function, absolute = self._one_sided(call)
            x, y, bias = self._sides(call)
            if self.letters is _elementwise:  # one product each: the ends are those of the interval
                (v,) = call.inputs
                ends = function(v.lower), function(v.upper)
                factor = torch.as_tensor(y if isinstance(x, Interval) else x)
                if not all_finite(factor):  # 1 / 1e-39 is infinite, while x / 1e-39 need not be
                    unknown = torch.isinf(factor)
                    low, up = torch.minimum(*ends), torch.maximum(*ends)
                    return Interval(
                        torch.where(unknown, -torch.inf, low), torch.where(unknown, torch.inf, up)
                    )
                if spares(factor >= 0):
                    return Interval(*ends)
                return Interval(torch.minimum(*ends), torch.maximum(*ends))
            if (
                call.node.op is aten.linear.default
                and isinstance(x, Interval)
                and not isinstance(bias, Interval)
                and is_trained(y)
            ):
                return Interval.around(*interval_linear(*x.ball, y, bias))
            return around(call, function, absolute)
        x, y, bias = self._sides(call)
        function = self._unbiased(call)
        signed = None if self.letters is _elementwise else self._signed(call)
        if signed is not None:
            s, t, times = signed
            low = times(s.lower, t.lower.clamp(min=0)) + times(s.upper, t.lower.clamp(max=0))
            up = times(s.upper, t.upper.clamp(min=0)) + times(s.lower, t.upper.clamp(max=0))
        elif self.letters is not None:
            space, result, (x_letters, y_letters) = self._space(call)
            terms = product(_spread(x, x_letters, space), _spread(y, y_letters, space))
            summed = [i for i, letter in enumerate(space) if letter not in result]
            ends = (terms.lower, terms.upper)
            low, up = (end.sum(summed) if summed else end for end in ends)
        else:
            centre = function(x.centre, y.centre)
            radius = function(x.radius, y.centre.abs() + y.radius) + function(
                x.centre.abs(), y.radius
            )
            low, up = centre - radius, centre + radius
        if bias is not None:
            at = lambda b: self._bias(call)(b) if isinstance(b, Tensor) else 0
            low = low + at(bias.lower if isinstance(bias, Interval) else bias)
            up = up + at(bias.upper if isinstance(bias, Interval) else bias)
        return Interval(low, up)

    def _hull(
        self, call: Call
    ) -> tuple[DualNormInterval, Any, Callable[[Any, Tensor], Tensor]] | None:
        """An argument that is a set smaller than its hull, the other one, and the operator as a
        function of (other, it)."""
        x, y, _ = self._sides(call)
        if (
            self.letters is _elementwise
            or not self.is_plain
            or not (isinstance(x, DualNormInterval) or isinstance(y, DualNormInterval))
        ):
            return None
        function = self._unbiased(call)
        return (
            (y, x, function)
            if isinstance(y, DualNormInterval)
            else (x, y, lambda other, own: function(own, other))
        )

    def _by_reach(self, call: Call) -> Interval | None:
        """With h = c + d for the hull's set and the other side o: o h = o c + o d, and |o d| is at
        most the reach of max |o|."""
        found = self._hull(call)
        if found is None:
            return None
        hull, other, function = found
        middle, radius = other.ball if isinstance(other, Interval) else (other, None)
        centre = function(middle, hull.centre)
        largest = _abs(middle) if radius is None else middle.abs() + radius
        reach = _reach(hull, largest, function)
        reach = reach if radius is None else reach + function(radius, hull.centre.abs())
        bias = self._sides(call)[2]
        if isinstance(bias, Interval):
            centre, reach = (
                centre + self._bias(call)(bias.centre),
                reach + self._bias(call)(bias.radius),
            )
        elif isinstance(bias, Tensor):
            centre = centre + self._bias(call)(bias)
        return Interval.around(centre, reach)

    def relax(self, call: Call) -> Relaxation:
        if not self.nonlinear(call) and not all(v.dtype.is_floating_point for v in call.inputs):
            return constant_lines(self.interval(call), call.inputs)
        if not self.nonlinear(call):
            function, absolute = self._one_sided(call)
            return AffineMap(
                function,
                absolute,
                call.inputs,
                self.facts.transpose_of(call),
                self.facts.constant_of(call),
                windows=lambda: self.facts.window_of(call),
                unbiased=self._linear_part(call),
                per_sample=self._per_sample(call),
            )
        x, y, bias = self._sides(call)
        constant = self._bias(call)(bias) if isinstance(bias, Tensor) else 0
        if self.letters is None or self._hull(call) is not None:
            body = self._centred(call, constant)
        elif (
            self.letters is not _elementwise
            and (signed := self._signed(call)) is not None
            and signed[0] is x
        ):
            body = self._signed_form(call, constant)
        else:
            body = self._planes(call, constant)
        if not isinstance(bias, Interval):
            return body
        of_bias = self.facts.bias_per_sample
        return WithBias(
            body,
            AffineMap(
                self._bias(call),
                None,
                call.inputs[-1:],
                per_sample=None if of_bias is None else lambda rows: [of_bias(rows)],
            ),
        )

    def _per_sample(self, call: Call) -> Callable[[Rows], list[Any]] | None:
        """The transpose of a one-sided call, sample by sample."""
        x, y, bias = self._sides(call)
        parts: list[Callable[[Rows], Any] | None] = []
        if isinstance(x, Interval):
            return None
        if isinstance(y, Interval):
            weight = self.facts.weight_per_sample
            parts.append(None if weight is None else weight(call, x, y.shape))
        if isinstance(bias, Interval):
            parts.append(self.facts.bias_per_sample)
        return (
            None
            if None in parts
            else lambda rows: [part(rows) for part in parts if part is not None]
        )

    def family(self, call: Call) -> SlopeFamily | None:
        """The shares of the two planes below and above, of every product."""
        x, y, bias = self._sides(call)
        if not self.nonlinear(call) or self.letters is None or isinstance(bias, Interval):
            return None
        space, _, (x_letters, y_letters) = self._space(call)
        spread = _spread(x, x_letters, space), _spread(y, y_letters, space)
        shape = torch.broadcast_shapes(spread[0].shape, spread[1].shape)
        start = torch.stack([choice.expand(shape) for choice in chosen_planes(*spread)]).to(x.dtype)
        constant = self._bias(call)(bias) if isinstance(bias, Tensor) else 0
        return SlopeFamily(
            start,
            lambda alphas: self._planes(call, constant, alphas),
            by_row=self.letters is _elementwise,
        )

    def _linear_part(self, call: Call) -> Callable[[Tensor], Tensor] | None:
        """The operator without its constant bias, if one of x and y is all that moves."""
        x, y, bias = self._sides(call)
        if len(call.positions) != 1 or isinstance(bias, Interval):
            return None
        function = self._unbiased(call)
        return (lambda u: function(u, y)) if isinstance(x, Interval) else (lambda v: function(x, v))

    def _unbiased(self, call: Call) -> Callable[..., Tensor]:
        """The operator without its bias, as a function of x and y."""
        (_, _, *rest), kwargs = call.arguments
        if self.has_bias:
            rest, kwargs = [None, *rest[1:]], {k: v for k, v in kwargs.items() if k != "bias"}
        return lambda u, v: call.node.call((u, v, *rest), kwargs)

    def _bias(self, call: Call) -> Callable[[Tensor], Tensor]:
        """The bias as the operator adds it, in the shape of the result."""
        x, y, _ = self._sides(call)
        (_, _, *rest), kwargs = call.arguments
        zero = (
            torch.zeros_like(x.lower if isinstance(x, Interval) else x),
            torch.zeros_like(y.lower if isinstance(y, Interval) else y),
        )
        return lambda b: call.node.call(
            (*zero, b, *rest[1:]), {k: v for k, v in kwargs.items() if k != "bias"}
        )

    def _space(self, call: Call) -> tuple[str, str, tuple[str, str]]:
        assert self.letters is not None
        (x, y, *rest), kwargs = call.arguments
        x_letters, y_letters, result = self.letters(x, y, *rest, **kwargs)
        return (
            "".join(dict.fromkeys(result + x_letters + y_letters)),
            result,
            (x_letters, y_letters),
        )

    def _planes(self, call: Call, constant: Any, alphas: Tensor | None = None) -> Relaxation:
        x, y, _ = self._sides(call)
        space, result, (x_letters, y_letters) = self._space(call)
        lower, upper = mccormick(_spread(x, x_letters, space), _spread(y, y_letters, space), alphas)
        summed = [i for i, letter in enumerate(space) if letter not in result]
        full = lower[2].shape
        if self.letters is not _elementwise:
            bias = [
                (plane[2].sum(summed) if summed else plane[2]) + constant
                for plane in (lower, upper)
            ]
            slopes = [tuple(slope.expand(full) for slope in plane[:2]) for plane in (lower, upper)]
            return Planes(
                space,
                result,
                (x_letters, y_letters),
                slopes[0],
                bias[0],
                slopes[1],
                bias[1],
                (x.shape, y.shape),
            )  # type: ignore[arg-type]
        return Lines(
            lower[:2], lower[2] + constant, upper[:2], upper[2] + constant, (x.shape, y.shape)
        )

    def _signed(
        self, call: Call
    ) -> tuple[Interval, Interval, Callable[[Tensor, Tensor], Tensor]] | None:
        """A side that is not negative, the other one, and the operator as a function of (it, the
        other)."""
        x, y, _ = self._sides(call)
        if not self.is_plain or not all_finite(x.lower, x.upper, y.lower, y.upper):
            return None
        function = self._unbiased(call)
        if bool((x.lower >= 0).all()):
            return x, y, function
        return (y, x, lambda s, t: function(t, s)) if bool((y.lower >= 0).all()) else None

    def _signed_form(self, call: Call, constant: Any) -> Relaxation:
        """For x that is not negative: those planes that ``chosen_planes`` takes then."""
        x, y, _ = self._sides(call)
        function = self._unbiased(call)

        def of_x(end: Tensor) -> AffineMap:
            only = _with_constant(call, 1, end)
            return AffineMap(
                lambda u: function(u, end),
                lambda u: function(u, end.abs()),
                (x,),
                self.facts.transpose_of(only),
                0.0,
            )

        only_y = _with_constant(call, 0, x.lower)
        in_y = AffineMap(
            lambda v: function(x.lower, v),
            lambda v: function(x.lower, v),
            (y,),
            self.facts.transpose_of(only_y),
            0.0,
            per_sample=self._per_sample(only_y),
        )
        biases = [constant - function(x.lower, end) for end in (y.lower, y.upper)]
        return SignedForm(
            of_x(y.lower),
            of_x(y.upper),
            in_y,
            biases[0],
            biases[1],
            lambda: self._planes(call, constant),
        )

    def _centred(self, call: Call, constant: Any) -> Relaxation:
        x, y, _ = self._sides(call)
        function = self._unbiased(call)
        absolute_x = lambda u: function(u, y.centre.abs())
        absolute_y = lambda v: function(x.centre.abs(), v)
        (middle, radius), (centre, spread) = x.ball, y.ball
        only_x, only_y = _with_constant(call, 1, centre), _with_constant(call, 0, middle)
        in_x = AffineMap(
            lambda u: function(u, centre), absolute_x, (x,), self.facts.transpose_of(only_x), 0.0
        )
        in_y = AffineMap(
            lambda v: function(middle, v),
            absolute_y,
            (y,),
            self.facts.transpose_of(only_y),
            0.0,
            per_sample=self._per_sample(only_y),
        )
        found = self._hull(call)
        if found is None:
            slack = function(radius, spread)
        else:
            hull, other, ordered = found
            slack = _reach(hull, other.ball[1], ordered)
        return CentreForm(in_x, in_y, function(middle, centre) - constant, slack)


def _reach(
    hull: DualNormInterval, largest: Any, function: Callable[[Any, Tensor], Tensor]
) -> Tensor:
    """How far products with at most ``largest`` move over the hull's set. Powers are taken of
    shares of the largest of all, so that they do not overflow; where they vanish, the reach that is
    assumed of almost nothing is larger."""
    size = torch.as_tensor(largest, dtype=hull.dtype, device=hull.device).detach()
    scale = (
        size.amax().clamp(min=torch.finfo(hull.dtype).tiny) if size.numel() else size.new_ones(())
    )
    scale = torch.where(torch.isfinite(scale), scale, 1)
    ones = torch.ones_like(hull.lower)
    return scale * hull.reach(lambda q: function((largest / scale) ** q, ones))


def _with_constant(call: Call, place: int, value: Tensor) -> Call:
    """The call with one of its two sides at a constant, the other still perturbed, and no other
    argument perturbed."""
    leaves, kept = list(call.leaves), call.positions[1 - place]
    for k, position in enumerate(call.positions):
        if position != kept:
            leaves[position] = value if k == place else None
    return replace(call, leaves=tuple(leaves), positions=(kept,), names=(call.names[1 - place],))


def _as_numbers(*sides: Any) -> tuple[Any, ...]:
    """The sides, with truth values that are perturbed as the numbers 0 and 1 if one of the sides is
    a number."""
    kind = next(
        (v.dtype for v in sides if isinstance(v, (Interval, Tensor)) and v.dtype.is_floating_point),
        None,
    )
    truth = lambda v: isinstance(v, Interval) and not v.dtype.is_floating_point
    return (
        sides
        if kind is None
        else tuple(Interval(v.lower.to(kind), v.upper.to(kind)) if truth(v) else v for v in sides)
    )


def _abs(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value if value.dtype == torch.bool else value.abs()
    return abs(value)


def _spread(x: Interval, letters: str, space: str) -> Interval:
    """x with its dimensions at the places of its letters in ``space`` and ones elsewhere."""
    order = sorted(range(len(letters)), key=lambda i: space.index(letters[i]))
    shape = [x.shape[letters.index(letter)] if letter in letters else 1 for letter in space]
    return Interval(x.lower.permute(order).reshape(shape), x.upper.permute(order).reshape(shape))


def _elementwise(x: Any, y: Any, *_: Any, **__: Any) -> Letters:
    dims = max(len(x.shape), len(y.shape))
    result = string.ascii_lowercase[:dims]
    return result[dims - len(x.shape) :], result[dims - len(y.shape) :], result


def _matmul(x: Any, y: Any, *_: Any, **__: Any) -> Letters:
    m, n = len(x.shape), len(y.shape)
    batch = string.ascii_lowercase[: max(m, n, 2) - 2]
    row, column = ("y" if m > 1 else ""), ("z" if n > 1 else "")
    left = batch[len(batch) - max(m - 2, 0) :] + row + "x"
    right = batch[len(batch) - max(n - 2, 0) :] + "x" + column
    return left, right, batch + row + column


def _linear(x: Any, y: Any, *_: Any, **__: Any) -> Letters:
    batch = string.ascii_lowercase[: len(x.shape) - 1]
    out = "z" if len(y.shape) > 1 else ""
    return batch + "x", out + "x", batch + out


def _inner(x: Any, y: Any) -> Letters:
    """The last dimensions of both are summed over."""
    left, right = (
        string.ascii_lowercase[: len(x.shape) - 1],
        string.ascii_lowercase[12 : 11 + len(y.shape)],
    )
    return left + "z", right + "z", left + right


def _outer(x: Any, y: Any) -> Letters:
    return "a", "b", "ab"


register(
    aten.mul, aten.multiply,
    rule=Bilinear(
        _elementwise,
        facts=Facts(linear=True, transpose=transposes.multiply, window=windows.multiply),
    ),
)  # fmt: skip
register(
    aten.matmul,
    rule=Bilinear(
        _matmul, facts=Facts(linear=True, transpose=transposes.matmul, window=windows.matmul)
    ),
)
register(
    aten.mm, aten.bmm,
    rule=Bilinear(_matmul, facts=Facts(linear=True, transpose=transposes.matmul)),
)  # fmt: skip
register(aten.mv, aten.dot, rule=Bilinear(_matmul, facts=Facts(linear=True)))
register(aten.inner, rule=Bilinear(_inner, facts=Facts(linear=True)))
register(aten.outer, rule=Bilinear(_outer, facts=Facts(linear=True)))
register(
    aten.linear,
    rule=Bilinear(
        _linear,
        has_bias=True,
        facts=Facts(
            constant=transposes.bias_of(0),
            transpose=transposes.linear,
            window=windows.linear,
            weight_per_sample=per_sample.weight_of_linear,
            bias_per_sample=per_sample.bias_of_linear,
        ),
    ),
)
for dims, op in enumerate((aten.conv1d, aten.conv2d, aten.conv3d), start=1):
    register(
        op,
        rule=Bilinear(
            None,
            has_bias=True,
            facts=Facts(
                constant=transposes.bias_of(dims),
                transpose=transposes.convolution(dims),
                window=windows.convolution(dims),
                weight_per_sample=per_sample.weight_of_convolution(dims) if dims < 3 else None,
                bias_per_sample=per_sample.bias_of_convolution,
            ),
        ),
    )
register(
    aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d, aten.convolution,
    rule=Bilinear(None, has_bias=True),
)  # fmt: skip
