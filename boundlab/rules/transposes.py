"""Transposes in closed form of the affine operators that networks spend their time in.

Each function takes the call and returns ``rows -> rows of the only perturbed argument``, or None
where it has nothing to offer and autograd's transpose serves. They are a matter of speed only:
tests compare each with autograd's.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.kernels.trained_linear import is_gathered, rows_linear
from boundlab.relaxations.interval import LAST, Interval, laid_out
from boundlab.relaxations.relaxation import sum_to
from boundlab.rules.facts import Transpose
from boundlab.rules.registry import Call, aten

One = Callable[[Tensor], Tensor]
"""(rows, *shape of the result) -> (rows, *shape) of the only perturbed argument."""


def of_one(make: Callable[[Call], One | None]) -> Callable[[Call], Transpose | None]:
    """Decorator: the transpose of calls with one perturbed argument in the form for any number."""

    @functools.wraps(make)
    def find(call: Call) -> Transpose | None:
        if len(call.positions) != 1:
            return None
        transpose = make(call)
        return None if transpose is None else lambda rows: [transpose(rows)]

    return find


def _split(rows: Tensor, sizes: list[int], dim: int) -> list[Tensor]:
    """Rows and samples as one dimension if they can: then the gradient, a concatenation, keeps
    channels last where they are."""
    if dim < 2:
        return list(rows.split(sizes, dim))
    return [part.unflatten(0, rows.shape[:2]) for part in rows.flatten(0, 1).split(sizes, dim - 1)]


# -- constant terms --------------------------------------------------------------------------------


def bias_of(dims: int) -> Callable[[Call], Tensor | float | None]:
    """The bias of a layer with ``dims`` dimensions behind that of the bias."""

    def find(call: Call) -> Tensor | float | None:
        bias = call["bias"]
        if bias is None:
            return 0.0
        if isinstance(bias, Tensor) and isinstance(call["input"], Interval):
            return bias.reshape(-1, *[1] * dims)
        return None

    return find


def no_constant_parts(call: Call) -> float | None:
    """cat and stack: none if all parts are perturbed."""
    return 0.0 if all(isinstance(part, Interval) for part in call["tensors"]) else None


def summand(sign: int) -> Callable[[Call], Tensor | float | None]:
    """The constant in x + alpha y (sign 1) or x - alpha y, of its own shape, if it is a tensor like
    the other operand."""
    return lambda call: 0.0 if len(call.positions) == 2 else _summand(call, sign)


def _summand(call: Call, sign: int) -> Tensor | None:
    x, y = call["self"], call["other"]
    if isinstance(x, Interval):
        constant, other = y, x
        factor = sign * call["alpha"]
    else:
        constant, other = x, y
        factor = 1
    if not isinstance(constant, Tensor) or constant.dtype != other.dtype:
        return None
    return constant if factor == 1 else factor * constant


# -- transposes ------------------------------------------------------------------------------------


@of_one
def linear(call: Call) -> One | None:
    x, weight = call["input"], call["weight"]
    if (
        isinstance(weight, Interval)
        and isinstance(x, Tensor)
        and len(weight.shape) == 2
        and x.dim() > 1
    ):
        flat = x.flatten(0, -2)
        return lambda rows: torch.matmul(rows.flatten(1, -2).transpose(1, 2), flat)
    if not isinstance(x, Interval) or isinstance(weight, Interval) or weight.dim() != 2:
        return None
    product = rows_linear if is_gathered(weight) else torch.matmul
    return lambda rows: product(rows, weight)


@of_one
def matmul(call: Call) -> One | None:
    """Products of matrices in batches of one shape."""
    x, y = call[0], call[1]
    if len(x.shape) != len(y.shape) or len(x.shape) < 2 or x.shape[:-2] != y.shape[:-2]:
        return None
    if isinstance(x, Interval):
        return lambda rows: torch.matmul(rows, y.transpose(-1, -2))
    return lambda rows: torch.matmul(x.transpose(-1, -2), rows)


@dataclass(frozen=True, eq=False)
class Convolution:
    """The settings of a convolution with a constant weight, and the shape of its argument without
    the batch."""

    weight: Tensor
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int
    shape: torch.Size

    def back(self, rows: Tensor, whole: bool) -> Tensor:
        """The transpose: (rows, channels, *sizes) -> (rows, channels of the argument, *sizes).

        whole: the rows cover the result, and what is returned the argument; else nothing is cut off
        for the padding.
        """
        kernel = self.weight.shape[2:]
        settings = zip(rows.shape[2:], self.stride, self.dilation, kernel, strict=True)
        reach = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in settings]
        padding = self.padding if whole else [0] * len(reach)
        size = list(self.shape[1:]) if whole else reach
        if self._small(rows, size):
            units = torch.eye(rows[0].numel(), dtype=rows.dtype, device=rows.device).reshape(
                -1, *rows.shape[1:]
            )
            matrix = self._convolve(units, reach, padding, size)
            return (rows.flatten(1) @ matrix.flatten(1)).reshape(-1, *matrix.shape[1:])
        return self._convolve(rows, reach, padding, size)

    def _small(self, rows: Tensor, size: list[int]) -> bool:
        """Whether one product with the whole matrix of the transpose is faster than a strided
        convolution, though it multiplies more: in small windows the latter spends its time on
        moving numbers, each as long as about 100 multiplications take."""
        entries, results = rows[0].numel(), self.shape[0] * math.prod(size)
        strided = max(self.stride) > 1 and len(rows) >= 4 * entries
        return strided and entries * results <= 100 * (entries + results)

    def _convolve(
        self, rows: Tensor, reach: list[int], padding: list[int], size: list[int]
    ) -> Tensor:
        kernel = self.weight.shape[2:]
        # torch's transposed convolutions are slow without a stride and into few channels, by
        # factors of 2 to 8; plain ones of the same effect are not
        if set(self.stride) == {1} and self.groups == 1:
            outer = [
                d * (k - 1) - pad for d, k, pad in zip(self.dilation, kernel, padding, strict=True)
            ]
            if min(outer) >= 0:
                flipped = self.weight.transpose(0, 1).flip(*range(2, self.weight.dim()))
                return self._plain(rows, flipped, padding=outer, dilation=self.dilation)
        if (
            self.weight.shape[1] <= FEW_CHANNELS[-1]
            and set(self.dilation) == {1}
            and self.groups == 1
        ):
            return self._by_phases(rows, padding, size)
        extra = [
            want + 2 * pad - have for have, want, pad in zip(reach, size, padding, strict=True)
        ]
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[
            len(self.stride) - 1
        ]
        return transposed(
            rows, self.weight, None, self.stride, padding, extra, self.groups, self.dilation
        )

    @property
    def _plain(self) -> Callable[..., Tensor]:
        return (F.conv1d, F.conv2d, F.conv3d)[len(self.stride) - 1]

    def _by_phases(self, rows: Tensor, padding: list[int], size: list[int]) -> Tensor:
        """Output i and kernel entry k of a convolution with stride s read place s i + k. With k = a
        + s t, place s j + a is read by output j - t through entry a + s t: for each phase a a plain
        convolution over t, all of them at once."""
        dims, kernel = len(self.stride), self.weight.shape[2:]
        taps = [-(-k // s) for k, s in zip(kernel, self.stride, strict=True)]
        pads = [
            n
            for k, s, t in zip(reversed(kernel), reversed(self.stride), reversed(taps), strict=True)
            for n in (0, s * t - k)
        ]
        out, into = self.weight.shape[:2]
        split = F.pad(self.weight, pads).reshape(
            out, into, *[n for t, s in zip(taps, self.stride, strict=True) for n in (t, s)]
        )
        phases, over = [3 + 2 * d for d in range(dims)], [2 + 2 * d for d in range(dims)]
        weight = split.flip(over).permute(*phases, 1, 0, *over).reshape(-1, out, *taps)
        last = LAST.get(dims) if into > FEW_CHANNELS[0] else None
        found = self._plain(
            rows if last is None else rows.contiguous(memory_format=last),
            weight,
            padding=[t - 1 for t in taps],
        )
        wide = [n * s for n, s in zip(found.shape[2:], self.stride, strict=True)]
        found = found.reshape(len(rows), *self.stride, into, *found.shape[2:])
        if last is None and not found.requires_grad:
            return self._in_place(found, padding, size)
        order = [n for d in range(dims) for n in (dims + 2 + d, 1 + d)]
        if last is None:
            found = found.permute(0, dims + 1, *order).reshape(len(rows), into, *wide)
        else:  # with the channels last, runs of phases and channels move as a whole
            found = (
                found.permute(0, *order, dims + 1).reshape(len(rows), *wide, into).movedim(-1, 1)
            )
        for d, (want, pad) in enumerate(zip(size, padding, strict=True)):
            found = found.narrow(d + 2, pad, min(want, wide[d] - pad))
        short = [
            n
            for have, want in zip(found.shape[:1:-1], reversed(size), strict=True)
            for n in (0, want - have)
        ]
        return F.pad(found, short) if any(short) else found.contiguous()

    def _in_place(self, found: Tensor, padding: list[int], size: list[int]) -> Tensor:
        """Phases (rows, *phases, channels, *sizes) to where they belong, each in one pass: the same
        as to interleave and to cut, but not for autograd."""
        out = found.new_zeros(len(found), found.shape[len(size) + 1], *size)
        for phase in itertools.product(*map(range, self.stride)):
            part, place = functools.reduce(lambda part, a: part.select(1, a), phase, found), out
            for d, (a, s, pad) in enumerate(zip(phase, self.stride, padding, strict=True)):
                # the places first, first + s, ... are s j + a - pad for j = skipped, skipped + 1,
                # ...
                first = (a - pad) % s
                skipped = (first + pad - a) // s
                count = max(0, min(-((first - size[d]) // s), part.shape[d + 2] - skipped))
                part = part.narrow(d + 2, min(skipped, part.shape[d + 2]), count)
                place = place[(slice(None),) * (d + 2) + (slice(first, first + count * s, s),)]
            place.copy_(part)
        return out


FEW_CHANNELS = 4, 16
"""Up to how many channels of its argument a convolution with strides is transposed by phases, with
the channels in their usual place and with the channels last."""


def convolution_of(call: Call, dims: int) -> Convolution | None:
    """The convolution of a batch that only its first argument moves."""
    x = call["input"]
    if (
        not isinstance(x, Interval)
        or len(call.positions) != 1
        or isinstance(call["padding"], str)
        or len(x.shape) != dims + 2
    ):
        return None
    return Convolution(
        call["weight"],
        each(call["stride"], dims),
        each(call["padding"], dims),
        each(call["dilation"], dims),
        call["groups"],
        x.shape[1:],
    )


def dimensions(given: int | Sequence[int] | None, count: int) -> list[int]:
    """The dimensions that an argument names, of ``count``, as sorted numbers from 0; None and an
    empty list stand for all of them."""
    if count == 0:
        return []
    if isinstance(given, int):
        given = [given]
    return sorted({d % count for d in given or range(count)})


def windows_apart(dims: int) -> Callable[[Call], bool]:
    """Whether the windows of a pooling over ``dims`` dimensions do not overlap."""

    def apart(call: Call) -> bool:
        kernel = each(call["kernel_size"], dims)
        stride = each(call["stride"] or kernel, dims)
        return all(step >= size for size, step in zip(kernel, stride, strict=True))

    return apart


def each(value: int | Sequence[int], dims: int) -> list[int]:
    """One number for each of ``dims`` dimensions; a single one stands for all of them."""
    if isinstance(value, int):
        return [value] * dims
    return list(value) * dims if len(value) == 1 else list(value)


def convolution(dims: int) -> Callable[[Call], Transpose | None]:
    @of_one
    def make(call: Call) -> One | None:
        setting = convolution_of(call, dims)
        if setting is None:
            return None

        (x,) = call.inputs
        return lambda rows: setting.back(laid_out(rows, x).flatten(0, 1), whole=True).unflatten(
            0, rows.shape[:2]
        )

    return make


@of_one
def reshape(call: Call) -> One | None:
    (x,) = call.inputs
    return lambda rows: rows.reshape(rows.shape[0], *x.shape)


@of_one
def permute(call: Call) -> One | None:
    order = call["dims"]
    inverse = [0] * len(order)
    for i, d in enumerate(order):
        inverse[d % len(order)] = i + 1
    return lambda rows: rows.permute(0, *inverse)


@of_one
def swap(call: Call) -> One | None:
    dims = len(call["self"].shape)
    first, second = call["dim0"] % dims + 1, call["dim1"] % dims + 1
    return lambda rows: rows.transpose(first, second)


@of_one
def broadcast(call: Call) -> One | None:
    (x,) = call.inputs
    return lambda rows: sum_to(rows, x.shape)


def add(sign: int) -> Callable[[Call], Transpose | None]:
    """x + alpha y (sign 1) or x - alpha y."""

    def make(call: Call) -> Transpose | None:
        factors = [1.0] if isinstance(call["self"], Interval) else []
        if isinstance(call["other"], Interval):
            factors.append(sign * call["alpha"])
        parts = [(factor, x.shape) for factor, x in zip(factors, call.inputs, strict=True)]
        return lambda rows: [
            sum_to(rows if factor == 1 else rows * factor, shape) for factor, shape in parts
        ]

    return make


def concatenate(call: Call) -> Transpose | None:
    """cat, if all parts are perturbed: each gets the rows along ``dim`` that it made."""
    parts = call["tensors"]
    if not all(isinstance(part, Interval) for part in parts):
        return None
    dim = call["dim"] % len(parts[0].shape)
    sizes = [part.shape[dim] for part in parts]
    return lambda rows: _split(rows, sizes, dim + 1)


@of_one
def multiply(call: Call) -> One | None:
    x, y = call["self"], call["other"]
    constant = y if isinstance(x, Interval) else x
    shape = call.inputs[0].shape
    return lambda rows: sum_to(rows * constant, shape)


@of_one
def reduce(call: Call) -> One | None:
    """sum and mean: every element that is summed over gets the coefficient of the sum."""
    if call["dtype"] is not None:
        return None
    shape, keep = call["self"].shape, call.get("keepdim", False)
    places = dimensions(call.get("dim"), len(shape))
    count = (
        math.prod(shape[d] for d in places)
        if getattr(call.node.op, "overloadpacket", None) is aten.mean
        else 1
    )

    def transpose(rows: Tensor) -> Tensor:
        for d in () if keep else places:
            rows = rows.unsqueeze(d + 1)
        return (rows if count == 1 else rows / count).expand(len(rows), *shape)

    return transpose


@of_one
def negate(call: Call) -> One | None:
    return lambda rows: -rows


@of_one
def part(call: Call) -> One | None:
    """Operators that keep a run of entries along the dimension ``dim``."""
    x = call["self"]
    dims = len(x.shape)
    dim = call["dim"] % dims
    numbers = torch.arange(x.shape[dim]).reshape([1] * dim + [-1] + [1] * (dims - 1 - dim))
    kept = call.bind()(numbers)
    gone, found = kept.dim() < dims, kept.flatten().tolist()
    if not found or found != list(range(found[0], found[0] + len(found))):
        return None
    around = [0, 0] * (dims - 1 - dim) + [found[0], x.shape[dim] - 1 - found[-1]]
    return lambda rows: F.pad(rows.unsqueeze(dim + 1) if gone else rows, around)


@of_one
def flip(call: Call) -> One | None:
    dims = len(call["self"].shape)
    turned = [d % dims + 1 for d in call["dims"]]
    return lambda rows: rows.flip(turned)
