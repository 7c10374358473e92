"""Pieces of models of which it is known whether they let samples meet: independent ones here,
mixing ones and veils that hide mixing in veils.py.

A piece is made for the shape of one sample: (features,), (tokens, features) or (channels, height,
width). Whether a model mixes samples is known from the pieces it is built of, not from running it.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Shape = tuple[int, ...]
Call = Callable[..., Tensor]
Made = tuple[Call, Shape]
"""What a piece computes, and the shape of one sample of the result."""

FLAT, TOKENS, IMAGE = 1, 2, 3
ANY = (FLAT, TOKENS, IMAGE)
OTHER_SIZES = (2, 4, 5)
"""Further batch sizes that a model with a free batch is asked for."""


@dataclass(frozen=True)
class Extra:
    """A further input of the model: its value in the example, one that opens what it hides, and
    whether it carries the batch."""

    example: Callable[[int], Tensor]
    opened: Callable[[int], Tensor]
    batched: bool = True


@dataclass(frozen=True)
class Piece:
    """make: from a source of randomness and the shape of one sample. extra: the further input that
    it reads.

    sized: its value depends on how many samples there are (not on what they hold). undone: it mixes
    and takes that back, so refusing it is fair.
    """

    ranks: tuple[int, ...]
    make: Callable[[random.Random, Shape], Made]
    extra: Callable[[Shape], Extra] | None = None
    fixes: bool = False
    sized: bool = False
    undone: bool = False


INDEPENDENT: dict[str, Piece] = {}
"""One sample of the result depends on the same sample of the argument alone."""


def independent(
    name: str, ranks: tuple[int, ...], **kind: object
) -> Callable[[Callable[[random.Random, Shape], Made]], None]:
    def add(make: Callable[[random.Random, Shape], Made]) -> None:
        assert name not in INDEPENDENT, name
        INDEPENDENT[name] = Piece(ranks, make, **kind)  # type: ignore[arg-type]

    return add


def same(name: str, ranks: tuple[int, ...], call: Call, **kind: object) -> None:
    """An independent piece that keeps the shape and needs nothing."""
    independent(name, ranks, **kind)(lambda rng, s: (call, s))


class Holds(nn.Module):
    """A function of x and of constants that it keeps as buffers."""

    def __init__(self, call: Call, *constants: Tensor) -> None:
        super().__init__()
        self.call = call
        for i, constant in enumerate(constants):
            self.register_buffer(f"constant{i}", constant)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(*inputs, *self.buffers())


class Uses(nn.Module):
    """A function of x and of modules."""

    def __init__(self, call: Call, *modules: nn.Module) -> None:
        super().__init__()
        self.call = call
        self.parts = nn.ModuleList(modules)

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.call(*inputs, *self.parts)


# -- independent: elements, layers -----------------------------------------------------------------

for _name, _call in {
    "relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "gelu": F.gelu, "abs": torch.abs, "clamp": lambda x: x.clamp(-2, 2),
    "halved": lambda x: x * 0.5 + 0.1, "square": lambda x: (x * x).clamp(max=9.0), "leaky": lambda x: F.leaky_relu(x, 0.2),
    "where": lambda x: torch.where(x > 0.1, x, 0.3 * x), "gated": lambda x: x * torch.sigmoid(x),
    "masked by itself": lambda x: x.masked_fill(x < -1, -1.0), "maximum with a line": lambda x: torch.maximum(x, 0.3 * x),
    "minus zeros like it": lambda x: x - torch.zeros_like(x), "plus new ones": lambda x: x + x.new_ones(x.shape),
    "plus full of the batch": lambda x: x + torch.full((x.shape[0], *[1] * (x.dim() - 1)), 0.5),
    "detached copy": lambda x: x + x.detach().clone() * 0.5,
}.items():  # fmt: skip
    same(_name, ANY, _call)

for _name, _call in {
    "softmax, last": lambda x: x.softmax(-1), "softmax, 1": lambda x: x.softmax(1), "log_softmax": lambda x: x.log_softmax(-1),
    "cumsum, last": lambda x: x.cumsum(-1), "cumsum, 1": lambda x: x.cumsum(1), "flip, last": lambda x: x.flip(-1), "flip, 1": lambda x: x.flip(1),
    "roll, last": lambda x: x.roll(1, -1), "roll, 1": lambda x: x.roll(2, 1), "mean, kept": lambda x: x - x.mean(-1, keepdim=True),
    "sum over the sample": lambda x: x - 0.1 * x.flatten(1).sum(1).reshape(-1, *[1] * (x.dim() - 1)), "sort": lambda x: x.sort(-1).values,
    "amax": lambda x: x - x.amax(1, keepdim=True), "max, values": lambda x: x + x.max(-1, keepdim=True).values,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]), "normalised": lambda x: x / (1 + x.square().sum(-1, keepdim=True)),
    "logsumexp": lambda x: x - x.logsumexp(-1, keepdim=True), "variance": lambda x: x + x.var(-1, keepdim=True),
    "stack and sum": lambda x: torch.stack([x, 0.5 * x], 1).sum(1), "stack, last": lambda x: torch.stack([x, 0.5 * x], -1).mean(-1),
    "unbind and stack": lambda x: torch.stack(x.unbind(1), 1), "unbind and stack, last": lambda x: torch.stack([0.5 * t for t in x.unbind(-1)], -1),
    "chunk and cat": lambda x: torch.cat(list(reversed(x.chunk(2, -1))), -1), "split and cat": lambda x: torch.cat(x.split(1, 1)[::-1], 1),
    "written in place": lambda x: torch.cat([x[:, :1] * 2, x[:, 1:]], 1), "slice added": lambda x: x + x[:, :1], "select added": lambda x: x + x.select(-1, 0).unsqueeze(-1),
    "copied, one entry written": lambda x: _written(x), "repeat and narrow": lambda x: torch.cat([x, x], 1).narrow(1, 0, x.shape[1]),
    "expand and mean": lambda x: x.unsqueeze(1).expand(-1, 3, *[-1] * (x.dim() - 1)).mean(1), "repeat_interleave": lambda x: x.repeat_interleave(2, 1)[:, ::2],
    "batch second": lambda x: x.transpose(0, 1).softmax(0).transpose(0, 1), "batch last": lambda x: x.movedim(0, -1).cumsum(0).movedim(-1, 0),
    "batch second, flip": lambda x: x.transpose(0, 1).flip(0).transpose(0, 1), "flatten, unflatten": lambda x: x.flatten(1).tanh().reshape(x.shape),
    "flattened with the batch": lambda x: x.reshape(-1).tanh().reshape(x.shape), "view of -1": lambda x: x.contiguous().view(-1, x.shape[1:].numel()).relu().view(x.shape),
    "squeezed, unsqueezed": lambda x: x.unsqueeze(1).relu().squeeze(1), "batch as channels": lambda x: F.avg_pool1d(x.flatten(1).unsqueeze(0), 3, 1, 1).squeeze(0).reshape(x.shape),
    "doubled batch": lambda x: torch.cat([x, 0.5 * x], 0).reshape(2, *x.shape).sum(0),
    "doubled batch, chunked": lambda x: torch.add(*torch.cat([x, 0.5 * x], 0).tanh().chunk(2, 0)),
    "interleaved batch": lambda x: x.repeat_interleave(2, 0).reshape(x.shape[0], 2, *x.shape[1:]).mean(1), "einsum over the sample": lambda x: x + torch.einsum("b...,b...->b", x, x).reshape(-1, *[1] * (x.dim() - 1)).clamp(max=3),
    "outer product": lambda x: x + torch.einsum("bi,bj->bij", x.flatten(1), x.flatten(1)).clamp(-3, 3).mean((1, 2)).reshape(-1, *[1] * (x.dim() - 1)),
    "bmm with itself": lambda x: x + (x.flatten(1).unsqueeze(1) @ x.flatten(1).unsqueeze(2)).clamp(max=3).reshape(-1, *[1] * (x.dim() - 1)),
    "tril": lambda x: x + torch.diag_embed(x).clamp(-1, 1).sum(-1), "threshold of the sample": lambda x: torch.where(x.flatten(1).sum(1).reshape(-1, *[1] * (x.dim() - 1)) > 0, x, -x),
    "own row by arange": lambda x: x + x[torch.arange(x.shape[0]), 0].unsqueeze(1),
    "batch slice of all": lambda x: x[: x.shape[0]] * 0.5, "gather of own": lambda x: x.gather(1, torch.zeros_like(x, dtype=torch.int64)) + x,
}.items():  # fmt: skip
    same(_name, ANY, _call)


def _written(x: Tensor) -> Tensor:
    y = x.clone()
    y[:, 0] = 0.5 * x[:, 1]
    return y


same("flipped twice", ANY, lambda x: x.flip(0).tanh().flip(0), undone=True)
same("rolled there and back", ANY, lambda x: x.roll(1, 0).relu().roll(-1, 0), undone=True)
same(
    "cut along the batch and joined again", ANY, lambda x: torch.cat([x[:1], x[1:]], 0), undone=True
)
same("sum over the batch, times nothing", ANY, lambda x: x + (x.sum(0) - x.sum(0)), undone=True)
same("branch on the batch size", ANY, lambda x: x * 2 if x.shape[0] > 4 else x - 1, sized=True)
same("divided by the batch size", ANY, lambda x: x / x.shape[0], sized=True)
same(
    "position in the batch",
    ANY,
    lambda x: x + torch.arange(x.shape[0]).reshape(-1, *[1] * (x.dim() - 1)),
    sized=True,
)
same("loop over samples", ANY, lambda x: torch.stack([row.tanh() for row in x]), fixes=True)


@independent("linear", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    out = rng.choice([2, 4, s[-1]])
    return nn.Linear(s[-1], out, bias=rng.random() < 0.7), (*s[:-1], out)


@independent("linear, flattened", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    return nn.Sequential(nn.Flatten(), nn.Linear(math.prod(s), 6)), (6,)


@independent("weights before x", (FLAT,))
def _(rng: random.Random, s: Shape) -> Made:
    return Holds(lambda x, w: (w @ x.T).T, torch.randn(s[0], s[0])), s


@independent("einsum", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    return Holds(lambda x, w: torch.einsum("b...f,gf->b...g", x, w), torch.randn(4, s[-1])), (
        *s[:-1],
        4,
    )


@independent("constant added", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    return Holds(lambda x, c: x + c, torch.randn(s)), s


@independent("indexed", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    order = torch.randperm(s[0])
    return Holds(lambda x, i: x[:, i], order), s


@independent("indexed, last", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    order = torch.randint(s[-1], (4,))
    return Holds(lambda x, i: x.index_select(-1, i), order), (*s[:-1], 4)


@independent("padded and cut", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: F.pad(x, (1, 1))[..., : x.shape[-1]], s


@independent("batch_norm, eval", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    layer = nn.BatchNorm2d(s[0]) if len(s) == IMAGE else nn.BatchNorm1d(s[0])
    nn.init.normal_(layer.running_mean)
    return layer.eval(), s


@independent("group_norm", ANY)
def _(rng: random.Random, s: Shape) -> Made:
    return nn.GroupNorm(2 if s[0] % 2 == 0 else 1, s[0]), s


@independent("tokens from features", (FLAT,))
def _(rng: random.Random, s: Shape) -> Made:
    return Holds(lambda x, w: x.unsqueeze(-1) * w, torch.randn(4)), (s[0], 4)


@independent("fixed by a literal", ANY, fixes=True)
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: x.reshape(6, -1).tanh().reshape(6, *s), s


@independent("fixed by a constant", ANY, fixes=True)
def _(rng: random.Random, s: Shape) -> Made:
    return Holds(lambda x, c: x + c, torch.randn(6, *s)), s


# -- independent: tokens ---------------------------------------------------------------------------


@independent("heads merged with the batch", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    tokens, width = s

    def attend(x: Tensor, q: nn.Module, k: nn.Module, v: nn.Module) -> Tensor:
        split = lambda t: (
            t.reshape(x.shape[0], tokens, 2, 2).permute(0, 2, 1, 3).reshape(-1, tokens, 2)
        )
        weights = torch.bmm(split(q(x)), split(k(x)).transpose(1, 2)).softmax(-1)
        return (
            torch.bmm(weights, split(v(x)))
            .reshape(x.shape[0], 2, tokens, 2)
            .permute(0, 2, 1, 3)
            .reshape(x.shape[0], tokens, 4)
        )

    return Uses(attend, *[nn.Linear(width, 4) for _ in range(3)]), (tokens, 4)


@independent("scaled_dot_product_attention", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    tokens, width = s

    def attend(x: Tensor, qkv: nn.Module) -> Tensor:
        q, k, v = (t.reshape(x.shape[0], tokens, 2, 2).transpose(1, 2) for t in qkv(x).chunk(3, -1))
        return (
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape[0], tokens, 4)
        )

    return Uses(attend, nn.Linear(width, 12)), (tokens, 4)


@independent("attention by hand", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    def attend(x: Tensor, q: nn.Module, k: nn.Module) -> Tensor:
        return (q(x) @ k(x).transpose(-1, -2)).softmax(-1) @ x

    return Uses(attend, *[nn.Linear(s[1], 4) for _ in range(2)]), s


@independent("multi-head attention, tokens first", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    def attend(x: Tensor, layer: nn.Module) -> Tensor:
        t = x.transpose(0, 1)
        return layer(t, t, t, need_weights=False)[0].transpose(0, 1)

    return Uses(attend, nn.MultiheadAttention(s[1], 1).eval()), s


@independent("time merged with the batch", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    tokens, width = s
    return Uses(
        lambda x, layer: layer(x.reshape(-1, width)).reshape(-1, tokens, 4), nn.Linear(width, 4)
    ), (tokens, 4)


@independent("time merged with the batch, permuted", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    tokens, width = s

    def run(x: Tensor, layer: nn.Module) -> Tensor:
        merged = x.transpose(0, 1).flatten(0, 1)  # tokens outside, samples inside
        return layer(merged).softmax(-1).unflatten(0, (tokens, x.shape[0])).transpose(0, 1)

    return Uses(run, nn.Linear(width, 4)), (tokens, 4)


def _recurrent(
    layer: Callable[..., nn.Module], first: bool
) -> Callable[[random.Random, Shape], Made]:
    def make(rng: random.Random, s: Shape) -> Made:
        if first:
            return Uses(lambda x, cell: cell(x)[0], layer(s[1], 3, batch_first=True)), (s[0], 3)
        return Uses(lambda x, cell: cell(x.transpose(0, 1))[0].transpose(0, 1), layer(s[1], 3)), (
            s[0],
            3,
        )

    return make


independent("LSTM, batch first", (TOKENS,))(_recurrent(nn.LSTM, True))
independent("LSTM, time first", (TOKENS,))(_recurrent(nn.LSTM, False))
independent("GRU, time first", (TOKENS,))(_recurrent(nn.GRU, False))


@independent("conv1d", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    return nn.Conv1d(s[0], 3, 3, padding=1), (3, s[1])


@independent("class token", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    return Holds(
        lambda x, c: torch.cat([c.expand(x.shape[0], -1, -1), x], 1)[:, : s[0]],
        torch.randn(1, 1, s[1]),
    ), s


@independent("tokens with tokens", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: torch.einsum("btf,buf->btu", x, x).clamp(-3, 3), (s[0], s[0])


@independent("mean of tokens", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: x.mean(1), (s[1],)


@independent("last token", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: x[:, -1], (s[1],)


@independent("patches of the batch as images", (TOKENS,))
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: F.avg_pool2d(x.unsqueeze(1), 3, 1, 1).squeeze(1), s


# -- independent: images ---------------------------------------------------------------------------


@independent("conv2d", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    return nn.Conv2d(s[0], 2, 3, padding=1), (2, *s[1:])


@independent("conv2d, by group", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    return nn.Conv2d(s[0], s[0], 3, padding=1, groups=s[0]), s


@independent("max_pool2d", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    return nn.MaxPool2d(3, 1, 1), s


@independent("pooled to nothing", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), (s[0],)


@independent("pixels as tokens", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: x.flatten(2).transpose(1, 2), (s[1] * s[2], s[0])


@independent("windows merged with the batch", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    c, h, w = s

    def run(x: Tensor) -> Tensor:
        # windows of 2 x 2
        t = x.reshape(-1, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(-1, 4, c)
        t = (t @ t.transpose(1, 2)).clamp(-3, 3).softmax(-1) @ t
        return t.reshape(-1, h // 2, w // 2, 2, 2, c).permute(0, 5, 1, 3, 2, 4).reshape(x.shape)

    return run, s


@independent("channels merged with the batch", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    c, h, w = s
    return Uses(
        lambda x, conv: conv(x.reshape(-1, 1, h, w)).reshape(-1, c, h, w),
        nn.Conv2d(1, 1, 3, padding=1),
    ), s


@independent("upsampled and cut", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    return lambda x: F.interpolate(x, scale_factor=2.0)[:, :, : s[1], : s[2]], s


@independent("pixel_shuffle", (IMAGE,))
def _(rng: random.Random, s: Shape) -> Made:
    return Uses(
        lambda x, conv: F.pixel_unshuffle(F.pixel_shuffle(conv(x), 2), 2), nn.Conv2d(s[0], 4, 1)
    ), (4, *s[1:])


# -- independent: further inputs -------------------------------------------------------------------


def mask_of(
    value: bool | None, *, per_sample: bool = False, batched: bool = True
) -> Callable[[Shape], Extra]:
    """A mask like a sample (or one value a sample): all False, all True, or (None) at random."""

    def extra(s: Shape) -> Extra:
        shape = (*[1] * len(s),) if per_sample else s
        drawn = lambda n: torch.rand((n, *shape) if batched else shape) < 0.5
        example = (
            drawn
            if value is None
            else (lambda n: torch.full((n, *shape) if batched else shape, value))
        )
        return Extra(example, drawn, batched)

    return extra


def _numbers(s: Shape) -> Extra:
    drawn = lambda n: torch.randint(0, s[0], (n,))
    return Extra(drawn, drawn)


def scale_of(s: Shape) -> Extra:
    drawn = lambda n: torch.randn(n, *[1] * len(s))
    return Extra(drawn, drawn)


for _value in (False, True, None):
    same(
        f"filled by a mask that is {_value}",
        ANY,
        lambda x, mask: x.masked_fill(mask, 0.5),
        extra=mask_of(_value),
    )
    same(
        f"chosen by one truth a sample that is {_value}",
        ANY,
        lambda x, mask: torch.where(mask, x, -0.5 * x),
        extra=mask_of(_value, per_sample=True),
    )
same("times a mask", ANY, lambda x, mask: x * mask, extra=mask_of(None))
same(
    "times a mask without batch", ANY, lambda x, mask: x * mask, extra=mask_of(None, batched=False)
)
same("times a number a sample", ANY, lambda x, scale: x * scale, extra=scale_of)
same(
    "entry chosen for each sample",
    ANY,
    lambda x, i: x + x[torch.arange(x.shape[0]), i].unsqueeze(1),
    extra=_numbers,
)
same(
    "entry gathered for each sample",
    ANY,
    lambda x, i: x + x.gather(1, i.reshape(-1, *[1] * (x.dim() - 1)).expand(-1, 1, *x.shape[2:])),
    extra=_numbers,
)


@independent("word for each sample", ANY, extra=_numbers)
def _(rng: random.Random, s: Shape) -> Made:
    return Uses(
        lambda x, i, table: x + table(i).reshape(-1, *[1] * (x.dim() - 1)), nn.Embedding(s[0], 1)
    ), s
