"""Transposes of convolutions: torch's, or plain convolutions of the same effect where these are
faster."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.relaxations.interval import LAST, Interval
from boundlab.rules.registry import Call
from boundlab.rules.settings import each

FEW_CHANNELS = 4, 16
"""Up to how many channels of its argument a convolution with strides is transposed by phases, with
the channels in their usual place and with the channels last."""


def plain(dims: int) -> Callable[..., Tensor]:
    return (F.conv1d, F.conv2d, F.conv3d)[dims - 1]


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

    @staticmethod
    def of(call: Call, dims: int) -> Convolution | None:
        """Of a call on a batch in which only the first argument is perturbed, else None."""
        x = call["input"]
        if not isinstance(x, Interval) or len(call.positions) != 1:
            return None
        if isinstance(call["padding"], str) or len(x.shape) != dims + 2:
            return None
        return Convolution(
            call["weight"],
            each(call["stride"], dims),
            each(call["padding"], dims),
            each(call["dilation"], dims),
            call["groups"],
            x.shape[1:],
        )

    def back(self, rows: Tensor, whole: bool) -> Tensor:
        """The transpose: (rows, channels, *sizes) -> (rows, channels of the argument, *sizes).

        whole: the rows cover the result, and what is returned the argument; else nothing is cut off
        for the padding.
        """
        padding, size = self.padding, list(self.shape[1:])
        if not whole:
            padding, size = [0] * len(padding), self._reach(rows)
        if not self._is_small(rows, size):
            return self._convolve(rows, padding, size)
        units = torch.eye(rows[0].numel(), dtype=rows.dtype, device=rows.device)
        matrix = self._convolve(units.reshape(-1, *rows.shape[1:]), padding, size)
        return (rows.flatten(1) @ matrix.flatten(1)).reshape(-1, *matrix.shape[1:])

    def _reach(self, rows: Tensor) -> list[int]:
        """How many places of the (padded) argument the rows read, in each dimension."""
        kernel = self.weight.shape[2:]
        settings = zip(rows.shape[2:], self.stride, self.dilation, kernel, strict=True)
        return [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in settings]

    def _is_small(self, rows: Tensor, size: list[int]) -> bool:
        """Whether one product with the whole matrix of the transpose is faster than a strided
        convolution, though it multiplies more: in small windows the latter spends its time on
        moving numbers, each as long as about 100 multiplications take."""
        entries, results = rows[0].numel(), self.shape[0] * math.prod(size)
        strided = max(self.stride) > 1 and len(rows) >= 4 * entries
        return strided and entries * results <= 100 * (entries + results)

    def _convolve(self, rows: Tensor, padding: list[int], size: list[int]) -> Tensor:
        """torch's transposed convolutions are slow without a stride and into few channels, by
        factors of 2 to 8; plain ones of the same effect are not."""
        if self.groups == 1 and set(self.stride) == {1}:
            kernel = self.weight.shape[2:]
            settings = zip(self.dilation, kernel, padding, strict=True)
            outer = [d * (k - 1) - pad for d, k, pad in settings]
            if min(outer) >= 0:
                return self._flipped(rows, outer)
        few = self.weight.shape[1] <= FEW_CHANNELS[-1]
        if self.groups == 1 and few and set(self.dilation) == {1}:
            return Phases(self.weight, self.stride).back(rows, padding, size)
        return self._transposed(rows, padding, size)

    def _flipped(self, rows: Tensor, padding: list[int]) -> Tensor:
        """Without a stride: the plain convolution with the weight turned around."""
        weight = self.weight.transpose(0, 1).flip(*range(2, self.weight.dim()))
        return plain(len(padding))(rows, weight, padding=padding, dilation=self.dilation)

    def _transposed(self, rows: Tensor, padding: list[int], size: list[int]) -> Tensor:
        """torch's."""
        settings = zip(self._reach(rows), size, padding, strict=True)
        extra = [want + 2 * pad - have for have, want, pad in settings]
        transposed = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(size) - 1]
        return transposed(
            rows, self.weight, None, self.stride, padding, extra, self.groups, self.dilation
        )


@dataclass(frozen=True, eq=False)
class Phases:
    """The transpose of a convolution with strides by plain ones.

    Output i and kernel entry k of a convolution with stride s read place s i + k. With k = a + s t,
    place s j + a is read by output j - t through entry a + s t: for each phase a a plain
    convolution over t, all of them at once.
    """

    weight: Tensor
    stride: list[int]

    def back(self, rows: Tensor, padding: list[int], size: list[int]) -> Tensor:
        """(rows, channels, *sizes) -> (rows, channels of the argument, *size), of the padded
        argument what begins at ``padding``."""
        last = None
        if self.weight.shape[1] > FEW_CHANNELS[0]:
            last = LAST.get(len(size))
        found = self._convolved(rows, last)
        if last is None and not found.requires_grad:
            return self._in_place(found, padding, size)
        # rebound, so that the phases are gone when what is cut off them is copied
        found = self._interleaved(found, channels_last=last is not None)
        return _cut(found, padding, size)

    def _convolved(self, rows: Tensor, last: torch.memory_format | None) -> Tensor:
        """(rows, channels, *sizes) -> (rows, *phases, channels of the argument, *sizes)."""
        if last is not None:
            rows = rows.contiguous(memory_format=last)
        padding = [t - 1 for t in self._taps]
        found = plain(len(self.stride))(rows, self._weights(), padding=padding)
        return found.reshape(len(rows), *self.stride, self.weight.shape[1], *found.shape[2:])

    @property
    def _taps(self) -> list[int]:
        """How many entries of the kernel a phase has, in each dimension."""
        return [-(-k // s) for k, s in zip(self.weight.shape[2:], self.stride, strict=True)]

    def _weights(self) -> Tensor:
        """The weights of all phases: (phases x channels of the argument, channels, *taps)."""
        dims, taps = len(self.stride), self._taps
        settings = zip(self.weight.shape[2:], self.stride, taps, strict=True)
        missing = [s * t - k for k, s, t in settings]
        pads = [n for count in reversed(missing) for n in (0, count)]
        out, into = self.weight.shape[:2]
        pairs = [n for t, s in zip(taps, self.stride, strict=True) for n in (t, s)]
        split = F.pad(self.weight, pads).reshape(out, into, *pairs)
        over = [2 + 2 * d for d in range(dims)]
        phases = [3 + 2 * d for d in range(dims)]
        return split.flip(over).permute(*phases, 1, 0, *over).reshape(-1, out, *taps)

    def _interleaved(self, found: Tensor, channels_last: bool) -> Tensor:
        """(rows, *phases, channels, *sizes) -> (rows, channels, *sizes times strides)."""
        dims, count = len(self.stride), len(found)
        into, *sizes = found.shape[dims + 1 :]
        wide = [n * s for n, s in zip(sizes, self.stride, strict=True)]
        order = [n for d in range(dims) for n in (dims + 2 + d, 1 + d)]
        if not channels_last:
            return found.permute(0, dims + 1, *order).reshape(count, into, *wide)
        # runs of phases and channels move as a whole
        return found.permute(0, *order, dims + 1).reshape(count, *wide, into).movedim(-1, 1)

    def _in_place(self, found: Tensor, padding: list[int], size: list[int]) -> Tensor:
        """Phases (rows, *phases, channels, *sizes) to where they belong, each in one pass: the same
        as to interleave and to cut, but not for autograd."""
        out = found.new_zeros(len(found), found.shape[len(size) + 1], *size)
        for phase in itertools.product(*map(range, self.stride)):
            part = functools.reduce(lambda part, a: part.select(1, a), phase, found)
            place = out
            for d, (a, s, pad) in enumerate(zip(phase, self.stride, padding, strict=True)):
                # first, first + s, ... are the places s j + a - pad for j from skipped on
                first = (a - pad) % s
                skipped = (first + pad - a) // s
                count = max(0, min(-((first - size[d]) // s), part.shape[d + 2] - skipped))
                part = part.narrow(d + 2, min(skipped, part.shape[d + 2]), count)
                place = place[(slice(None),) * (d + 2) + (slice(first, first + count * s, s),)]
            place.copy_(part)
        return out


def _cut(found: Tensor, padding: list[int], size: list[int]) -> Tensor:
    """(rows, channels, *sizes) -> (rows, channels, *size), from ``padding`` on, with zeros where
    nothing is left."""
    for d, (want, pad) in enumerate(zip(size, padding, strict=True), start=2):
        found = found.narrow(d, pad, min(want, found.shape[d] - pad))
    missing = [want - have for have, want in zip(found.shape[2:], size, strict=True)]
    if not any(missing):
        return found.contiguous()
    return F.pad(found, [n for count in reversed(missing) for n in (0, count)])
