"""Elementwise functions of one perturbed argument: a table of shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from boundlab.graph.graph import Operator
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules import curves
from boundlab.rules.curves import Curve
from boundlab.rules.registry import Call, Rule, SlopeFamily, aten, register, smooth_abs
from boundlab.rules.touching import Touching


@dataclass(frozen=True, eq=False)
class Elementwise(Rule):
    """An elementwise operator, perturbed in its first argument; ``curve`` gives its shape from the
    other arguments."""

    curve: Callable[..., Curve]
    kind: str = "elementwise"

    def _shape(self, call: Call) -> Curve:
        """The curve for the arguments behind the first."""
        (_, *rest), kwargs = call.arguments
        return self.curve(*rest, **kwargs)

    def _curve(self, call: Call) -> Curve:
        """The curve, for intervals that lie in its domain; others are refused."""
        curve = self._shape(call)
        if curve.domain is not None:
            _require_inside(call, *curve.domain)
        return curve

    def interval(self, call: Call) -> Interval:
        return curves.interval(call.bind(), self._curve(call), call.inputs[0])

    def relax(self, call: Call) -> Relaxation:
        x = call.inputs[0]
        (a, b), (c, d) = curves.lines(call.bind(), self._curve(call), x)
        return Lines((a,), b, (c,), d, (x.shape,))

    def family(self, call: Call) -> SlopeFamily:
        """One number for the lower line, one for the upper."""
        (x,) = call.inputs
        f, curve = call.bind(), self._curve(call)
        low_start, low = curves.lower_family(f, curve, x)
        up_start, up = curves.lower_family(lambda t: -f(t), curve.negated(), x)

        def member(alpha: Tensor) -> Lines:
            (a, b), (c, d) = low(alpha[0]), up(alpha[1])
            return Lines((a,), b, (-c,), -d, (x.shape,))

        return SlopeFamily(torch.stack([low_start, up_start]), member)

    def nonlinear(self, call: Call) -> bool:
        return True

    def jumps(self, call: Call) -> bool:
        return bool(self._shape(call).jumps)

    def unstable(self, call: Call) -> Tensor:
        """Inside a linear piece nothing is left to gain."""
        (x,) = call.inputs
        curve = self._shape(call)
        if set(curve.kinds) != {"linear"}:
            return x.lower < x.upper
        mask = torch.zeros(x.shape, dtype=torch.bool, device=x.device)
        for at in (*curve.breaks, *(point for point, _ in curve.jumps)):
            mask |= (x.lower <= at) & (at <= x.upper)
        return mask & (x.lower < x.upper)


def _require_inside(call: Call, low: float, high: float, closed: bool) -> None:
    """Refuse intervals that leave a domain. closed: whether its ends belong to it."""
    x = call.inputs[0]
    inside = (x.lower >= low) & (x.upper <= high)
    domain = f"[{low:g}, {high:g}]"
    if not closed:
        # infinity, where a function goes on for ever, has a value too
        above, below = (x.lower > low) | (low == -math.inf), (x.upper < high) | (high == math.inf)
        inside &= above & below
        domain = f"({low:g}, {high:g})"
    call.require(inside, f"the interval of its argument must lie in {domain}")


def elementwise(*ops: Operator, curve: Curve | Callable[..., Curve]) -> None:
    """Register elementwise operators by the shape of their curve.

    curve: a Curve, or a function that gives one from the operator's arguments after the first.
    """
    if isinstance(curve, Curve):
        register(*ops, rule=Elementwise(lambda *_, **__: curve))
    else:
        register(*ops, rule=Elementwise(curve))


CONVEX, CONCAVE = Curve(("convex",)), Curve(("concave",))
S_REVERSED = Curve(("concave", "convex"), (0.0,))


def s_shaped(f: curves.Function, derivative: curves.Function) -> Curve:
    """Convex below 0, concave above, and point-symmetric about 0."""
    return Curve(
        ("convex", "concave"), (0.0,), derivative=derivative, touching=Touching(f, derivative)
    )


def piecewise_linear(
    *breaks: float, turns: tuple[float, ...] = (), jumps: tuple[tuple[float, float], ...] = ()
) -> Curve:
    return Curve(("linear",) * (len(breaks) + 1), tuple(breaks), turns, jumps)


def _sigmoid_slope(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * torch.sigmoid(-x)


def _erf_slope(x: Tensor) -> Tensor:
    return 2 / math.sqrt(math.pi) * torch.exp(-x * x)


def _asinh_slope(x: Tensor) -> Tensor:
    """1 / sqrt(x^2 + 1), without a square that overflows."""
    return 1 / torch.hypot(x, torch.ones_like(x))


elementwise(aten.tanh, curve=s_shaped(torch.tanh, lambda x: 1 - torch.tanh(x) ** 2))
elementwise(aten.sigmoid, curve=s_shaped(torch.sigmoid, _sigmoid_slope))
elementwise(aten.atan, curve=s_shaped(torch.atan, lambda x: 1 / (1 + x * x)))
elementwise(aten.erf, curve=s_shaped(torch.erf, _erf_slope))
elementwise(aten.asinh, curve=s_shaped(torch.asinh, _asinh_slope))
elementwise(aten.sinh, curve=Curve(("concave", "convex"), (0.0,), derivative=torch.cosh))
elementwise(aten.exp, aten.expm1, curve=Curve(("convex",), derivative=torch.exp))
elementwise(aten.exp2, curve=CONVEX)
elementwise(aten.cosh, curve=Curve(("convex",), turns=(0.0,), derivative=torch.sinh))
elementwise(aten.square, curve=Curve(("convex",), turns=(0.0,), derivative=lambda x: 2 * x))
elementwise(
    aten.log_sigmoid,
    aten.log_sigmoid_forward,
    curve=Curve(("concave",), derivative=lambda x: torch.sigmoid(-x)),
)

POSITIVE = 0.0, math.inf, False
NOT_NEGATIVE = 0.0, math.inf, True


def _sqrt_slope(x: Tensor) -> Tensor:
    return 0.5 * torch.rsqrt(x)


def _rsqrt_slope(x: Tensor) -> Tensor:
    return -0.5 * torch.rsqrt(x) / x


elementwise(aten.log, curve=Curve(("concave",), domain=POSITIVE, derivative=torch.reciprocal))
elementwise(aten.log2, aten.log10, curve=Curve(("concave",), domain=POSITIVE))
elementwise(aten.log1p, curve=Curve(("concave",), domain=(-1.0, math.inf, False)))
elementwise(aten.sqrt, curve=Curve(("concave",), domain=NOT_NEGATIVE, derivative=_sqrt_slope))
elementwise(aten.rsqrt, curve=Curve(("convex",), domain=POSITIVE, derivative=_rsqrt_slope))
elementwise(aten.asin, curve=Curve(("concave", "convex"), (0.0,), domain=(-1.0, 1.0, True)))
elementwise(aten.acos, curve=Curve(("convex", "concave"), (0.0,), domain=(-1.0, 1.0, True)))
elementwise(aten.atanh, curve=Curve(("concave", "convex"), (0.0,), domain=(-1.0, 1.0, False)))
elementwise(aten.acosh, curve=Curve(("concave",), domain=(1.0, math.inf, True)))
elementwise(aten.abs, curve=piecewise_linear(0.0, turns=(0.0,)))
elementwise(aten.relu6, curve=piecewise_linear(0.0, 6.0))
elementwise(aten.hardtanh, curve=lambda low=-1.0, high=1.0: piecewise_linear(low, high))
elementwise(aten.hardsigmoid, curve=piecewise_linear(-3.0, 3.0))
elementwise(
    aten.hardswish, curve=Curve(("linear", "convex", "linear"), (-3.0, 3.0), turns=(-3.0, -1.5))
)
elementwise(aten.softshrink, curve=lambda lambd=0.5: piecewise_linear(-lambd, lambd))


def _hardshrink(lambd: float = 0.5) -> Curve:
    jumps = ((-lambd, 0.0), (-lambd, -lambd), (lambd, 0.0), (lambd, lambd))
    return piecewise_linear(-lambd, lambd, jumps=jumps)


def _threshold(at: float, value: float) -> Curve:
    return piecewise_linear(at, turns=(at,), jumps=((at, value), (at, at)))


elementwise(aten.hardshrink, curve=_hardshrink)
elementwise(aten.threshold, curve=_threshold)
elementwise(aten.sign, aten.sgn, curve=piecewise_linear(0.0, jumps=((0.0, -1.0), (0.0, 1.0))))


def _celu(alpha: float = 1.0) -> Curve:
    if alpha > 0:
        return CONVEX
    return Curve(("concave", "linear"), (0.0,))


elementwise(aten.celu, curve=_celu)
elementwise(aten.clamp_min, curve=lambda low: piecewise_linear(float(low)))
elementwise(aten.clamp_max, curve=lambda high: piecewise_linear(float(high)))


def _clamp(
    low: float | None = None,
    high: float | None = None,
    *,
    min: float | None = None,
    max: float | None = None,
) -> Curve:
    if min is not None:
        low = min
    if max is not None:
        high = max
    if low is not None and high is not None and low > high:  # torch: then the result is high
        return piecewise_linear()
    return piecewise_linear(*[float(end) for end in (low, high) if end is not None])


def _elu(alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Curve:
    # scale * alpha * (exp(input_scale x) - 1) below 0, scale * x above: the slope falls at 0 if
    # alpha * input_scale > 1.
    if scale > 0 and input_scale > 0 and 0 <= alpha * input_scale <= 1:
        return CONVEX
    left = "concave"
    if alpha * scale >= 0:
        left = "convex"
    return Curve((left, "linear"), (0.0,), turns=(0.0,))


def _softplus(beta: float = 1.0, threshold: float = 20.0) -> Curve:
    # Beyond beta x > threshold torch returns x itself, a jump down by log(1 + exp(-threshold)) /
    # beta.
    at, above = threshold / beta, (threshold + math.log1p(math.exp(-threshold))) / beta
    kinds = "linear", "concave"
    if beta > 0:
        kinds = "convex", "linear"
    return Curve(kinds, (at,), turns=(at,), jumps=((at, at), (at, above)))


@dataclass(frozen=True, eq=False)
class Softplus(Elementwise):
    """Plainly convex where the jump is smaller than what rounding does to the value there."""

    def _curve(self, call: Call) -> Curve:
        beta, threshold = call["beta"], call["threshold"]
        kind = torch.finfo(call.inputs[0].dtype)
        small = threshold > 0 and math.exp(-threshold) < kind.eps / 4 * threshold
        # beyond it torch overflows, and comes back at the threshold
        small = small and threshold < math.log(kind.max)
        if beta > 0 and small:
            return CONVEX
        return super()._curve(call)


elementwise(aten.clamp, curve=_clamp)
register(aten.softplus, rule=Softplus(_softplus))
elementwise(aten.elu, curve=_elu)
elementwise(aten.selu, curve=Curve(("convex", "linear"), (0.0,)))


# Concave, convex, concave, with one minimum: the roots of f'' and f', found with 40 digits.
def _dip(
    left: float, right: float, minimum: float, derivative: curves.Function | None = None
) -> Curve:
    return Curve(
        ("concave", "convex", "concave"), (left, right), turns=(minimum,), derivative=derivative
    )


def _gelu_slope(x: Tensor) -> Tensor:
    """Phi(x) + x phi(x) with the normal distribution function and density."""
    return 0.5 * torch.erfc(-x / math.sqrt(2)) + x * torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _silu_slope(x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return s + x * s * torch.sigmoid(-x)


GELU = {
    "none": _dip(-math.sqrt(2.0), math.sqrt(2.0), -0.751791524693564457, _gelu_slope),
    "tanh": _dip(-1.41850400879082836, 1.41850400879082836, -0.752461422071016258),
}
elementwise(aten.gelu, curve=lambda *, approximate="none": GELU[approximate])
elementwise(
    aten.silu,
    curve=_dip(-2.39935728051546767, 2.39935728051546767, -1.2784645427610738, _silu_slope),
)
elementwise(aten.mish, curve=_dip(-2.25637639636079312, 1.49057117948542846, -1.19243121451549521))


DIVISION_BY_ZERO = "division by an interval that contains zero"


@dataclass(frozen=True, eq=False)
class OneSigned(Elementwise):
    """An elementwise operator with a pole at 0 for some arguments: its interval must then not
    contain 0."""

    pole: Callable[..., bool] = lambda *_, **__: True

    def _curve(self, call: Call) -> Curve:
        (_, *rest), kwargs = call.arguments
        if self.pole(*rest, **kwargs):
            x = call.inputs[0]
            call.require((x.lower > 0) | (x.upper < 0), DIVISION_BY_ZERO)
        return super()._curve(call)


@dataclass(frozen=True, eq=False)
class Reciprocal(OneSigned):
    """1 / x. Where it overflows it is larger than all numbers, but not infinite: 1e-40 / 1e-39 is
    read as 1e-40 times it."""

    def interval(self, call: Call) -> Interval:
        found = super().interval(call)
        largest = torch.finfo(call.inputs[0].dtype).max
        return Interval(found.lower.clamp(max=largest), found.upper.clamp(min=-largest))


def _reciprocal() -> Curve:
    return replace(S_REVERSED, derivative=lambda x: -((1 / x) * (1 / x)))


register(aten.reciprocal, rule=Reciprocal(_reciprocal))


# -- functions without an operator of their own ----------------------------------------------------


def softsign(x: Tensor) -> Tensor:
    """x / (1 + |x|): its slope 1 / (1 + |x|)^2 rises up to 0 and falls behind."""
    return x * torch.reciprocal(x.abs() + 1)


def tanhshrink(x: Tensor) -> Tensor:
    """x - tanh(x): its slope tanh(x)^2 falls up to 0 and rises behind."""
    return x - torch.tanh(x)


def _softsign_value(x: Tensor) -> Tensor:
    return x / (1 + x.abs())


def _softsign_slope(x: Tensor) -> Tensor:
    return (1 + x.abs()) ** -2.0


elementwise(
    smooth_abs,
    curve=lambda width, slope: Curve(
        ("convex",), turns=(0.0,), derivative=lambda x: slope * (x / width).clamp(-1, 1)
    ),
)
elementwise(softsign, curve=s_shaped(_softsign_value, _softsign_slope))
elementwise(tanhshrink, curve=replace(S_REVERSED, derivative=lambda x: torch.tanh(x) ** 2))
