"""Where the windows of convolutions and pooling lie: pads, sizes of results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.onnx.table import Ints


@dataclass(frozen=True)
class Windows:
    """Windows along each of the axes behind batch and channels. before, after: elements that are
    added to both sides."""

    kernel: Ints
    stride: Ints
    dilation: Ints
    before: Ints
    after: Ints

    @property
    def extent(self) -> Ints:
        """From the first to the last element of a window."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilation, strict=True))

    @property
    def symmetric(self) -> bool:
        return self.before == self.after

    @property
    def padding(self) -> list[int]:
        """What torch.nn.functional.pad takes."""
        sides = zip(reversed(self.before), reversed(self.after), strict=True)
        return [size for pair in sides for size in pair]

    def counts(self, sizes: Sequence[int], ceil: bool) -> Ints:
        """How many windows there are along each axis. ceil: one that sticks out at the end counts,
        unless it begins behind the last element."""
        found = []
        for axis, size in enumerate(sizes):
            room = size + self.before[axis] + self.after[axis] - self.extent[axis]
            step = self.stride[axis]
            count = room // step + 1
            if ceil:
                count = -(-room // step) + 1
                if (count - 1) * step >= size + self.before[axis]:
                    count -= 1
            if count < 1:
                raise ArgumentError(f"windows of {self.extent} do not fit into {tuple(sizes)}")
            found.append(count)
        return tuple(found)

    def filled(self, sizes: Sequence[int], counts: Ints) -> Windows:
        """With as many elements added behind as the windows need."""
        after = tuple(
            max((count - 1) * step + extent - size - before, end)
            for count, step, extent, size, before, end in zip(
                counts, self.stride, self.extent, sizes, self.before, self.after, strict=True
            )
        )
        return replace(self, after=after)


def windows(
    sizes: Sequence[int],
    kernel: Ints,
    strides: Ints | None,
    dilations: Ints | None,
    pads: Ints | None,
    auto_pad: str,
) -> Windows:
    """The windows over an input with these sizes, from the attributes of an operator."""
    axes = len(sizes)
    stride, dilation = strides or (1,) * axes, dilations or (1,) * axes
    if {len(kernel), len(stride), len(dilation)} != {axes}:
        raise ArgumentError(f"its attributes are not for {axes} axes")
    if min(*kernel, *stride, *dilation, 1) < 1:
        raise ArgumentError("kernel, strides and dilations must be positive")
    where = Windows(kernel, stride, dilation, (0,) * axes, (0,) * axes)
    if auto_pad in ("NOTSET", ""):
        return _padded(where, pads or (0,) * (2 * axes))
    if auto_pad == "VALID":
        return where
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise UnsupportedOperator(f"its auto_pad {auto_pad!r} is not known")
    return _same(where, sizes, auto_pad == "SAME_UPPER")


def _padded(where: Windows, pads: Ints) -> Windows:
    """With so many elements added before all axes, and behind them."""
    axes = len(where.kernel)
    if len(pads) != 2 * axes or min(pads, default=0) < 0:
        raise ArgumentError(f"pads {pads} are not two numbers >= 0 for each of {axes} axes")
    return replace(where, before=tuple(pads[:axes]), after=tuple(pads[axes:]))


def _same(where: Windows, sizes: Sequence[int], upper: bool) -> Windows:
    """With as many elements added as leave one window for each stride; an odd one behind if
    ``upper``, else before."""
    less, more = [], []
    for axis, size in enumerate(sizes):
        stride = where.stride[axis]
        total = max((-(-size // stride) - 1) * stride + where.extent[axis] - size, 0)
        less.append(total // 2)
        more.append(total - total // 2)
    if upper:
        return replace(where, before=tuple(less), after=tuple(more))
    return replace(where, before=tuple(more), after=tuple(less))
