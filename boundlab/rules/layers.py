"""Layers that are compositions: normalisation, attention, pooling by maximum, gates, recurrent
cells."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import CaptureError
from boundlab.rules.compositions import softmax_where
from boundlab.rules.registry import aten, composition
from boundlab.rules.settings import each

# -- normalisation ---------------------------------------------------------------------------------


def _channels(parameter: Tensor, dims: int) -> Tensor:
    return parameter.reshape(-1, *[1] * (dims - 2))


def _batch_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    eps: float,
) -> Tensor:
    """A scale and a shift per channel."""
    scale = torch.rsqrt(variance + eps)
    scale = scale if weight is None else scale * weight
    shift = -mean * scale
    shift = shift if bias is None else shift + bias
    return x * _channels(scale, x.dim()) + _channels(shift, x.dim())


def _batch_statistics(x: Tensor) -> tuple[Tensor, Tensor]:
    """Of the clean batch: constants for the perturbation, but functions of the parameters that
    gradients flow through."""
    mean, variance = torch.ops.boundlab.moments(torch.ops.boundlab.clean(x)).unbind(0)
    return mean, variance


@composition(aten._native_batch_norm_legit_no_training.default)
def batch_norm_eval(
    x: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        _batch_norm(x, weight, bias, running_mean, running_var, eps),
        x.new_zeros(0),
        x.new_zeros(0),
    )


@composition(aten._native_batch_norm_legit_functional.default)
def batch_norm_train(
    x: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    mean, variance = _batch_statistics(x) if training else (running_mean, running_var)
    return (
        _batch_norm(x, weight, bias, mean, variance, eps),
        mean,
        variance,
        running_mean,
        running_var,
    )


@composition(aten._native_batch_norm_legit.no_stats)
def batch_norm_no_stats(
    x: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    mean, variance = _batch_statistics(x)
    return _batch_norm(x, weight, bias, mean, variance, eps), mean, torch.rsqrt(variance + eps)


@composition(aten.batch_norm.default)
def batch_norm(
    x: Tensor,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    mean, variance = (
        _batch_statistics(x) if training or running_mean is None else (running_mean, running_var)
    )
    return _batch_norm(x, weight, bias, mean, variance, eps)


def _normalised(x: Tensor, dims: Sequence[int], eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps). No entry of a vector of n entries with mean 0 and mean square 1
    exceeds sqrt(n - 1), whatever x is."""
    count = math.prod(x.shape[d] for d in dims)
    centred = x - x.mean(tuple(dims), True)
    variance = (centred**2).mean(tuple(dims), True)
    limit = math.sqrt(max(count - 1, 0))
    return torch.ops.boundlab.within(centred * torch.rsqrt(variance + eps), -limit, limit)


@composition(aten.layer_norm.default)
def layer_norm(
    x: Tensor,
    shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    result = _normalised(x, [x.dim() - len(shape) + i for i in range(len(shape))], eps)
    result = result if weight is None else result * weight
    return result if bias is None else result + bias


@composition(aten.rms_norm.default)
def rms_norm(
    x: Tensor, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    dims = tuple(x.dim() - len(shape) + i for i in range(len(shape)))
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    limit = math.sqrt(math.prod(x.shape[d] for d in dims))
    result = torch.ops.boundlab.within(
        x * torch.rsqrt((x**2).mean(dims, True) + eps), -limit, limit
    )
    return result if weight is None else result * weight


@composition(aten.group_norm.default)
def group_norm(
    x: Tensor,
    groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Tensor:
    split = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    result = _normalised(split, range(2, split.dim()), eps).reshape(x.shape)
    result = result if weight is None else result * _channels(weight, x.dim())
    return result if bias is None else result + _channels(bias, x.dim())


@composition(aten.instance_norm.default)
def instance_norm(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    if not use_input_stats:
        return batch_norm(
            x, weight, bias, running_mean, running_var, False, momentum, eps, cudnn_enabled
        )
    result = _normalised(x, range(2, x.dim()), eps)
    result = result if weight is None else result * _channels(weight, x.dim())
    return result if bias is None else result + _channels(bias, x.dim())


# -- attention and gates ---------------------------------------------------------------------------


@composition(aten.scaled_dot_product_attention.default)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout_p:
        raise CaptureError(
            "attention with dropout is random: put the model in eval mode before capturing it"
        )
    if enable_gqa:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.matmul(query * scale, key.transpose(-1, -2))
    if is_causal:
        allowed = torch.ones(
            query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device
        ).tril()
        scores = torch.where(
            allowed, scores, torch.full((), -math.inf, dtype=scores.dtype, device=query.device)
        )
    if attn_mask is None:
        return torch.matmul(torch.softmax(scores, -1), value)
    if attn_mask.dtype != torch.bool:
        return torch.matmul(softmax_where(scores + attn_mask, attn_mask != -math.inf, -1), value)
    return torch.matmul(softmax_where(scores, attn_mask, -1), value)


@composition(aten.glu.default)
def glu(x: Tensor, dim: int = -1) -> Tensor:
    half = x.shape[dim] // 2
    return x.narrow(dim, 0, half) * torch.sigmoid(x.narrow(dim, half, half))


# -- pooling by maximum ----------------------------------------------------------------------------


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


# -- recurrent cells -------------------------------------------------------------------------------


def _gates(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None, b_hh: Tensor | None
) -> tuple[Tensor, Tensor]:
    return torch.nn.functional.linear(x, w_ih, b_ih), torch.nn.functional.linear(h, w_hh, b_hh)


@composition(aten.lstm_cell.default)
def lstm_cell(
    x: Tensor, hx: Sequence[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> tuple[Tensor, Tensor]:
    h, c = hx
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = (a + b).chunk(4, -1)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@composition(aten.gru_cell.default)
def gru_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    (ar, az, an), (br, bz, bn) = a.chunk(3, -1), b.chunk(3, -1)
    z = torch.sigmoid(az + bz)
    n = torch.tanh(an + torch.sigmoid(ar + br) * bn)
    return n + z * (h - n)


@composition(aten.rnn_tanh_cell.default)
def rnn_tanh_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    return torch.tanh(a + b)


@composition(aten.rnn_relu_cell.default)
def rnn_relu_cell(
    x: Tensor, h: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None
) -> Tensor:
    a, b = _gates(x, h, w_ih, w_hh, b_ih, b_hh)
    return torch.relu(a + b)
