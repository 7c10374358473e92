"""The table of rounding errors: a row for each operator.

What is assumed of an operator that is executed, beside rounding to nearest: sums may be taken in
any order and with fused multiply-add, but they are sums of the products that the operator is
defined by (no Winograd or Fourier transforms for convolutions, no Strassen, no TF32); numbers given
as such are rounded to the format of the tensors; functions of one element are no worse than they
are measured here (benchmarks/ulps.py). Operators that are taken apart when a model is captured
(boundlab/rules/compositions/) round where the graph says so: a kernel that does the same at once is
assumed to round no more.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.arithmetic import interpolation
from boundlab.arithmetic.arithmetic import Format, gamma
from boundlab.arithmetic.rows import (
    ANYWHERE,
    NOT_NEGATIVE,
    Cast,
    Derived,
    Exact,
    Pointwise,
    Range,
    Row,
    Sums,
    elements,
    magnitude,
)
from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.graph.graph import Node, Operator, op_name
from boundlab.relaxations.interval import Interval
from boundlab.rules.casts import cut_off
from boundlab.rules.elementwise import softsign, tanhshrink
from boundlab.rules.quantization import limits as limits_of_quantization
from boundlab.rules.quantization import step_size
from boundlab.rules.registry import SHAPE_ONLY, Call, aten, smooth_abs, within
from boundlab.rules.replaced import nan_to_num_of_inputs
from boundlab.rules.settings import each
from boundlab.rules.softmax import softmax_of_numbers

ROWS: dict[object, Row] = {}


def rounds(*ops: Operator, row: Row) -> None:
    """Give operators (overloads, or packets for all overloads) a row; a second one is an error."""
    for op in ops:
        if op in ROWS:
            raise ArgumentError(f"{op_name(op)} already has a row of rounding errors")
        ROWS[op] = row


def find_row(node: Node) -> Row:
    """The row of a node's operator, by overload or by packet."""
    row = ROWS.get(node.op) or ROWS.get(node.packet)
    if row is None:
        raise UnsupportedOperator(
            f"{node}: nothing is known of what the operator {op_name(node.op)} rounds, so that "
            "bounds with arithmetic=... cannot be proved. Leave arithmetic out, or give it a row: "
            "boundlab.arithmetic.rounds(operator, row=...)"
        )
    return row


# -- nothing is rounded ----------------------------------------------------------------------------

rounds(
    aten.view.default, aten.reshape, aten.flatten, aten.unflatten, aten.squeeze, aten.unsqueeze,
    aten._unsafe_view, aten.ravel, aten.atleast_1d, aten.atleast_2d, aten.view_as, aten.reshape_as,
    aten.permute, aten.transpose, aten.t, aten.movedim, aten.swapaxes, aten.numpy_T, aten.mT,
    aten.flip, aten.fliplr, aten.flipud, aten.rot90, aten.roll, aten.diagonal, aten.tensor_split,
    aten.pixel_shuffle, aten.pixel_unshuffle, aten.channel_shuffle, aten.slice, aten.select,
    aten.narrow, aten.unbind, aten.split, aten.split_with_sizes, aten.chunk, aten.expand,
    aten.expand_as, aten.broadcast_to, aten.repeat, aten.repeat_interleave, aten.tile, aten.unfold,
    aten.im2col, aten.diag_embed, aten.tril, aten.triu, aten.cat, aten.stack, aten.concat,
    aten.hstack, aten.vstack, aten.constant_pad_nd, aten.scatter.src, aten.scatter.value,
    aten.index_copy, aten.masked_select, aten.broadcast_tensors, aten.diag, aten.diagonal_scatter,
    aten.pad, aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d,
    aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d, aten._pad_circular,
    aten.dropout, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout,
    aten.clone, aten.contiguous, aten.alias, aten.detach, aten.lift_fresh_copy, aten.positive,
    aten.neg, aten.gather, aten.index, aten.index_select, aten.take, aten.take_along_dim,
    row=Exact(linear=True),
)  # fmt: skip
rounds(aten.where, within, aten.nan_to_num, nan_to_num_of_inputs, row=Exact(linear=True))
rounds(
    aten.gt, aten.greater, aten.ge, aten.greater_equal, aten.lt, aten.less, aten.le,
    aten.less_equal, aten.eq, aten.ne, aten.signbit, aten.logical_and, aten.logical_or,
    aten.bitwise_and, aten.bitwise_or, aten.__and__, aten.__or__, aten.any, aten.all,
    aten.logical_not, aten.bitwise_not, aten.logical_xor, aten.bitwise_xor, aten.__xor__,
    aten.argmax, aten.argmin, aten.amax, aten.sort, aten.bucketize.Tensor,
    aten.searchsorted.Tensor, cut_off,
    row=Exact(),
)  # fmt: skip
rounds(
    aten.relu, aten.abs,
    row=Exact(limits=lambda call: NOT_NEGATIVE),
)  # fmt: skip
rounds(
    aten.sign, aten.sgn, aten.floor, aten.ceil, aten.round.default, aten.trunc, aten.fix,
    aten.hardtanh, aten.clamp, aten.clamp_min, aten.clamp_max, aten.relu6, aten.threshold,
    aten.hardshrink,
    row=Exact(),
)  # fmt: skip
rounds(aten._to_copy, aten.to, aten.type_as, row=Cast())


@dataclass(frozen=True, eq=False)
class Repeated(Exact):
    """Elements copied to where they are nearest. Which ones these are is rounded as well, unless
    sizes are multiples by powers of two."""

    def error(
        self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format
    ) -> Tensor | None:
        sizes = zip(value.shape[2:], elements(call, 0)[2:], strict=True)
        factors = [out / max(given, 1) for out, given in sizes]
        if not all(factor >= 1 and math.log2(factor).is_integer() for factor in factors):
            raise UnsupportedOperator(
                f"{call.node}: where its elements come from is rounded, unless they are repeated "
                "2, 4, 8, ... times; leave arithmetic=... out"
            )
        return None


rounds(
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d,
    aten._upsample_nearest_exact3d,
    row=Repeated(linear=True),
)  # fmt: skip
SOURCES = frozenset(
    (
        *SHAPE_ONLY,
        aten.full.default,
        aten.zeros.default,
        aten.ones.default,
        aten.eye.default,
        aten.eye.m,
        aten.empty.memory_format,
        aten.scalar_tensor.default,
        aten.to_dense.default,
    )
)
"""Operators that make constants, exactly."""
COUNTED = frozenset((aten.arange.default, aten.arange.start, aten.arange.start_step))
"""The same for whole numbers."""


# -- sums of products ------------------------------------------------------------------------------


def _ratio(call: Call, place: int | str = 0) -> int:
    """How many elements of an argument there are for one of the result."""
    result: Tensor = call.node.call(*call.nested([_shaped(leaf) for leaf in call.leaves]))
    return math.ceil(math.prod(elements(call, place)) / max(result.numel(), 1))


def _shaped(leaf: object) -> object:
    """A tensor of the shape of an argument, which takes no memory."""
    value = magnitude(leaf)
    if isinstance(value, Tensor):
        return value.to("meta")
    return value


def _contracted(call: Call) -> int:
    """The length of the inner products of a matrix product."""
    return max(1, elements(call, 0)[-1])


def _along(call: Call) -> int:
    shape = elements(call, 0)
    if not shape:
        return 1
    return shape[call["dim"]]


def _convolved(call: Call) -> int:
    """The products of one element of a convolution."""
    out, *rest = elements(call, "weight")
    return math.prod(rest)


def _spread(call: Call) -> int:
    """Those of one of a transposed convolution, at the most."""
    return math.prod(elements(call, "weight"))


Count = Callable[[Call], int]


def _in_window(dims: int) -> Count:
    def count(call: Call) -> int:
        return math.prod(each(call["kernel_size"], dims)) + 1

    return count


def _in_adaptive_window(dims: int) -> Count:
    def count(call: Call) -> int:
        inside = elements(call, 0)[-dims:]
        sizes = zip(inside, each(call["output_size"], dims), strict=True)
        return math.prod(i // max(o, 1) + 2 for i, o in sizes) + 1

    return count


def _operands(call: Call) -> int:
    """All products of an einsum for one element of its result, at the most."""
    operands = call["tensors"]
    terms = call["equation"].replace(" ", "")
    letters: dict[str, int] = {}
    inputs, _, result = terms.partition("->")
    if "." in inputs:
        return math.prod(math.prod(x.shape) for x in operands)
    for part, x in zip(inputs.split(","), operands, strict=True):
        letters.update(zip(part, x.shape, strict=True))
    return math.prod(size for letter, size in letters.items() if letter not in result)


def _sum_of_magnitudes(x: Tensor, y: Tensor | float, *, alpha: float = 1) -> Tensor:
    return aten.add(_magnitude(x), _magnitude(y), alpha=abs(alpha))


def _magnitude(x: Tensor | float) -> Tensor | float:
    """Absolute values; truth values are their own."""
    if not isinstance(x, Tensor):
        return abs(x)
    return x if x.dtype == torch.bool else x.abs()


def _difference_of_magnitudes(x: Tensor, y: Tensor | float, alpha: float = 1) -> Tensor:
    return aten.add(aten.mul(x.abs(), abs(alpha)), abs(y))


def _differences_of_magnitudes(
    x: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """What n-th differences add up: neighbours, again and again."""
    parts = [part.abs() for part in (prepend, x, append) if part is not None]
    size = torch.cat(parts, dim)
    for _ in range(min(n, size.shape[dim])):
        count = size.shape[dim] - 1
        size = size.narrow(dim, 0, count) + size.narrow(dim, 1, count)
    return size


def _no_number_is_negative(call: Call) -> bool:
    """Whether factors that are given as numbers are not negative."""
    return all(not isinstance(leaf, (int, float)) or leaf >= 0 for leaf in call.leaves)


def _divides_by_positive(call: Call) -> bool:
    """Whether an average is not taken over a negative number of elements."""
    return (call.get("divisor_override") or 1) > 0


ONE = lambda call: 1
TWO = lambda call: 2
ALWAYS = lambda call: True

rounds(aten.add, row=Sums(TWO, _sum_of_magnitudes, _no_number_is_negative))
rounds(aten.sub, row=Sums(TWO, _sum_of_magnitudes))
rounds(aten.rsub, row=Sums(TWO, _difference_of_magnitudes))
rounds(aten.mul, aten.multiply, row=Sums(ONE, rising=_no_number_is_negative))
rounds(aten.linear, row=Sums(lambda call: _contracted(call) + 1, rising=ALWAYS))
rounds(
    aten.matmul, aten.mm, aten.bmm, aten.mv, aten.dot, aten.inner,
    # attention may scale on the way: 4
    row=Sums(lambda call: _contracted(call) + 4, rising=ALWAYS),
)  # fmt: skip
rounds(aten.outer, row=Sums(ONE))
rounds(
    aten.conv1d,
    aten.conv2d,
    aten.conv3d,
    row=Sums(lambda call: _convolved(call) + 1, rising=ALWAYS),
)
rounds(
    aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d, aten.convolution,
    row=Sums(lambda call: _spread(call) + 1),
)  # fmt: skip
rounds(aten.einsum, row=Sums(lambda call: _operands(call) + len(call["tensors"])))
rounds(aten.sum, row=Sums(_ratio, rising=ALWAYS))
rounds(aten.mean, row=Sums(lambda call: _ratio(call) + 2, rising=ALWAYS))
rounds(aten.cumsum, row=Sums(_along, rising=ALWAYS))
rounds(aten.trace, row=Sums(lambda call: max(elements(call, 0))))
for dims, op in enumerate((aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d), start=1):
    rounds(op, row=Sums(_in_window(dims), rising=_divides_by_positive))
for dims, op in enumerate(
    (aten.adaptive_avg_pool1d, aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d), start=1
):
    rounds(op, row=Sums(_in_adaptive_window(dims)))
rounds(aten._adaptive_avg_pool2d, row=Sums(_in_adaptive_window(2)))
rounds(aten._adaptive_avg_pool3d, row=Sums(_in_adaptive_window(3)))
rounds(
    aten.scatter_add, aten.index_put, aten.col2im,
    row=Sums(lambda call: math.prod(elements(call, 0)) + 1),
)  # fmt: skip
rounds(aten.diff, row=Sums(lambda call: call["n"], _differences_of_magnitudes))
for resizing, row in interpolation.ROWS.items():
    rounds(resizing, row=row)


# -- functions of each element ---------------------------------------------------------------------

PROBABILITY: Range = (0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Exponential(Pointwise):
    """alpha (exp(x / beta) - 1) below 0: what is flushed there is multiplied by alpha."""

    def error(self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format) -> Tensor:
        error = super().error(call, value, size, arithmetic)
        factor = math.prod(max(1.0, abs(call.get(name) or 1.0)) for name in ("alpha", "scale"))
        return error + (factor - 1) * self.floor * arithmetic.smallest


@dataclass(frozen=True, eq=False)
class Logit(Pointwise):
    """Clamped to [eps, 1 - eps], of which the latter is rounded: by u, which moves the result by
    u / eps."""

    def error(self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format) -> Tensor:
        error = super().error(call, value, size, arithmetic)
        eps = call.get("eps")
        if eps is None:
            return error
        if not 0 < 4 * arithmetic.unit < eps:
            return torch.full_like(error, torch.inf)
        return error + 4 * arithmetic.unit / eps


rounds(aten.leaky_relu, aten.prelu, row=Pointwise(3))
rounds(aten.hardsigmoid, row=Pointwise(4, of_one=4, limits=PROBABILITY))
rounds(aten.hardswish, row=Pointwise(4, of_argument=4))
rounds(aten.softshrink, row=Pointwise(1, of_argument=2, of_one=0))
rounds(aten.square, row=Pointwise(1, limits=NOT_NEGATIVE))
rounds(aten.sqrt, row=Pointwise(2, limits=NOT_NEGATIVE))
rounds(aten.rsqrt, row=Pointwise(6, limits=NOT_NEGATIVE))
rounds(aten.reciprocal, row=Pointwise(2))
rounds(aten.exp, aten.exp2, row=Pointwise(4, limits=NOT_NEGATIVE))
rounds(aten.expm1, row=Pointwise(4))
rounds(aten.tanh, row=Pointwise(6))
rounds(aten.erf, row=Pointwise(12, of_one=12))  # compiled: a polynomial
rounds(aten.sigmoid, row=Pointwise(8, limits=NOT_NEGATIVE))
rounds(aten.atan, aten.asin, aten.sinh, aten.asinh, aten.atanh, row=Pointwise(6))
rounds(aten.acos, row=Pointwise(6, of_one=4))
rounds(aten.cosh, row=Pointwise(6, limits=NOT_NEGATIVE))
rounds(aten.acosh, row=Pointwise(6))
rounds(aten.log, aten.log2, aten.log10, aten.log1p, row=Pointwise(6))
rounds(aten.log_sigmoid, aten.log_sigmoid_forward, row=Pointwise(8))
rounds(aten.sin, aten.cos, row=Pointwise(6, of_one=2))
rounds(aten.gelu, row=Pointwise(8, of_argument=8))
rounds(aten.silu, row=Pointwise(8, floor=256))  # x exp(x), where exp(x) is flushed
rounds(aten.mish, row=Pointwise(12, floor=256))
rounds(aten.elu, aten.celu, aten.selu, row=Exponential(8, of_argument=4))
rounds(aten.tan, row=Pointwise(6))
rounds(aten.erfc, row=Pointwise(8, limits=NOT_NEGATIVE))
rounds(aten.erfinv, aten.special_entr, row=Pointwise(8))
rounds(aten.logit, row=Logit(8, of_argument=8))
rounds(aten.special_ndtr, row=Pointwise(8, of_one=4, limits=NOT_NEGATIVE))
rounds(aten.special_log_ndtr, row=Pointwise(12, of_argument=12))
rounds(aten.special_ndtri, row=Pointwise(16))
rounds(aten.sinc, aten.lgamma, row=Pointwise(8, of_one=8))
rounds(aten.digamma, row=Pointwise(32, of_one=32))
rounds(aten.atan2, row=Pointwise(8))
rounds(aten.hypot, row=Pointwise(8, limits=NOT_NEGATIVE))
rounds(aten.pow.Scalar, row=Pointwise(10, limits=NOT_NEGATIVE))
rounds(aten.pow.Tensor_Tensor, row=Pointwise(10))
rounds(aten.fmod, row=Exact())
rounds(softsign, row=Pointwise(6))
rounds(tanhshrink, row=Pointwise(2, of_argument=8))
rounds(smooth_abs, row=Pointwise(8, of_argument=4))


def _of_softplus(call: Call) -> Range:
    """log(1 + exp(beta x)) / beta has the sign of beta."""
    if call["beta"] > 0:
        return NOT_NEGATIVE
    return ANYWHERE


@dataclass(frozen=True, eq=False)
class Softplus(Pointwise):
    """beta x is rounded before the exponential is taken of it, unless beta is a power of two: a
    relative error of u |beta x|, below whose 128 results have not underflown in single precision,
    below 1024 in double. What is flushed is divided by beta. Rounded, beta x may also be on the
    other side of the threshold, from which on the result is x itself: by a jump of
    log(1 + exp(-threshold)) / beta."""

    def error(self, call: Call, value: Tensor, size: Tensor | None, arithmetic: Format) -> Tensor:
        error = super().error(call, value, size, arithmetic)
        beta = abs(float(call["beta"]))
        error = error + self._jump(call, beta, arithmetic)
        error = error + max(1 / beta - 1, 0.0) * self.floor * arithmetic.smallest
        if math.frexp(beta)[0] == 0.5:
            return error
        x = magnitude(call.leaves[0])
        assert isinstance(x, Tensor)
        exponent = (beta * x).clamp(max=-2 * math.log(arithmetic.smallest))
        return error + arithmetic.unit * exponent * value.abs()

    def _jump(self, call: Call, beta: float, arithmetic: Format) -> Tensor:
        x, threshold = _known(call), float(call["threshold"])
        ends = x.lower * call["beta"], x.upper * call["beta"]
        aside = 4 * arithmetic.unit * abs(threshold) + arithmetic.smallest
        least, most = torch.minimum(*ends) - aside, torch.maximum(*ends) + aside
        near = (least <= threshold) & (threshold <= most)
        jump = max(-threshold, 0.0) + math.log1p(math.exp(-abs(threshold)))
        return torch.where(near, jump / beta, 0.0)


rounds(aten.softplus, row=Softplus(8, limits=_of_softplus))


def _of_power(call: Call) -> Range:
    exponent = call["exponent"]
    if float(exponent).is_integer() and int(exponent) % 2:
        return ANYWHERE
    return NOT_NEGATIVE


rounds(aten.pow.Tensor_Scalar, row=Pointwise(10, limits=_of_power))


# -- derivations of their own ----------------------------------------------------------------------


def _known(call: Call) -> Interval:
    """What is known of the first argument, which may be a constant."""
    x = call.leaves[0]
    if isinstance(x, Interval):
        return x
    assert isinstance(x, Tensor)
    return Interval(x, x)


def _softmax(call: Call, value: Tensor, arithmetic: Format) -> Tensor:
    """fl(x_j - max) is off by u |x_j - max|, which is a relative error of its exponential; so

        fl(e_j) = e_j (1 + t_j),   |t_j| <= u (D_j + c),   D_j = max - x_j,

    and the sum of n of them is off by gamma(n) and by sum_j y_j t_j <= u (n / e + c), because
    y_j D_j <= exp(-D_j) D_j <= 1 / e. Dividing adds one rounding. What an element loses itself,
    y u D, is therefore at most u / e, however far it may be below the others.
    """
    x = _known(call)
    dim = call["dim"]
    distance = x.upper.amax(dim, keepdim=True) - x.lower
    own = (value * distance).nan_to_num(torch.inf).clamp(max=0.4)
    error = arithmetic.unit * own + gamma(2 * x.shape[dim] + 24, arithmetic.unit) * value
    # the weight of a mask is 0
    return torch.where(torch.isneginf(x.upper), 0, error + 4 * arithmetic.smallest)


rounds(aten._softmax, softmax_of_numbers, row=Derived(_softmax, limits=PROBABILITY))


def _logsumexp(call: Call, value: Tensor, arithmetic: Format) -> Tensor:
    """max + log(sum exp(x_j - max)): the sum has a relative error as in softmax, at least 1 and at
    most n, which is an absolute one of its logarithm; the logarithm and the sum round."""
    x = _known(call)
    count = x.shape.numel() // max(value.numel(), 1)
    largest = torch.where(x.upper.isfinite(), torch.maximum(x.upper.abs(), x.lower.abs()), 0)
    bound = gamma(2 * count + 24, arithmetic.unit) * (1 + math.log(count + 1))
    return bound + 4 * arithmetic.unit * (value.abs() + largest.amax())


rounds(aten.logsumexp, row=Derived(_logsumexp))


def _remainder(call: Call, value: Tensor, arithmetic: Format) -> Tensor:
    """fmod is exact. Where its sign is not that of the divisor, the divisor is added to it: one
    rounding of what is no larger than the divisor."""
    divisor = magnitude(call["other"])
    return torch.as_tensor(divisor, dtype=value.dtype) * arithmetic.unit + torch.zeros_like(value)


rounds(aten.remainder, row=Derived(_remainder))


def _rounded_quotient(call: Call, value: Tensor, arithmetic: Format) -> Tensor:
    """Division that rounds down takes the remainder off first, which is exact, and rounds the
    quotient, which is within a rounding of a whole number, to the nearest one. That is the right
    one where the format has halves; beyond that it is off by two roundings and one. Division that
    rounds towards 0 takes the whole part of a rounded quotient, which may be the next number."""
    if call["rounding_mode"] != "floor":
        raise UnsupportedOperator(
            f"{call.node}: the quotient is rounded before it is cut off, and may be that of the "
            "next whole number; leave arithmetic=... out"
        )
    size = value.abs()
    return torch.where(size * arithmetic.unit < 2.0**-3, 0.0, 4 * arithmetic.unit * size + 2)


rounds(aten.div.Tensor_mode, row=Derived(_rounded_quotient))


def _fake_quantized(call: Call, value: Tensor, arithmetic: Format) -> Tensor:
    """x / s is x times 1 / s, rounded to single precision whatever the format is, and the zero
    point is added: v is off by a few roundings of |v| and of that. The executed function is
    monotone as well, so it leaves the exact one's range by a step at most, and that where v at an
    end is so near to a tie. Lines count on steps, which are off by as much of x."""
    single = 2.0**-24
    x, s, limits = _known(call), step_size(call), limits_of_quantization(call)
    zero = (limits[0] / s).abs() + (limits[1] / s).abs()  # exceeds the zero point
    tie = torch.zeros_like(value, dtype=torch.bool)
    for end in (x.lower, x.upper):
        v = end / s
        aside = (v - v.floor() - 0.5).abs()
        tie |= ~(aside > 8 * single * (v.abs() + zero + 1))
    terms = torch.maximum(x.lower.abs(), x.upper.abs()) + limits[0].abs() + limits[1].abs()
    return torch.where(tie, s, 0) + 8 * single * terms


# not per channel: that kernel takes no numbers of double precision
rounds(aten.fake_quantize_per_tensor_affine, row=Derived(_fake_quantized))
