"""The operators that the soundness tests attack: name -> a small model, its input shape and the range of its inputs.

An entry of a table is a module, a function of x, or a tuple (function of x and constants, constants); a constant is a
tensor, or the shape of a random one. Constants become buffers, so that a case can be asked in any dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BATCH = 12
"""Samples in a batch; each has a centre and a radius of its own."""


class Applied(nn.Module):
    """A function of x and constants as a module that holds the constants."""

    def __init__(self, function: Callable[..., Any], *constants: Tensor | tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        for i, constant in enumerate(constants):
            self.register_buffer(f"constant{i}", constant if isinstance(constant, Tensor) else torch.randn(constant))

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs, *self.buffers())


@dataclass(frozen=True, eq=False)
class Case:
    """model: takes one tensor. shape: of one sample. low, high: where its inputs may lie. alone: it fixes the batch size,
    so it is captured alone. batched: False if its input has no batch dimension."""

    model: nn.Module
    shape: tuple[int, ...]
    low: float = -math.inf
    high: float = math.inf
    alone: bool = False
    batched: bool = True


def _model(entry: Any) -> nn.Module:
    if isinstance(entry, nn.Module):
        return entry.eval()
    function, *constants = entry if isinstance(entry, tuple) else (entry,)
    return Applied(function, *constants)


CASES: dict[str, Case] = {}
ELEMENTWISE: set[str] = set()
"""Names of the cases that act on each element alone: these are also attacked with dense grids."""


def add(
    shape: tuple[int, ...], table: Mapping[str, Any], low: float = -math.inf, high: float = math.inf, *, elementwise: bool = False, **kind: bool
) -> None:
    assert not set(table) & set(CASES), set(table) & set(CASES)
    CASES.update({name: Case(_model(entry), shape, low, high, **kind) for name, entry in table.items()})
    ELEMENTWISE.update(table if elementwise else ())


def on(f: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """The function with these options."""
    return lambda x, *constants: f(x, *constants, **options)


def written(place: Callable[[Tensor, Tensor], None]) -> Callable[[Tensor], Tensor]:
    """A copy of x in which ``place(copy, x)`` writes."""

    def run(x: Tensor) -> Tensor:
        y = x.clone()
        place(y, x)
        return y

    return run


def _assign(index: Any, value: Callable[[Tensor], Any]) -> Callable[[Tensor], Tensor]:
    return written(lambda y, x: y.__setitem__(index, value(x)))


def _attend(**options: Any) -> Callable[..., Tensor]:
    """Attention of x with itself: query, key and value are thirds of the last dimension."""

    def run(x: Tensor, mask: Tensor | None = None) -> Tensor:
        query, key, value = x.chunk(3, -1)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, **options)

    return run


class Cell(nn.Module):
    """Two steps of a recurrent cell over the halves of x."""

    def __init__(self, cell: nn.Module) -> None:
        super().__init__()
        self.cell = cell

    def forward(self, x: Tensor) -> Any:
        first, second = x.chunk(2, 1)
        return self.cell(second, self.cell(first))


class TimeFirst(nn.Module):
    """A recurrent layer that keeps time in dimension 0."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.transpose(0, 1))[0]


class Attention(nn.Module):
    """Self-attention with constant masks."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)
        self.options = options

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False, **self.options)[0]


def halves(f: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor], Any]:
    """A function of two variables, which are the halves of dimension 1 of x."""
    return lambda x: f(*x.chunk(2, 1))


def fill() -> None:
    linear_and_shape()
    elementwise()
    two_variables()
    reductions_and_blocks()
    seldom()


# -- linear and shape --------------------------------------------------------------------------------------------------


def linear_and_shape() -> None:
    mask = torch.tensor([True, False, True, True, False, True])
    indices = torch.tensor([[5, 0, 0], [3, 3, 1]])
    add((6,), {
        "linear": nn.Linear(6, 4),
        "linear without bias": nn.Linear(6, 4, bias=False),
        "matmul": (torch.matmul, (6, 3)),
        "matmul, vector": (torch.matmul, (6,)),
        "matmul, constant left": (lambda x, w: (w @ x.unsqueeze(-1)).squeeze(-1), (3, 6)),
        "mm": (torch.mm, (6, 3)),
        "mv": (lambda x, w: torch.mv(x, w), (6,)),
        "addmm": (lambda x, w, b: torch.addmm(b, x, w), (6, 3), (3,)),
        "addmm, alpha and beta": (lambda x, w, b: torch.addmm(b, x, w, alpha=-2.0, beta=0.5), (6, 3), (3,)),
        "addmm, perturbed bias": (lambda x, w, v: torch.addmm(x, x @ w, v, alpha=0.5, beta=-2.0), (6, 3), (3, 6)),
        "addmv": (lambda x, w: torch.addmv(x[:, 0], x, w, alpha=-2.0, beta=0.5), (6,)),
        "addcmul": (lambda x, w: torch.addcmul(x, x, w, value=-0.5), (6,)),
        "addcdiv": (lambda x, w: torch.addcdiv(x, x, w.abs() + 1, value=-0.5), (6,)),
        "lerp": (lambda x, w: torch.lerp(x, w, 0.3) + torch.lerp(w, x, w.sigmoid()), (6,)),
        "inner": (torch.inner, (4, 6)),
        "linear 1d weight": (F.linear, (6,)),
        "unsqueeze, squeeze": lambda x: x.unsqueeze(1).unsqueeze(-1).squeeze(1).squeeze(-1).unsqueeze(0).squeeze(),
        "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1),
        "expand_as, broadcast_to": (lambda x, w: x.unsqueeze(1).broadcast_to(x.shape[0], 3, 6) - x.unsqueeze(1).expand_as(x.unsqueeze(1)), ()),
        "repeat": lambda x: x.repeat(1, 2),
        "repeat, new dimension": lambda x: x.unsqueeze(1).repeat(1, 2, 2),
        "repeat_interleave": lambda x: x.repeat_interleave(2, 1),
        "repeat_interleave, counts": (lambda x, n: torch.repeat_interleave(x, n, 1, output_size=9), torch.tensor([1, 0, 3, 2, 1, 2])),
        "tile": lambda x: torch.tile(x, (1, 2)) + torch.tile(x, (2,)),
        "cat": (lambda x, w: torch.cat([x, w.expand(x.shape[0], 2), -x[:, :3]], 1), (1, 2)),
        "stack": lambda x: torch.stack([x, 2 * x, -x], 1) + torch.stack([x, -x, x], 2).transpose(1, 2),
        "split": lambda x: x.split(4, 1)[1] - x.split([1, 2, 3], 1)[1],
        "split, all parts": lambda x: x.split([1, 5], 1),
        "chunk": lambda x: torch.cat(x.chunk(4, 1)[::-1], 1),
        "tensor_split": lambda x: x.tensor_split(4, 1)[0] - x.tensor_split((1, 3), dim=1)[1],
        "unbind": lambda x: x.unbind(1)[3] - 2 * x.unbind(1)[0],
        "slice": lambda x: x[:, 1:5] - x[:, -4:],
        "slice with steps": lambda x: x[:, ::2] + x[:, 1::2] - x[:, 0:5:2],
        "select": lambda x: x[:, 2] - x.select(1, -1),
        "narrow": lambda x: x.narrow(1, 2, 3),
        "index, list": lambda x: x[:, [0, 5, 5, 2]],
        "index, tensor": (lambda x, i: x[:, i], indices),
        "index, mask": (lambda x, m: x[:, m], mask),
        "index_select": (lambda x, i: torch.index_select(x, 1, i), torch.tensor([5, 1, 1])),
        "gather": (lambda x, i: torch.gather(x, 1, i.expand(x.shape[0], 3)), torch.tensor([[4, 4, 0]])),
        "scatter": (lambda x, i: torch.zeros_like(x).scatter(1, i.expand(x.shape[0], 3), x[:, :3]), torch.tensor([[4, 2, 0]])),
        "scatter_add": (lambda x, i: x.scatter_add(1, i.expand(x.shape[0], 3), x[:, :3]), torch.tensor([[4, 4, 0]])),
        "scatter, value": (lambda x, i: x.scatter(1, i.expand(x.shape[0], 3), 1.5), torch.tensor([[4, 2, 0]])),
        "index_copy": (lambda x, i: x.index_copy(1, i, -x[:, :2]), torch.tensor([3, 1])),
        "index_add": (lambda x, i: x.index_add(1, i, x[:, :3], alpha=-2), torch.tensor([3, 3, 1])),
        "flip": lambda x: x.flip(1) - torch.fliplr(x) * 2,
        "roll": lambda x: x.roll(2, 1) - x.roll(-1, 1),
        "cumsum": lambda x: x.cumsum(1),
        "diff": lambda x: x.diff(dim=1) + x.diff(n=2, dim=1).sum(1, keepdim=True),
        "sum": lambda x: x.sum(1),
        "sum, keepdim": lambda x: x - x.sum(1, keepdim=True),
        "mean": lambda x: x.mean(1) + x.mean((-1,)),
        "add, sub": (lambda x, w: torch.add(x, w, alpha=-2) - torch.sub(x, w, alpha=0.5) + torch.sub(w, x, alpha=-3) + 1 + (2 - x) * 0.5, (6,)),
        "add to itself": lambda x: torch.add(x, x.flip(1), alpha=-3) + x,
        "rsub": lambda x: torch.rsub(x, 2.0, alpha=3) + torch.rsub(x, x.flip(1), alpha=-0.5) + (1 - x),
        "neg": lambda x: -x,
        "mul": (lambda x, w: x * w * -2.0 + 0.5 * x + torch.multiply(x, w), (6,)),
        "mul, broadcast": (lambda x, w: x.unsqueeze(1) * w, (4, 6)),
        "div": (lambda x, w: x / w + x / -3.0 + torch.true_divide(x, 2), (6,)),
        "einsum": (lambda x, w: torch.einsum("bi,io->bo", x, w), (6, 3)),
        "einsum, three operands": (lambda x, w, v: torch.einsum("bi,io,o->bo", x, w, v), (6, 3), (3,)),
        "einsum, dots": (lambda x, w: torch.einsum("...i,ji->...j", x, w), (3, 6)),
        "diag_embed": lambda x: torch.diag_embed(x[:, :3]),
        "where": (lambda x, m: torch.where(m, x, -2 * x) + torch.where(m, x, 1.5) + torch.where(m, 0.5, x), mask),
        "where, constant tensor": (lambda x, m, w: torch.where(m, w, x), mask, (6,)),
        "masked_fill": (lambda x, m: x.masked_fill(m, 2.5) + x.masked_fill(m, torch.tensor(-1.0).to(x)), mask),
        "masked_fill, infinite": (lambda x, m: torch.softmax(x.masked_fill(m, -math.inf), 1), mask),
        "dropout in eval": lambda x: F.dropout(x, 0.5, False) + F.alpha_dropout(x, 0.5, False),
        "dropout modules": nn.Sequential(nn.Dropout(0.5), nn.AlphaDropout(0.5)),
        "clone, contiguous, detach": lambda x: x.clone().contiguous().detach() + +x,
        "to another dtype": lambda x: x.to(torch.float64).sum(1).to(x.dtype) * 0.5,
        "to another dtype, nonlinear": lambda x: torch.tanh(x.double()).sum(1, keepdim=True).to(x.dtype) * x,
        "type_as": lambda x: x.double().type_as(x),
        "write": _assign((slice(None), 1), lambda t: t[:, 0] * 2),
        "write, constant": _assign((slice(None), 1), lambda t: 3.0),
        "write, slice": _assign((slice(None), slice(1, 5, 2)), lambda t: -t[:, :2]),
        "write, list": _assign((slice(None), [4, 0]), lambda t: t[:, 1:3]),
        "write, mask": (lambda x, m: _assign((slice(None), m), lambda t: -t[:, :4])(x), mask),
        "write, add": written(lambda y, x: y[:, 2:].add_(x[:, :4], alpha=-2)),
        "write, relu": written(lambda y, x: y[:, 2:].relu_()),
        "write, fill": written(lambda y, x: y[:, 2].fill_(0.5)),
        "write, zero": written(lambda y, x: y[:, 2:4].zero_()),
        "write, copy": written(lambda y, x: y.copy_(x.flip(1))),
        "write, mul": written(lambda y, x: y.mul_(2).sub_(1).clamp_(-1, 1)),
        "write, masked_fill": (lambda x, m: x.clone().masked_fill_(m, 0.5), mask),
        "select_scatter": lambda x: torch.select_scatter(x, x[:, 0], 1, 3) + torch.slice_scatter(x, -x[:, :2], 1, 1, 3),
    })  # fmt: skip
    add((2, 3), {
        "linear, three dimensions": nn.Linear(3, 4),
        "bmm": (lambda x, w: torch.bmm(x, w.expand(x.shape[0], 3, 2)), (1, 3, 2)),
        "bmm, constant left": (lambda x, w: torch.bmm(w.expand(x.shape[0], 4, 2), x), (1, 4, 2)),
        "baddbmm": (lambda x, w: torch.baddbmm(x, x, w.expand(x.shape[0], 3, 3), alpha=-0.5, beta=2.0), (1, 3, 3)),
        "matmul, batched constant": (lambda x, w: w @ x.unsqueeze(1), (4, 3, 2)),
        "view": lambda x: x.view(x.shape[0], 6) - x.view(-1, 6),
        "reshape": lambda x: x.reshape(-1, 3, 2) + x.reshape(x.shape[0], 1, 6)[..., :2],
        "reshape, batch merged": lambda x: x.reshape(-1, 3).cumsum(1),
        "flatten, unflatten": lambda x: x.flatten(1).unflatten(1, (3, 2)) + x.flatten(1).unflatten(-1, (3, -1)),
        "flatten, all": lambda x: x.flatten(),
        "permute": lambda x: x.permute(0, 2, 1),
        "permute, batch moved": lambda x: torch.relu(x.permute(2, 0, 1)).permute(1, 2, 0),
        "batch last in the output": lambda x: x.permute(1, 2, 0),
        "transpose": lambda x: x.transpose(-1, 1) + x.mT + x.swapaxes(1, 2) + x.movedim(1, 2),
        "index, two tensors": (lambda x, i: x[:, i, [0, 2]], torch.tensor([1, 0])),
        "index, none": lambda x: x[:, None, 1, ..., 1:],
        "flip, two dimensions": lambda x: x.flip(1, 2) - x.flip((-1,)),
        "roll, two dimensions": lambda x: x.roll((1, -1), (1, 2)),
        "rot90": lambda x: torch.rot90(x, 1, (1, 2)),
        "sum, several dimensions": lambda x: x.sum((1, 2)) + x.sum((-1, 1), keepdim=True).flatten() + x.flatten(1).sum(-1),
        "mean, several dimensions": lambda x: x.mean((1, 2), keepdim=True) - x,
        "cumsum, reversed dimension": lambda x: x.cumsum(-2),
        "einsum, one variable": (lambda x, w: torch.einsum("bij,kj->bik", x, w), (4, 3)),
        "einsum, sums": (lambda x, w: torch.einsum("bij,i->b", x, w), (2,)),
        "einsum, transpose": lambda x: torch.einsum("bij->bji", x),
        "diagonal": lambda x: x.diagonal(0, 1, 2) + x.diagonal(1, 1, 2),
        "einsum, diagonal": lambda x: torch.einsum("bii->bi", x[:, :, :2]),
        "tril, triu": lambda x: x.tril() - 2 * x.triu(1) + x.tril(-1),
        "circular write": written(lambda y, x: y[:, 0].copy_(x[:, 1])),
        "unfold": lambda x: x.unfold(2, 2, 1),
        "take": (lambda x, w: x.flatten(1)[:, [1, 1]] + w, (2,)),
        "hstack": lambda x: torch.hstack([x, -x]) + torch.concat([-x, x], 1),
    })  # fmt: skip
    add((2, 7), {
        f"conv1d, {name}": nn.Conv1d(2, 4, 3, **options) for name, options in {
            "plain": {}, "stride": {"stride": 2}, "padding": {"padding": 2}, "dilation": {"dilation": 3}, "depthwise": {"groups": 2},
            "same": {"padding": "same", "dilation": 2}, "valid": {"padding": "valid"}, "reflect": {"padding": 2, "padding_mode": "reflect"},
            "replicate": {"padding": 2, "padding_mode": "replicate"}, "circular": {"padding": 2, "padding_mode": "circular"},
            "no bias": {"bias": False},
        }.items()
    } | {
        "conv_transpose1d": nn.ConvTranspose1d(2, 3, 3, stride=3, padding=1, output_padding=2, dilation=2),
        "avg_pool1d": nn.AvgPool1d(3, 2, 1),
        "avg_pool1d, ceil_mode": nn.AvgPool1d(2, 2, 1, ceil_mode=True, count_include_pad=False),
        "adaptive_avg_pool1d": nn.AdaptiveAvgPool1d(3),
        "pad, constant": lambda x: F.pad(x, (1, 2), value=-1.5) + F.pad(x, (3, 0)),
        "pad, reflect": lambda x: F.pad(x, (3, 2), mode="reflect"),
        "pad, replicate": lambda x: F.pad(x, (3, 2), mode="replicate"),
        "pad, circular": lambda x: F.pad(x, (3, 2), mode="circular"),
        "pad, negative": lambda x: F.pad(x, (-1, 2), value=0.5),
        "pad, infinite": lambda x: F.max_pool1d(F.pad(x, (1, 1), value=-100.0), 3, 1),
        "upsample, nearest 1d": nn.Upsample(scale_factor=2, mode="nearest"),
        "upsample, nearest-exact 1d": nn.Upsample(size=10, mode="nearest-exact"),
        "upsample, linear": nn.Upsample(size=10, mode="linear"),
        "upsample, linear aligned": nn.Upsample(size=10, mode="linear", align_corners=True),
        "batch_norm 1d": _normalised_batch(nn.BatchNorm1d(2)),
    })  # fmt: skip
    convolutions = {
        "plain": {}, "stride": {"stride": (2, 1)}, "padding": {"padding": (1, 2)}, "dilation": {"dilation": 2}, "depthwise": {"groups": 2},
        "dilated depthwise": {"groups": 2, "dilation": 2, "padding": 2, "stride": 2}, "same": {"padding": "same"},
        "reflect": {"padding": 1, "padding_mode": "reflect"}, "replicate": {"padding": (0, 2), "padding_mode": "replicate"},
        "circular": {"padding": 1, "padding_mode": "circular", "stride": 2},
    }  # fmt: skip
    add((2, 5, 5), {
        f"conv2d, {name}": nn.Conv2d(2, 4, (3, 2), **options) for name, options in convolutions.items()
    } | {
        "conv_transpose2d": nn.ConvTranspose2d(2, 2, 2),
        "conv_transpose2d, attributes": nn.ConvTranspose2d(2, 4, 2, stride=2, padding=1, output_padding=1, groups=2, dilation=2),
        "batch_norm 2d": _normalised_batch(nn.BatchNorm2d(2)),
        "batch_norm 2d, not affine": _normalised_batch(nn.BatchNorm2d(2, affine=False)),
        "avg_pool2d": nn.AvgPool2d(2),
        "avg_pool2d, padding": nn.AvgPool2d((3, 2), (2, 1), 1),
        "avg_pool2d, count_include_pad": nn.AvgPool2d(3, 2, 1, count_include_pad=False),
        "avg_pool2d, ceil_mode": nn.AvgPool2d(2, 2, ceil_mode=True),
        "avg_pool2d, ceil_mode and padding": nn.AvgPool2d(3, 3, 1, ceil_mode=True, count_include_pad=False),
        "avg_pool2d, divisor": nn.AvgPool2d(2, divisor_override=3),
        "adaptive_avg_pool2d": nn.AdaptiveAvgPool2d((2, 3)),
        "adaptive_avg_pool2d, global": nn.AdaptiveAvgPool2d(1),
        "adaptive_avg_pool2d, none": nn.AdaptiveAvgPool2d((None, 2)),
        "pad 2d": lambda x: F.pad(x, (1, 0, 2, 1), value=2.0),
        "pad 2d, reflect": nn.ReflectionPad2d((1, 2, 0, 1)),
        "pad 2d, replicate": nn.ReplicationPad2d((1, 2, 0, 1)),
        "pad 2d, circular": nn.CircularPad2d((1, 2, 0, 1)),
        "pad 2d, channels": lambda x: F.pad(x, (0, 0, 0, 0, 1, 1), value=-1.0),
        "pad 2d, zero": nn.ZeroPad2d(1),
        "upsample, nearest": nn.Upsample(scale_factor=2),
        "upsample, nearest-exact": nn.Upsample(size=(7, 4), mode="nearest-exact"),
        "upsample, bilinear": nn.Upsample(size=(7, 4), mode="bilinear"),
        "upsample, bilinear aligned": nn.Upsample(scale_factor=1.5, mode="bilinear", align_corners=True),
        "upsample, bicubic": nn.Upsample(size=(7, 4), mode="bicubic"),
        "upsample, bicubic aligned": nn.Upsample(size=(4, 7), mode="bicubic", align_corners=True),
        "unfold 2d": nn.Unfold((2, 3), dilation=2, padding=1, stride=2),
        "fold 2d": nn.Sequential(nn.Unfold((2, 2)), nn.Fold((5, 5), (2, 2))),
    })  # fmt: skip
    add((4, 2, 2), {
        "pixel_shuffle": nn.PixelShuffle(2),
        "pixel_unshuffle": nn.PixelUnshuffle(2),
        "channel_shuffle": nn.ChannelShuffle(2),
        "dropout2d in eval": nn.Dropout2d(0.5),
        "conv2d, 1x1": nn.Conv2d(4, 2, 1),
        "flatten, linear": nn.Sequential(nn.Flatten(), nn.Linear(16, 2)),
    })  # fmt: skip
    add((2, 3, 3, 3), {
        "conv3d": nn.Conv3d(2, 2, (2, 1, 2), stride=(1, 2, 1), padding=(1, 0, 0), dilation=(2, 1, 1), groups=2),
        "conv3d, same": nn.Conv3d(2, 1, 3, padding="same"),
        "conv3d, circular": nn.Conv3d(2, 1, 2, padding=1, padding_mode="circular", stride=2),
        "conv3d, replicate": nn.Conv3d(2, 1, 2, padding=1, padding_mode="replicate", stride=2),
        "conv3d, reflect": nn.Conv3d(2, 1, 2, padding=1, padding_mode="reflect", stride=2),
        "conv_transpose3d": nn.ConvTranspose3d(2, 1, 2, stride=2, output_padding=1, padding=1),
        "avg_pool3d": nn.AvgPool3d(2, 2, 1, ceil_mode=True, count_include_pad=False),
        "avg_pool3d, divisor": nn.AvgPool3d(2, 1, divisor_override=5),
        "adaptive_avg_pool3d": nn.AdaptiveAvgPool3d((1, 2, 3)),
        "batch_norm 3d": _normalised_batch(nn.BatchNorm3d(2)),
        "upsample, nearest 3d": nn.Upsample(scale_factor=(2, 1, 1)),
        "upsample, nearest-exact 3d": nn.Upsample(size=(2, 4, 1), mode="nearest-exact"),
        "upsample, trilinear": nn.Upsample(size=(2, 4, 1), mode="trilinear"),
        "upsample, trilinear aligned": nn.Upsample(size=(2, 4, 1), mode="trilinear", align_corners=True),
        "pad 3d, reflect": nn.ReflectionPad3d(1),
    })  # fmt: skip
    add((6,), {"take_along_dim": (lambda x, i: torch.take_along_dim(x, i.expand(x.shape[0], 3), 1), torch.tensor([[4, 4, 0]]))}, alone=True)
    add((3,), {
        "constant with the batch dimension, added": (lambda x, w: torch.relu(x + w), (BATCH, 3)),
        "constant with the batch dimension, multiplied": (lambda x, w: (x * w).sum(1), (BATCH, 3)),
        "constant with the batch dimension, bmm": (lambda x, w: torch.bmm(x.unsqueeze(1), w), (BATCH, 3, 2)),
        "constant with the batch dimension, mask": (
            lambda x, m, w: torch.where(m, x, w), torch.arange(BATCH * 3).reshape(BATCH, 3) % 2 == 0, (BATCH, 3),
        ),
    }, alone=True)  # fmt: skip


def _normalised_batch(layer: nn.Module) -> nn.Module:
    """A batch norm whose running statistics are not the initial ones."""
    layer.running_mean.normal_()  # type: ignore[operator, union-attr]
    layer.running_var.uniform_(0.2, 2.0)  # type: ignore[operator, union-attr]
    if layer.weight is not None:
        nn.init.normal_(layer.weight)  # type: ignore[arg-type]
        nn.init.normal_(layer.bias)  # type: ignore[arg-type]
    return layer


# -- elementwise ---------------------------------------------------------------------------------------------------------


def elementwise() -> None:
    anywhere: dict[str, Any] = {
        "relu": torch.relu,
        "relu6": F.relu6,
        "prelu": (F.prelu, torch.tensor([0.3])),
        "prelu, negative": (F.prelu, torch.tensor([-0.3])),
        "prelu, per channel": (F.prelu, torch.tensor([0.3, -0.5, 1.0, 1.7, 0.0, 2.0])),
        "celu": F.celu,
        "selu": F.selu,
        "gelu": F.gelu,
        "gelu, tanh": on(F.gelu, approximate="tanh"),
        "silu": F.silu,
        "mish": F.mish,
        "softplus": F.softplus,
        "softsign": F.softsign,
        "tanh": torch.tanh,
        "sigmoid": torch.sigmoid,
        "logsigmoid": F.logsigmoid,
        "hardtanh": F.hardtanh,
        "hardtanh, asymmetric": on(F.hardtanh, min_val=-0.5, max_val=2.0),
        "hardsigmoid": F.hardsigmoid,
        "hardswish": F.hardswish,
        "tanhshrink": F.tanhshrink,
        "softshrink": F.softshrink,
        "softshrink, 1.2": on(F.softshrink, lambd=1.2),
        "hardshrink": F.hardshrink,
        "hardshrink, 1.2": on(F.hardshrink, lambd=1.2),
        "threshold, above": on(F.threshold, threshold=0.5, value=2.0),
        "threshold, below": on(F.threshold, threshold=0.5, value=-2.0),
        "threshold, negative": on(F.threshold, threshold=-1.0, value=0.0),
        "clamp": on(torch.clamp, min=-0.5, max=0.8),
        "clamp, min": on(torch.clamp, min=0.3),
        "clamp, max": on(torch.clamp, max=-0.3),
        "clamp, crossed": on(torch.clamp, min=1.0, max=-1.0),
        "clamp_min, clamp_max": lambda x: x.clamp_min(-1.0).clamp_max(0.5),
        "clamp, tensors": (lambda x, w: torch.clamp(x, w, w + 1), (6,)),
        "clamp, min tensor": (lambda x, w: torch.clamp(x, min=w) + x.clamp_max(w), (6,)),
        "exp": torch.exp,
        "exp2": torch.exp2,
        "expm1": torch.expm1,
        "square": torch.square,
        "2 ** x": lambda x: 2**x,
        "0.3 ** x": lambda x: 0.3**x,
        "abs": torch.abs,
        "sign": torch.sign,
        "sgn": torch.sgn,
        "floor": torch.floor,
        "ceil": torch.ceil,
        "round": torch.round,
        "trunc": torch.trunc,
        "sin": torch.sin,
        "cos": torch.cos,
        "sin, fast": lambda x: torch.sin(7 * x),
        "cos, fast": lambda x: torch.cos(7 * x + 1),
        "atan": torch.atan,
        "sinh": torch.sinh,
        "cosh": torch.cosh,
        "asinh": torch.asinh,
        "erf": torch.erf,
        "remainder": lambda x: torch.remainder(x, 0.7),
        "div, floor": lambda x: torch.div(x, 0.7, rounding_mode="floor"),
        "div, trunc": lambda x: torch.div(x, 0.7, rounding_mode="trunc") + torch.div(x, 2, rounding_mode=None),
        "comparison, multiplied as a number": lambda x: (x > 0.2).to(x.dtype) * 2 - (x <= -0.3).to(x.dtype),
        "comparison, multiplied": lambda x: (x > 0.2) * 2.0,
        "comparison, times x": lambda x: (x > 0.2) * x,
        "comparison, x times": lambda x: x * (x >= 0.2) - 0.5,
        "comparison, added": lambda x: x + (x < 0.2),
        "comparison, subtracted": lambda x: 1.0 - (x < 0.2).to(x.dtype),
        "comparison, where": lambda x: torch.where(x > 0.2, x * 2, -x),
        "comparison, where constants": lambda x: torch.where(x >= 0.2, 1.5, -0.5),
        "comparison, where one constant": lambda x: torch.where(x < -0.2, x, 1.0),
        "comparison, equal": lambda x: torch.where(x.round() == 1, x, 0.0) + torch.where(x.round() != 0, x, 1.0),
        "logic": lambda x: torch.where(((x > -1) & (x < 1)) | ~(x < 2), x, -x),
        "logic, functions": lambda x: torch.where(torch.logical_xor(x > 0, torch.logical_not(x < 1)), x, 0.0),
        "logic, combined": lambda x: torch.where(torch.logical_or(torch.logical_and(x > 0, x < 1), (x > -1) ^ (x > 2)), x, 0.0),
        "masked_fill, perturbed": lambda x: x.masked_fill(x < 0.3, 0.3),
        "to integers": lambda x: x.to(torch.int64).to(x.dtype),
        "to truth": lambda x: torch.where(x.round().bool(), x, 5.0),
        "to truth, not": lambda x: torch.where(torch.logical_not(x.round()), x, 5.0),
        "to truth, and": lambda x: torch.where(torch.logical_and(x.round(), x < 1), x, 5.0),
        "x * x": lambda x: x * x,
        "x * x * x": lambda x: x * x * x,
        "x * tanh(x)": lambda x: x * torch.tanh(x),
        "maximum of lines": lambda x: torch.maximum(x, -0.5 * x),
        "modules": nn.Sequential(nn.Hardtanh(), nn.ELU(1.5), nn.Softplus(), nn.LeakyReLU(0.2), nn.Identity()),
        "logaddexp with a constant": (lambda x, w: torch.logaddexp(x, w), (6,)),
        "hypot with a constant": (lambda x, w: torch.hypot(x, w), (6,)),
    }  # fmt: skip
    anywhere |= {f"leaky_relu, {s}": on(F.leaky_relu, negative_slope=s) for s in (0.01, 0.5, 1.0, 1.5, 0.0, -0.5, -2.0)}
    anywhere |= {f"elu, {a}": on(F.elu, alpha=a) for a in (0.5, 1.0, 2.0, 0.0, -1.0)}
    anywhere |= {f"celu, {a}": on(F.celu, alpha=a) for a in (0.5, 2.0, -1.0)}
    anywhere |= {
        f"softplus, beta {b}, threshold {t}": on(F.softplus, beta=b, threshold=t)
        for b, t in ((0.5, 20), (3.0, 20), (1.0, 1.0), (2.0, 0.5), (-1.0, 20))
    }
    anywhere |= {f"pow, {p}": on(torch.pow, exponent=p) for p in (0, 1, 2, 3, 4, 5, 2.0, 7)}
    add((6,), anywhere, elementwise=True)
    add((6,), {
        "log": torch.log, "log2": torch.log2, "log10": torch.log10, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal,
        "1 / x": lambda x: 1 / x, "xlogy": lambda x: x * torch.log(x),
        "pow, tensor exponent": (torch.pow, torch.tensor([0.5, 2.0, -1.0, 3.0, 0.0, 1.0])),
        "pow, both": lambda x: x**x,
    } | {f"pow, {p}, positive": on(torch.pow, exponent=p) for p in (-1, -2, -3, 0.5, 1.5, -0.5, -1.5, 2.5, 1 / 3)}, 0.05, elementwise=True)  # fmt: skip
    add((6,), {
        "reciprocal, negative": torch.reciprocal, "2 / x, negative": lambda x: 2 / x,
    } | {f"pow, {p}, negative": on(torch.pow, exponent=p) for p in (-1, -2, -3)}, high=-0.05, elementwise=True)  # fmt: skip
    add((6,), {
        "sqrt at 0": torch.sqrt, "pow, 0.5 at 0": on(torch.pow, exponent=0.5), "pow, 1.5 at 0": on(torch.pow, exponent=1.5),
    }, 0.0, elementwise=True)  # fmt: skip
    add((6,), {"log1p": torch.log1p}, -0.95, elementwise=True)
    add((6,), {"acosh": torch.acosh}, 1.0, elementwise=True)
    add((6,), {"atanh": torch.atanh, "logit": lambda x: torch.log(0.5 + x / 2.1) - torch.log(0.5 - x / 2.1)}, -0.95, 0.95, elementwise=True)
    add((6,), {"asin": torch.asin, "acos": torch.acos}, -1.0, 1.0, elementwise=True)
    add((6,), {"tan": torch.tan}, -1.5, 1.5, elementwise=True)
    add((6,), {"tan, second branch": torch.tan}, 1.7, 4.6, elementwise=True)
    add((6,), {"pow, tensor exponent, any base": (torch.pow, torch.tensor([2.0, 2.0, 3.0, 0.0, 1.0, 4.0]))}, elementwise=True)


# -- two variables -------------------------------------------------------------------------------------------------------


def two_variables() -> None:
    add((6,), {
        "mul, two variables": halves(torch.mul),
        "mul, with the flipped": lambda x: x * x.flip(1),
        "mul, broadcast variables": lambda x: x[:, :2, None] * x[:, None, 2:],
        "maximum": halves(torch.maximum),
        "minimum": halves(torch.minimum),
        "fmax, fmin": halves(lambda a, b: torch.fmax(a, b) - torch.fmin(a, b) + torch.max(a, b) + torch.min(a, b)),
        "maximum with a constant": (lambda x, w: torch.maximum(x, w) - torch.minimum(w, x), (6,)),
        "where, perturbed condition": halves(lambda a, b: torch.where(a > b, a, -b)),
        "where, condition apart": lambda x: torch.where(x[:, :2] > 0.1, x[:, 2:4], x[:, 4:]),
        "where, broadcast condition": lambda x: torch.where(x[:, :1] > 0.1, x[:, 2:4], x[:, 4:5] * 2),
        "comparison of two variables": halves(lambda a, b: (a >= b).to(a.dtype) + (a < b).to(a.dtype) * 2 + (a <= b) * a),
        "comparison, equal variables": halves(lambda a, b: (a.round() == b.round()).to(a.dtype) - (a.round() != b.round()).to(a.dtype)),
        "addcmul, variables": lambda x: torch.addcmul(x[:, :2], x[:, 2:4], x[:, 4:], value=-0.5),
        "lerp, variables": lambda x: torch.lerp(x[:, :2], x[:, 2:4], x[:, 4:]),
        "logaddexp": halves(torch.logaddexp),
        "hypot": halves(torch.hypot),
        "dot by sum": halves(lambda a, b: (a * b).sum(1)),
        "mse_loss, l1_loss": halves(lambda a, b: F.mse_loss(a, b, reduction="none") + F.l1_loss(a, b, reduction="none")),
        "pairwise_distance": halves(F.pairwise_distance),
        "pairwise_distance, 1": halves(on(F.pairwise_distance, p=1.0, keepdim=True)),
        "einsum, outer": halves(lambda a, b: torch.einsum("bi,bj->bij", a, b)),
        "einsum, outer transposed": halves(lambda a, b: torch.einsum("bi,bj->bji", a, b)),
        "einsum, elementwise": halves(lambda a, b: torch.einsum("bi,bi->bi", a, b)),
        "einsum, inner": halves(lambda a, b: torch.einsum("bi,bi->b", a, b)),
        "einsum, square": lambda x: torch.einsum("bi,bj->bij", x[:, :3], x[:, :3]),
        "bilinear": (lambda x, w, b: F.bilinear(x[:, :3], x[:, 3:], w, b), (2, 3, 3), (2,)),
    })  # fmt: skip
    add((2, 6), {
        "matmul, two variables": lambda x: x[..., :3] @ x[..., 3:].mT,
        "bmm, two variables": lambda x: torch.bmm(x[..., :3], x[..., 3:].mT),
        "baddbmm, two variables": lambda x: torch.baddbmm(x[:, :, :2], x[..., :3], x[..., 3:].mT, alpha=-0.5, beta=2.0),
        "matmul, broadcast variables": lambda x: x[:, None, :, :3] @ x[:, :, 3:, None],
        "matmul with itself": lambda x: x @ x.mT,
        "matmul, vector of variables": lambda x: (x.unsqueeze(1) @ x.mT.unsqueeze(1)).squeeze(1),
        "einsum, two variables": lambda x: torch.einsum("bij,bkj->bik", x[..., :3], x[..., 3:]),
        "einsum, transposed product": lambda x: torch.einsum("bij,bij->bji", x[..., :2], x[..., 2:4]),
        "einsum, implicit output": lambda x: torch.einsum("bik,bjk->bij", x[..., :2], x[..., 2:4]) * 0.5,
        "einsum, summed away": lambda x: torch.einsum("bij,bkl->bk", x[..., :2], x[..., 2:]),
        "linear of variables": lambda x: torch.vmap(F.linear)(x[..., :3], x[..., 3:]),
        "attention scores by einsum": lambda x: torch.softmax(torch.einsum("bqd,bkd->bqk", x[..., :3], x[..., 3:]), -1),
        "write, product": written(lambda y, x: y[:, 0].mul_(x[:, 1])),
    })  # fmt: skip
    add((6,), {
        "div, two variables": halves(torch.div), "addcdiv, variables": lambda x: torch.addcdiv(x[:, :2], x[:, 2:4], x[:, 4:], value=-0.5),
        "div, by a sum": lambda x: x / x.sum(1, keepdim=True), "remainder, variables": halves(torch.remainder),
        "div, floor of variables": halves(lambda a, b: torch.div(a, b, rounding_mode="floor")),
        "pow, variables": halves(torch.pow),
    }, 0.2)  # fmt: skip
    add((6,), {"div, negative denominator": halves(lambda a, b: (a + 2) / b)}, high=-0.2)


# -- reductions and blocks -----------------------------------------------------------------------------------------------


def reductions_and_blocks() -> None:
    add((5,), {
        "amax": lambda x: x.amax(1),
        "amin, keepdim": lambda x: x.amin(1, keepdim=True),
        "max over a dimension": lambda x: x.max(1).values,
        "min over a dimension": lambda x: x.min(-1, keepdim=True).values,
        "argmax, unused": lambda x: torch.max(x, 1)[0] - torch.min(x, 1)[0],
        "softmax": lambda x: x.softmax(1),
        "softmax, in double": lambda x: F.softmax(x, -1, dtype=torch.float64).to(x.dtype),
        "softmin": lambda x: F.softmin(x, 1),
        "log_softmax": lambda x: F.log_softmax(x, -1),
        "log_softmax, in double": lambda x: F.log_softmax(x, -1, dtype=torch.float64).to(x.dtype),
        "softmax, steep": lambda x: (20 * x).softmax(1),
        "logsumexp": lambda x: x.logsumexp(1),
        "logsumexp, keepdim": lambda x: x - x.logsumexp((-1,), keepdim=True),
        "norm, 1": lambda x: torch.linalg.vector_norm(x, 1, dim=1),
        "norm, 2": lambda x: torch.linalg.vector_norm(x, dim=1, keepdim=True),
        "norm, 3": lambda x: torch.linalg.vector_norm(x, 3, dim=1),
        "norm, 2.5": lambda x: torch.linalg.vector_norm(x, 2.5, dim=1),
        "norm, inf": lambda x: torch.linalg.vector_norm(x, math.inf, dim=1),
        "norm, -inf": lambda x: torch.linalg.vector_norm(x, -math.inf, dim=1),
        "norm, 0": lambda x: torch.linalg.vector_norm(x.round(), 0, dim=1),
        "norm, others": lambda x: torch.norm(x, dim=1) + torch.norm(x, p=1, dim=1) + torch.linalg.norm(x, dim=1) + torch.linalg.norm(x, 3, dim=1),
        "normalize": lambda x: F.normalize(x, dim=1),
        "normalize, 1": lambda x: F.normalize(x, p=1.0, dim=1, eps=0.5),
        "cosine_similarity": (lambda x, w: F.cosine_similarity(x, w, dim=1), (1, 5)),
        "cosine_similarity, eps": (lambda x, w: F.cosine_similarity(x, w, dim=1, eps=0.5), (1, 5)),
        "cosine_similarity, variables": lambda x: F.cosine_similarity(x[:, :2], x[:, 3:], dim=1, eps=0.1),
        "var": lambda x: x.var(1),
        "var, biased": lambda x: x.var(1, unbiased=False) + x.var(1, correction=2, keepdim=True).squeeze(1),
        "std": lambda x: x.std(1),
        "std, biased": lambda x: x.std(1, unbiased=False, keepdim=True) + x.std(dim=(1,), correction=3, keepdim=True),
        "var_mean and std_mean, other overloads": lambda x: torch.stack(
            [*torch.ops.aten.var_mean.dim(x, [1], False), *torch.ops.aten.std_mean.dim(x, [1]), *torch.ops.aten.std_mean.dim(x, [1], True, False)], 1
        ),
        "var_mean, std_mean": lambda x: torch.stack([*torch.var_mean(x, 1), *torch.std_mean(x, dim=1, correction=0)], 1),
        "var_mean, correction": lambda x: torch.stack(torch.var_mean(x, dim=1, correction=0), 1),
        "prod": lambda x: x.prod(1),
        "prod, keepdim": lambda x: x[:, :3].prod(-1, keepdim=True),
        "prod, of one": lambda x: x[:, :1].prod(1),
        "layer_norm": nn.LayerNorm(5),
        "layer_norm, affine": _scrambled(nn.LayerNorm(5, eps=0.1)),
        "layer_norm, function": lambda x: F.layer_norm(x, (5,), eps=1e-3),
        "rms_norm": _scrambled(nn.RMSNorm(5)),
        "rms_norm, eps": nn.RMSNorm(5, eps=0.1, elementwise_affine=False),
        "cumulative maximum by hand": lambda x: torch.stack([x[:, :2].amax(1), x[:, :3].amax(1)], 1),
        "any, all": lambda x: torch.where((x > 0).any(1), x[:, 0], x[:, 1]) + torch.where((x > -1).all(1, keepdim=True), x, 0.0)[:, 2],
        "count": lambda x: (x > 0).sum(1) * 0.5,
        "count as a number": lambda x: (x > 0).to(x.dtype).sum(1) + (x > 0).sum(1).to(x.dtype),
        "mean of comparisons": lambda x: (x > 0).to(x.dtype).mean(1),
        "margin": lambda x: x[:, :1] - x[:, 1:],
    })  # fmt: skip
    add((4, 3), {
        "amax, several dimensions": lambda x: x.amax((1, 2)) - x.amin((-1, 1)),
        "amax, several dimensions kept": lambda x: x - x.amax((1, 2), keepdim=True) + x.amin((1, 2), keepdim=True),
        "amax, middle dimension": lambda x: x.amax(1, keepdim=True) - x,
        "softmax, middle dimension": lambda x: x.softmax(1),
        "softmax2d": lambda x: nn.Softmax2d()(x.unsqueeze(-1)),
        "log_softmax, middle dimension": lambda x: x.log_softmax(1),
        "logsumexp, several dimensions": lambda x: x.logsumexp((1, 2)),
        "logsumexp, several dimensions kept": lambda x: x.logsumexp((1, 2), keepdim=True) - x,
        "var, several dimensions": lambda x: x.var((1, 2)) + x.std((1, 2), correction=0),
        "norm, several dimensions": lambda x: torch.linalg.vector_norm(x, dim=(1, 2)) + torch.linalg.vector_norm(x, 3, (1, 2), True).flatten(),
        "glu": lambda x: F.glu(x, 1),
        "glu, first half": lambda x: F.glu(x[:, :2], 1),
        "layer_norm, two dimensions": _scrambled(nn.LayerNorm((4, 3))),
        "group_norm": _scrambled(nn.GroupNorm(2, 4)),
        "group_norm, not affine": nn.GroupNorm(4, 4, affine=False),
        "group_norm, one group": nn.GroupNorm(1, 4, eps=0.1),
        "instance_norm": nn.InstanceNorm1d(4),
        "instance_norm, affine": _scrambled(nn.InstanceNorm1d(4, affine=True)),
        "instance_norm, running statistics": _normalised_batch(nn.InstanceNorm1d(4, affine=True, track_running_stats=True)),
        "max over flattened": lambda x: x.flatten(1).max(1)[0],
        "attention by hand": lambda x: torch.softmax(x @ x.mT / 2, -1) @ x,
    })  # fmt: skip
    labels = torch.arange(BATCH) % 4
    ignored = torch.where(labels == 2, -100, labels)
    pixels = torch.arange(BATCH * 2).reshape(BATCH, 2) % 4
    weight = torch.tensor([0.5, 1.0, 2.0, 0.2])
    add((4,), {
        "cross_entropy": (lambda x, y: F.cross_entropy(x, y, reduction="none"), labels),
        "cross_entropy, label_smoothing": (lambda x, y: F.cross_entropy(x, y, reduction="none", label_smoothing=0.2), labels),
        "cross_entropy, weight": (lambda x, y, w: F.cross_entropy(x, y, w, reduction="none"), labels, weight),
        "cross_entropy, ignore_index": (lambda x, y: F.cross_entropy(x, y, reduction="none"), ignored),
        "cross_entropy, all": (
            lambda x, y, w: F.cross_entropy(x, y, w, reduction="none", label_smoothing=0.1, ignore_index=2), labels, weight,
        ),
        "cross_entropy, probabilities": (
            lambda x, y, w: F.cross_entropy(x, y.softmax(1), w, reduction="none", label_smoothing=0.1), (BATCH, 4), weight,
        ),
        "nll_loss": (lambda x, y: F.nll_loss(x, y, reduction="none"), labels),
        "nll_loss, weight and ignore_index": (lambda x, y, w: F.nll_loss(x, y, w, ignore_index=1, reduction="none"), labels, weight),
        "gather, constant per sample": (lambda x, y: x.gather(1, y.unsqueeze(1)), labels),
        "margins of labels": (lambda x, y: x - x.gather(1, y.unsqueeze(1)), labels),
        "multi_margin by hand": (lambda x, y: (1 + x - x.gather(1, y.unsqueeze(1))).clamp(min=0).sum(1), labels),
    }, alone=True)  # fmt: skip
    add((4, 2), {
        "cross_entropy, pixels": (lambda x, y: F.cross_entropy(x, y, reduction="none"), pixels),
        "nll_loss, pixels": (lambda x, y: F.nll_loss(x, y, reduction="none"), pixels),
    }, alone=True)  # fmt: skip
    add((2, 7), {
        "max_pool1d": nn.MaxPool1d(2),
        "max_pool1d, stride": nn.MaxPool1d(3, 1),
        "max_pool1d, padding": nn.MaxPool1d(3, 2, 1),
        "max_pool1d, dilation": nn.MaxPool1d(2, 2, 1, dilation=3),
        "max_pool1d, ceil_mode": nn.MaxPool1d(3, 3, ceil_mode=True),
        "adaptive_max_pool1d": nn.AdaptiveMaxPool1d(3),
    })  # fmt: skip
    add((1, 5, 5), {
        "max_pool2d": nn.MaxPool2d(2),
        "max_pool2d, overlapping": nn.MaxPool2d(3, 1),
        "max_pool2d, padding": nn.MaxPool2d(3, 2, 1),
        "max_pool2d, rectangles": nn.MaxPool2d((2, 3), (1, 2), (1, 0)),
        "max_pool2d, dilation": nn.MaxPool2d(2, 1, dilation=(1, 3)),
        "max_pool2d, ceil_mode": nn.MaxPool2d(2, 2, ceil_mode=True),
        "max_pool2d, all": nn.MaxPool2d((2, 3), (3, 2), (1, 1), (2, 1), ceil_mode=True),
        "adaptive_max_pool2d": nn.AdaptiveMaxPool2d((2, 3)),
        "adaptive_max_pool2d, none": nn.AdaptiveMaxPool2d((None, 1)),
        "group_norm 2d": nn.Sequential(nn.Conv2d(1, 2, 4), nn.GroupNorm(2, 2)),
        "instance_norm 2d": nn.InstanceNorm2d(1),
    })  # fmt: skip
    add((1, 3, 3, 3), {
        "max_pool3d": nn.MaxPool3d(2, 1),
        "max_pool3d, attributes": nn.MaxPool3d(2, 2, 1, ceil_mode=True),
        "max_pool3d, dilation": nn.MaxPool3d((2, 1, 3), dilation=(2, 1, 1)),
        "adaptive_max_pool3d": nn.AdaptiveMaxPool3d((1, 2, 2)),
        "instance_norm 3d": nn.InstanceNorm3d(1),
    })  # fmt: skip
    triangle = torch.ones(3, 3, dtype=torch.bool).tril()
    add((3, 6), {
        "attention": _attend(),
        "attention, scale": _attend(scale=0.3),
        "attention, causal": _attend(is_causal=True),
        "attention, boolean mask": (_attend(), triangle.flip(0)),
        "attention, row masked away": (_attend(), torch.tensor([[True, True, False], [False, False, False], [True, True, True]])),
        "attention, float mask": (_attend(), (3, 3)),
        "attention, infinite mask": (_attend(), torch.zeros(3, 3).masked_fill(~triangle, -math.inf)),
        "attention, large mask": (_attend(), torch.zeros(3, 3).masked_fill(~triangle, -1e9)),
        "attention, heads": lambda x: F.scaled_dot_product_attention(*[t.unflatten(-1, (1, 2)).transpose(1, 2) for t in x.chunk(3, -1)]),
        "attention, grouped": lambda x: F.scaled_dot_product_attention(
            x.unflatten(-1, (3, 2)).transpose(1, 2)[:, :2], x[:, None, :, :2], x[:, None, :, 4:], enable_gqa=True
        ),
    })  # fmt: skip
    add((2, 4), {
        "MultiheadAttention": Attention(),
        "MultiheadAttention, causal": Attention(attn_mask=~triangle[:2, :2]),
        "TransformerEncoderLayer": nn.TransformerEncoderLayer(4, 2, 6, batch_first=True),
        "TransformerEncoderLayer, norm_first, gelu": nn.TransformerEncoderLayer(4, 2, 6, activation="gelu", batch_first=True, norm_first=True),
    })  # fmt: skip
    add((2, 2), {
        "LSTM": nn.LSTM(2, 2, batch_first=True),
        "LSTM, two layers": nn.LSTM(2, 1, 2, batch_first=True),
        "LSTM, bidirectional": nn.LSTM(2, 1, batch_first=True, bidirectional=True),
        "LSTM, no bias": nn.LSTM(2, 2, bias=False, batch_first=True),
        "LSTM, time first": TimeFirst(nn.LSTM(2, 2)),
        "GRU": nn.GRU(2, 2, batch_first=True),
        "GRU, two layers": nn.GRU(2, 1, 2, batch_first=True),
        "GRU, bidirectional": nn.GRU(2, 1, batch_first=True, bidirectional=True),
        "RNN": nn.RNN(2, 2, batch_first=True),
        "RNN, relu": nn.RNN(2, 2, nonlinearity="relu", batch_first=True),
        "RNN, relu, two layers": nn.RNN(2, 2, 2, nonlinearity="relu", batch_first=True, bidirectional=True),
    })  # fmt: skip
    add((6,), {
        "LSTMCell": Cell(nn.LSTMCell(3, 2)),
        "GRUCell": Cell(nn.GRUCell(3, 2)),
        "RNNCell": Cell(nn.RNNCell(3, 2)),
        "RNNCell, relu": Cell(nn.RNNCell(3, 2, nonlinearity="relu", bias=False)),
    })  # fmt: skip


# -- operators that one must call by their own names, and values without a batch ------------------------------------------


def seldom() -> None:
    aten = torch.ops.aten
    add((6,), {
        "_softmax": lambda x: aten._softmax(x, 1, False),
        "_log_softmax": lambda x: aten._log_softmax(x, 1, False),
        "_safe_softmax": lambda x: aten._safe_softmax(x, 1),
        "_unsafe_view": lambda x: aten._unsafe_view(x, [x.shape[0], 2, 3]),
        "alias": lambda x: aten.alias(x) * 2,
        "constant_pad_nd": lambda x: aten.constant_pad_nd(x, [1, 2], 2.5),
        "bitwise": lambda x: torch.where(torch.bitwise_and(x > 0, torch.bitwise_not(x > 1)), x, 0.5),
        "bitwise_or, bitwise_xor": lambda x: torch.where(torch.bitwise_or(x > 1, torch.bitwise_xor(x > -1, x > 0)), x, 0.5),
        "comparisons by other names": lambda x: (torch.greater(x, 0.1).to(x.dtype) + torch.greater_equal(x, x.flip(1)).to(x.dtype) * 2
                                                 + torch.less(x, 0.2).to(x.dtype) * 4 + torch.less_equal(x, -0.1).to(x.dtype) * 8),
        "fix": torch.fix,
        "log_sigmoid_forward": lambda x: aten.log_sigmoid_forward(x)[0],
        "flipud, vstack, t": lambda x: torch.vstack([torch.flipud(x.t()), -x.t()]).t(),
        "diagonal_scatter": lambda x: torch.diagonal_scatter(x[:, :4].reshape(-1, 2, 2), x[:, 4:], 0, 1, 2),
        "norm.ScalarOpt_dim": lambda x: aten.norm.ScalarOpt_dim(x, 3, [1]),
        "clamp_min.Tensor": (lambda x, w: aten.clamp_min(x, w), (6,)),
        "div by a number": lambda x: aten.div.Scalar(x, 2.5) + aten.true_divide.Scalar(x, -2.0),
        "div by other names": (lambda x, w: torch.divide(x, w.abs() + 1) + torch.divide(x, 2.5, rounding_mode="floor"), (6,)),
        "div.Scalar_mode": lambda x: aten.div.Scalar_mode(x, 2.5, rounding_mode="trunc"),
        "divide.Scalar_mode": lambda x: aten.divide.Scalar_mode(x, 2.5, rounding_mode="trunc"),
        "nll_loss by its own name": (lambda x, y: aten.nll_loss(x, y.expand(x.shape[0]), None, 0, -100), torch.tensor([2])),
        "masked_select": (lambda x, m: torch.masked_select(x, m.expand(x.shape[0], 6)).reshape(x.shape[0], -1), torch.ones(1, 6, dtype=torch.bool)),
    })  # fmt: skip
    add((2, 7), {
        "_pad_circular": lambda x: aten._pad_circular(x, [2, 1]),
        "reflection_pad1d": lambda x: aten.reflection_pad1d(x, [2, 1]),
        "replication_pad1d": lambda x: aten.replication_pad1d(x, [2, 1]),
        "convolution": (lambda x, w, b: aten.convolution(x, w, b, [2], [1], [2], False, [0], 1), (3, 2, 2), (3,)),
        "convolution, transposed": (lambda x, w: aten.convolution(x, w, None, [2], [1], [1], True, [1], 1), (2, 3, 2)),
    })  # fmt: skip
    add((2, 5, 5), {
        "_adaptive_avg_pool2d": lambda x: aten._adaptive_avg_pool2d(x, [2, 3]),
        "reflection_pad2d": lambda x: aten.reflection_pad2d(x, [2, 1, 0, 3]),
        "replication_pad2d": lambda x: aten.replication_pad2d(x, [2, 1, 0, 3]),
    })  # fmt: skip
    add((2, 3, 3, 3), {
        "_adaptive_avg_pool3d": lambda x: aten._adaptive_avg_pool3d(x, [2, 3, 1]),
        "reflection_pad3d": lambda x: aten.reflection_pad3d(x, [2, 1, 0, 1, 0, 0]),
        "replication_pad3d": lambda x: aten.replication_pad3d(x, [2, 1, 0, 1, 0, 0]),
    })  # fmt: skip
    add((3, 3), {
        "whole, argmax": lambda x: torch.argmax(x).to(x.dtype) + torch.argmin(x, 0).to(x.dtype),
        "whole, var_mean": lambda x: torch.stack([*torch.ops.aten.var_mean.default(x), *torch.ops.aten.std_mean.default(x, False)]),
        "whole, dot": lambda x: torch.dot(x[0], x[1]),
        "whole, vdot": lambda x: torch.vdot(x[0], x[1]),
        "whole, weight_norm": (lambda x, g: torch._weight_norm(x + 5, g, 0), (3, 1)),
        "whole, outer": lambda x: torch.outer(x[0], x[1]),
        "whole, outer with a constant": (lambda x, w: torch.outer(x[0], w) + torch.outer(w, x[1]), (3,)),
        "whole, inner": lambda x: torch.inner(x, x[0]) + torch.inner(x[1], x[2]),
        "whole, inner of matrices": lambda x: torch.inner(x, x.flip(1)),
        "whole, matmul": lambda x: x @ x + x @ x[0] + x[1] @ x,
        "whole, linear": lambda x: torch.nn.functional.linear(x, x, x[0]),
        "whole, diag": lambda x: torch.diag(x) + torch.diag(torch.diag(x), 1)[0, 1:],
        "whole, trace": torch.trace,
        "whole, take": (lambda x, i: torch.take(x, i), torch.tensor([[0, 5], [5, 8]])),
        "whole, max": lambda x: x.max() - x.min(),
        "whole, std": lambda x: x.std() + x.var(),
        "whole, norm": lambda x: x.norm() + torch.ops.aten.norm.Scalar(x, 3) + torch.linalg.norm(x),
        "whole, sums": lambda x: x.sum() + x.mean() + x.logsumexp((0, 1)),
        "whole, losses": (lambda x, y: F.cross_entropy(x, y) + F.nll_loss(x, y, reduction="sum") + F.mse_loss(x, x.t()), torch.tensor([0, 2, 1])),
        "whole, cross_entropy": (lambda x, y, w: F.cross_entropy(x, y, w, label_smoothing=0.1, ignore_index=1), torch.tensor([0, 2, 1]), (3,)),
        "whole, einsum": lambda x: torch.einsum("ij,jk->ki", x, x),
        "whole, einsum outer": lambda x: torch.einsum("i,j->ij", x[0], x[1]),
        "whole, masked_select": (lambda x, m: torch.masked_select(x, m), torch.eye(3, dtype=torch.bool)),
        "whole, softmax": lambda x: x.softmax(0),
    }, batched=False)  # fmt: skip


def _scrambled(layer: nn.Module) -> nn.Module:
    """A layer whose parameters are not the initial ones."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter)
    return layer


with torch.random.fork_rng():
    torch.manual_seed(0)
    fill()
