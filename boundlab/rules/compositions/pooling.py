"""Pooling by maximum."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from boundlab.rules.registry import aten, composition
from boundlab.rules.settings import each

Windows = tuple[Tensor, Tensor, bool]
"""Along one dimension: the entries that each output reads (outputs, entries), which of them count,
whether all do."""


def _windows(
    x: Tensor, size: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool
) -> Windows:
    """The windows of max pooling; entries in the padding do not count."""
    reach = size + 2 * padding - dilation * (kernel - 1) - 1
    count = (-(-reach // stride) if ceil_mode else reach // stride) + 1
    # a last window that starts in the right padding is dropped
    if ceil_mode and (count - 1) * stride >= size + padding:
        count -= 1
    start = torch.arange(count, device=x.device) * stride - padding
    index = start.unsqueeze(1) + torch.arange(kernel, device=x.device) * dilation
    complete = padding == 0 and (count - 1) * stride + dilation * (kernel - 1) < size
    return index.clamp(0, size - 1), (index >= 0) & (index < size), complete


def _max_pool(
    x: Tensor, dims: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Tensor:
    kernel = each(kernel, dims)
    stride = kernel if stride in ([], (), None) else each(stride, dims)
    sizes = [int(n) for n in x.shape[-dims:]]
    specs = zip(sizes, kernel, stride, each(padding, dims), each(dilation, dims), strict=True)
    return _largest(x, [_windows(x, *spec, ceil_mode) for spec in specs])


def _largest(x: Tensor, windows: list[Windows]) -> Tensor:
    """The largest entry of each window over the last dimensions. Entries that do not count become
    -inf, which has no slope."""
    dims = len(windows)
    index, inside = windows[0][:2]  # (*outputs, entries), for one dimension more each time
    for d, (more, counts, _) in enumerate(windows[1:], start=1):
        outputs, entries = index.shape[:-1], index.shape[-1]
        wide = (*outputs, more.shape[0], entries, more.shape[1])
        index = (
            (index.reshape(*outputs, 1, entries, 1) * x.shape[d - dims] + more.unsqueeze(1))
            .expand(wide)
            .flatten(-2)
        )
        inside = (
            (inside.reshape(*outputs, 1, entries, 1) & counts.unsqueeze(1)).expand(wide).flatten(-2)
        )
    flat = x.flatten(-dims)
    gathered = torch.index_select(flat, flat.dim() - 1, index.flatten()).reshape(
        *x.shape[:-dims], *index.shape
    )
    if not all(complete for _, _, complete in windows):
        gathered = torch.where(
            inside, gathered, torch.full((), -math.inf, dtype=x.dtype, device=x.device)
        )
    return torch.amax(gathered, (-1,))


@composition(aten.max_pool1d.default)
def max_pool1d(
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    return _max_pool(x, 1, kernel, stride, padding, dilation, ceil_mode)


@composition(aten.max_pool2d.default)
def max_pool2d(
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    return _max_pool(x, 2, kernel, stride, padding, dilation, ceil_mode)


@composition(aten.max_pool3d.default)
def max_pool3d(
    x: Tensor,
    kernel: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Tensor:
    return _max_pool(x, 3, kernel, stride, padding, dilation, ceil_mode)


def _adaptive_max_pool(x: Tensor, output: Any, dims: int) -> tuple[Tensor, Tensor]:
    """Window i of n outputs over size s reads [floor(i s / n), ceil((i + 1) s / n)). The indices
    are not returned."""
    sizes = [int(n) for n in x.shape[-dims:]]
    outputs = each(output, dims)
    windows = []
    for size, n in zip(
        sizes,
        (size if n is None else int(n) for n, size in zip(outputs, sizes, strict=True)),
        strict=True,
    ):
        lengths = [-(-(i + 1) * size // n) - i * size // n for i in range(n)]
        start = torch.arange(n, device=x.device) * size // n
        stop = (torch.arange(1, n + 1, device=x.device) * size + n - 1) // n
        index = start.unsqueeze(1) + torch.arange(max(lengths), device=x.device)
        windows.append(
            (index.clamp(max=size - 1), index < stop.unsqueeze(1), len(set(lengths)) == 1)
        )
    return _largest(x, windows), torch.zeros(0, dtype=torch.long, device=x.device)


@composition(aten.adaptive_max_pool1d.default)
def adaptive_max_pool1d(x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    return _adaptive_max_pool(x, output_size, 1)


@composition(aten.adaptive_max_pool2d.default)
def adaptive_max_pool2d(x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    return _adaptive_max_pool(x, output_size, 2)


@composition(aten.adaptive_max_pool3d.default)
def adaptive_max_pool3d(x: Tensor, output_size: Any) -> tuple[Tensor, Tensor]:
    return _adaptive_max_pool(x, output_size, 3)
