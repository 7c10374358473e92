"""Pooling by maximum."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition
from boundlab.rules.settings import Each, each

Windows = tuple[Tensor, Tensor, bool]
"""Along one dimension: the entries that each output reads (outputs, entries), which of them count,
whether all do."""


@dataclass(frozen=True)
class Along:
    """Max pooling along one dimension of ``size`` entries."""

    size: int
    kernel: int
    stride: int
    padding: int
    dilation: int
    ceil_mode: bool

    @property
    def outputs(self) -> int:
        reach = self.size + 2 * self.padding - self.dilation * (self.kernel - 1) - 1
        if not self.ceil_mode:
            return reach // self.stride + 1
        count = -(-reach // self.stride) + 1
        # a last window that starts in the right padding is dropped
        if (count - 1) * self.stride >= self.size + self.padding:
            return count - 1
        return count

    def windows(self, device: torch.device) -> Windows:
        """Entries in the padding do not count."""
        count, reach = self.outputs, self.dilation * (self.kernel - 1)
        start = torch.arange(count, device=device) * self.stride - self.padding
        index = start.unsqueeze(1) + torch.arange(self.kernel, device=device) * self.dilation
        complete = self.padding == 0 and (count - 1) * self.stride + reach < self.size
        inside = (index >= 0) & (index < self.size)
        return index.clamp(0, self.size - 1), inside, complete


def _largest(x: Tensor, windows: list[Windows]) -> Tensor:
    """The largest entry of each window over the last dimensions. Entries that do not count become
    -inf, which has no slope."""
    dims = len(windows)
    index, inside = windows[0][:2]  # (*outputs, entries), for one dimension more each time
    for d, (more, counts, _) in enumerate(windows[1:], start=1):
        outputs, entries = index.shape[:-1], index.shape[-1]
        wide = (*outputs, more.shape[0], entries, more.shape[1])
        index = index.reshape(*outputs, 1, entries, 1) * x.shape[d - dims] + more.unsqueeze(1)
        index = index.expand(wide).flatten(-2)
        inside = inside.reshape(*outputs, 1, entries, 1) & counts.unsqueeze(1)
        inside = inside.expand(wide).flatten(-2)
    flat = x.flatten(-dims)
    gathered = torch.index_select(flat, flat.dim() - 1, index.flatten())
    gathered = gathered.reshape(*x.shape[:-dims], *index.shape)
    if not all(complete for _, _, complete in windows):
        nothing = torch.full((), -math.inf, dtype=x.dtype, device=x.device)
        gathered = torch.where(inside, gathered, nothing)
    return torch.amax(gathered, (-1,))


# -- windows of one size ---------------------------------------------------------------------------


def max_pool(dims: int) -> Callable[..., Tensor]:
    """Max pooling over the last ``dims`` dimensions."""

    def pool(
        x: Tensor,
        kernel: Each,
        stride: Each = (),
        padding: Each = 0,
        dilation: Each = 1,
        ceil_mode: bool = False,
    ) -> Tensor:
        if stride in ([], (), None):
            stride = kernel
        sizes = [int(n) for n in x.shape[-dims:]]
        settings = zip(
            sizes,
            each(kernel, dims),
            each(stride, dims),
            each(padding, dims),
            each(dilation, dims),
            strict=True,
        )
        return _largest(x, [Along(*along, ceil_mode).windows(x.device) for along in settings])

    return pool


for dims, op in enumerate((aten.max_pool1d, aten.max_pool2d, aten.max_pool3d), start=1):
    composition(op.default)(max_pool(dims))


# -- a given number of windows ---------------------------------------------------------------------


def adaptive_max_pool(dims: int) -> Callable[..., tuple[Tensor, Tensor]]:
    """Max pooling over the last ``dims`` dimensions to sizes that are given; None: as many as there
    are. The indices are not returned."""

    def pool(x: Tensor, output_size: Each) -> tuple[Tensor, Tensor]:
        windows = []
        for size, wanted in zip(x.shape[-dims:], each(output_size, dims), strict=True):
            count = int(size)
            if wanted is not None:
                count = int(wanted)
            windows.append(_adaptive_windows(int(size), count, x.device))
        return _largest(x, windows), torch.zeros(0, dtype=torch.long, device=x.device)

    return pool


def _adaptive_windows(size: int, n: int, device: torch.device) -> Windows:
    """Window i of n outputs over size s reads [floor(i s / n), ceil((i + 1) s / n))."""
    lengths = [-(-(i + 1) * size // n) - i * size // n for i in range(n)]
    start = torch.arange(n, device=device) * size // n
    stop = (torch.arange(1, n + 1, device=device) * size + n - 1) // n
    index = start.unsqueeze(1) + torch.arange(max(lengths), device=device)
    return index.clamp(max=size - 1), index < stop.unsqueeze(1), len(set(lengths)) == 1


ADAPTIVE = aten.adaptive_max_pool1d, aten.adaptive_max_pool2d, aten.adaptive_max_pool3d
for dims, op in enumerate(ADAPTIVE, start=1):
    composition(op.default)(adaptive_max_pool(dims))
