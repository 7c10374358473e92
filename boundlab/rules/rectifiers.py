"""The ReLU family, whose lower line has a free slope.

For l < 0 < u: the chord through (l, f(l)) and (u, f(u)) above, and below any line through the
origin with a slope between the two of the function (0 and 1 for ReLU). ``adaptive`` takes the slope
of the side that is longer, which leaves the least area; ``zero`` and ``one`` always the same one;
``same`` that of the upper line.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from boundlab.coefficients.placement import Constant
from boundlab.coefficients.window import Window
from boundlab.errors import UnsupportedOperator
from boundlab.kernels.rectifiers import rectified, rectified_ball, sloped
from boundlab.kernels.reductions import spares
from boundlab.relaxations.interval import Interval, MidRad, laid_out
from boundlab.relaxations.lines import Lines
from boundlab.relaxations.relaxation import ForwardBound, Relaxation, Rows, Terms
from boundlab.rules.registry import Call, Rule, SlopeFamily, aten, register

SLOPES = ("adaptive", "zero", "one", "same")


@dataclass(frozen=True, eq=False)
class Rectified(Relaxation):
    """The lines of a ReLU, with backward mode in the few passes over the memory that training
    needs."""

    x: Interval
    make: Callable[[], Lines]
    plain: bool
    """Whether the first dimension has the samples, and nothing else."""

    @cached_property
    def lines(self) -> Lines:
        return self.make()

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        if self.plain:
            rows = laid_out(rows, self.x)
        if isinstance(self.x, MidRad):
            coefficients, constants = rectified(rows, *self.x.ball, self.plain, True)
        else:
            ends = self.x.lower, self.x.upper
            coefficients, constants = rectified(rows, *ends, self.plain, False)
        return [coefficients], [(constants, None)]

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        return self.lines.backward_window(rows)

    def forward(
        self, lower: Sequence[ForwardBound], upper: Sequence[ForwardBound]
    ) -> tuple[ForwardBound, ForwardBound]:
        return self.lines.forward(lower, upper)


@dataclass(frozen=True, eq=False)
class Adaptive(Lines):
    """The lines of a ReLU of which the lower one has the slope 0 or 1 that is nearer to the
    chord's."""

    @cached_property
    def _slope(self) -> Constant:
        return Constant(self.upper[0])

    @cached_property
    def _bias(self) -> Constant:
        assert self.upper_bias is not None
        return Constant(self.upper_bias)

    def backward_window(self, rows: Window) -> tuple[list[Window], Tensor | float] | None:
        """Slopes are looked up once, as the lower one follows from the chord's."""
        shape = torch.Size((rows.values.shape[1], *rows.places.shape))
        if self.upper_bias is None or self.shapes[0] != shape:
            return None
        slope, negative = rows.take(self._slope), rows.values.clamp(max=0)
        constants = rows.with_values(negative, rows.clean).dot(self._bias)
        coefficients = rows.values.clamp(min=0).mul_(slope.round()).addcmul_(negative, slope)
        return [rows.with_values(coefficients)], constants


@dataclass(frozen=True, eq=False)
class Sloped(Lines):
    """The lines of a ReLU of which the slope of the lower one is chosen by gradient."""

    def backward(self, rows: Rows) -> tuple[list[Rows], Terms]:
        (free,), (slope,) = self.lower, self.upper
        bias = self.upper_bias
        if bias is None or not (free.requires_grad or rows.requires_grad):
            return super().backward(rows)
        coefficients, constants = sloped(rows, free, slope, bias)
        return [coefficients], [(constants, None)]


@dataclass(frozen=True, eq=False)
class Rectifier(Rule):
    """f(x) = x for x >= 0 and s x below, s constant: 0 for relu, a number or a tensor for its leaky
    relatives."""

    kind: str = "elementwise"

    def nonlinear(self, call: Call) -> bool:
        if len(call.positions) > 1 or call.positions[0] > 0:
            raise UnsupportedOperator(
                f"{call.node}: the weight of prelu cannot be perturbed; write relu(x) - weight * "
                "relu(-x)"
            )
        return True

    def unstable(self, call: Call) -> Tensor:
        (x,) = call.inputs
        return (x.lower < 0) & (x.upper > 0)

    def interval(self, call: Call) -> Interval:
        (x,) = call.inputs
        f, s = call.bind(), _negative_slope(call)
        if isinstance(x, MidRad) and _is_zero(s):
            return MidRad(*rectified_ball(*x.ball))
        ends = f(x.lower), f(x.upper)
        if not isinstance(s, Tensor) and s >= 0:
            return Interval(*ends)
        low, up = torch.minimum(*ends), torch.maximum(*ends)
        if not _everywhere(s >= 0):
            crosses = (x.lower < 0) & (x.upper > 0)
            low = torch.where(crosses, low.clamp(max=0), low)
        return Interval(low, up)

    def relax(self, call: Call) -> Relaxation:
        (x,) = call.inputs
        s = _negative_slope(call)
        if call.slopes == "adaptive" and _is_zero(s):
            if not x.requires_grad:
                return self._adaptive(call)
            return Rectified(x, lambda: self._adaptive(call), call.node.layout.plain)
        below = torch.as_tensor(s, dtype=x.dtype, device=x.device)
        match call.slopes:
            case "adaptive":
                longer = (x.upper > -x.lower).to(x.dtype)
                return self._lines(call, torch.addcmul(below, longer, 1 - below))
            case "zero":
                return self._lines(call, below.expand(x.shape))
            case "one":
                return self._lines(call, torch.ones_like(x.lower))
            case _:
                return self._lines(call, None)

    def family(self, call: Call) -> SlopeFamily:
        """The number takes the slope of the free line from that of the one piece to that of the
        other."""
        (x,) = call.inputs
        start, below = (x.upper > -x.lower).to(x.dtype).unsqueeze(0), _negative_slope(call)
        if not _is_zero(below) or x.requires_grad:
            return SlopeFamily(
                start, lambda alpha: self._lines(call, below + alpha.squeeze(0) * (1 - below))
            )
        chord, unstable = self._lines(call, None), self.unstable(call).to(x.dtype)
        decided = chord.upper[0] * (1 - unstable)
        free = lambda alpha: torch.addcmul(decided, alpha.squeeze(0), unstable)
        return SlopeFamily(
            start,
            lambda alpha: Sloped((free(alpha),), None, chord.upper, chord.upper_bias, chord.shapes),
        )

    def _adaptive(self, call: Call) -> Adaptive:
        """The chord's slope lies above 1/2 just where u > -l; of an infinite interval it is not
        known, and 0 is as good as any."""
        chord = self._lines(call, None)
        nearer = chord.upper[0].round().nan_to_num(0)
        return Adaptive((nearer,), None, chord.upper, chord.upper_bias, chord.shapes)

    def _lines(self, call: Call, free: Tensor | None) -> Lines:
        """The lines with a given slope of the free one where it is free; None: that of the
        chord."""
        (x,) = call.inputs
        s = _negative_slope(call)
        if _is_zero(s):
            return _relu_lines(x, free)
        return _leaky_lines(x, s, free)


def _relu_lines(x: Interval, free: Tensor | None) -> Lines:
    """The lines of ReLU; free: as in :meth:`Rectifier._lines`."""
    l, u = x.lower, x.upper
    # With u+ and l- the parts of the ends above and below 0, u+ / (u+ - l-) is the chord's slope, 1
    # or 0 where stable. Where that overflows the slope is larger, up to 1: a line through (l, 0)
    # that is steeper lies above the chord.
    kind = torch.finfo(l.dtype)
    above, below = u.clamp(min=0, max=kind.max), l.clamp(max=0)
    chord_slope = above / (above - below).clamp(min=kind.tiny, max=kind.max)
    free_slope = chord_slope
    if free is not None:
        free_slope = torch.where((l < 0) & (u > 0), free, chord_slope)
    bias = -chord_slope * below
    # a slope of 0 from minus infinity on: the constant u
    if not spares(~torch.isnan(bias.detach().sum())):
        bias = torch.where(torch.isnan(bias), above, bias)
    return Lines((free_slope,), None, (chord_slope,), bias, (x.shape,))


def _leaky_lines(x: Interval, s: Tensor | float, free: Tensor | None) -> Lines:
    """The lines of a leaky ReLU with the slope s below 0; free: as in :meth:`Rectifier._lines`."""
    l, u = x.lower, x.upper
    unstable = (l < 0) & (u > 0)
    # of the width, which may be beyond all numbers
    half = torch.where(unstable, u / 2 - l / 2, 1)
    stable = torch.where(l >= 0, 1.0, torch.as_tensor(s, dtype=l.dtype, device=l.device))
    chord_slope = torch.where(unstable, (u / 2 - s * (l / 2)) / half, stable)
    chord_bias = torch.where(unstable, u * (l / 2 / half) * (s - 1), 0)  # u - slope * u
    free_slope = chord_slope
    if free is not None:
        free_slope = torch.where(unstable, free, stable)
    if _everywhere(s <= 1):
        return Lines((free_slope,), None, (chord_slope,), chord_bias, (x.shape,))
    # Then f is concave: the chord lies below, the free line above.
    zero = torch.zeros_like(l)
    concave = torch.as_tensor(s > 1, device=l.device)
    low_slope = torch.where(concave, chord_slope, free_slope)
    up_slope = torch.where(concave, free_slope, chord_slope)
    low_bias = torch.where(concave, chord_bias, zero)
    up_bias = torch.where(concave, zero, chord_bias)
    return Lines((low_slope,), low_bias, (up_slope,), up_bias, (x.shape,))


def _is_zero(slope: Tensor | float) -> bool:
    """Whether it is the slope of a plain ReLU below 0; tensors, of PReLU, are not asked."""
    return not isinstance(slope, Tensor) and slope == 0


def _everywhere(condition: Tensor | bool) -> bool:
    """Whether a condition on the slope is known to hold for every element."""
    if isinstance(condition, Tensor):
        return spares(condition)
    return condition


def _negative_slope(call: Call) -> Tensor | float:
    """The slope below 0: a number, or a tensor that broadcasts to the argument."""
    if call.node.op is aten.prelu.default:
        weight: Tensor = call["weight"]
        dims = len(call["self"].shape)
        if dims > 1 and weight.numel() > 1:
            return weight.reshape(1, -1, *[1] * (dims - 2))
        return weight.reshape([1] * dims)
    if call.node.op is aten.leaky_relu.default:
        return float(call["negative_slope"])
    return 0.0


register(aten.relu, aten.leaky_relu, aten.prelu, rule=Rectifier())
