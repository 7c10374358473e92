"""Attention and recurrent cells written by hand."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program, weights

TOKENS, WIDTH, HEADS = 3, 4, 2
SIZE = WIDTH // HEADS


def rotated(x: Tensor) -> Tensor:
    """Rotary embedding of pairs of features; x: (batch, heads, tokens, size)."""
    angles = torch.arange(x.shape[2]).unsqueeze(1) * torch.tensor([1.0, 1.0])
    half = torch.cat([-x[..., 1:], x[..., :1]], -1)
    return x * angles.cos() + half * angles.sin()


def rotated_as_complex(x: Tensor) -> Tensor:
    """The same with complex numbers, as in the first public Llama."""
    angles = torch.arange(x.shape[2]).float().unsqueeze(1)
    turns = torch.polar(torch.ones_like(angles), angles)
    pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2))
    return torch.view_as_real(pairs * turns).flatten(-2)


class Attention(nn.Module):
    """Self-attention in one of the ways that people write it."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.shared = 1 if kind == "grouped" else HEADS
        self.q, self.k = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, self.shared * SIZE)
        self.v, self.out = nn.Linear(WIDTH, self.shared * SIZE), nn.Linear(WIDTH, WIDTH)
        self.register_buffer("later", torch.ones(TOKENS, TOKENS).triu(1).bool())

    def heads(self, x: Tensor, count: int) -> Tensor:
        return x.view(x.shape[0], TOKENS, count, SIZE).transpose(1, 2)

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        if self.kind == "einsum":
            return torch.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(SIZE)
        return q @ k.transpose(-1, -2) / math.sqrt(SIZE)

    def masked(self, scores: Tensor) -> Tensor:
        if self.kind == "masked-fill":
            return scores.masked_fill(self.later, -torch.inf)
        if self.kind == "where":
            return torch.where(self.later, -1e9, scores)
        if self.kind == "added":
            return scores + torch.zeros(TOKENS, TOKENS).masked_fill(self.later, -1e4)
        if self.kind == "alibi":
            places = torch.arange(TOKENS)
            slopes = torch.tensor([0.5, 0.25]).view(HEADS, 1, 1)
            return scores - slopes * (places[:, None] - places[None, :]).abs()
        if self.kind == "softcap":
            return 2 * torch.tanh(scores / 2)
        return scores

    def forward(self, x: Tensor) -> Tensor:
        q, k = self.heads(self.q(x), HEADS), self.heads(self.k(x), self.shared)
        v = self.heads(self.v(x), self.shared)
        if self.kind == "grouped":
            k, v = (t.repeat_interleave(HEADS, dim=1) for t in (k, v))
        if self.kind == "rotary":
            q, k = rotated(q), rotated(k)
        if self.kind == "rotary-complex":
            q, k = rotated_as_complex(q), rotated_as_complex(k)
        if self.kind == "normalised":
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        share = torch.softmax(self.masked(self.scores(q, k)), -1)
        if self.kind == "einsum":
            return self.out(torch.einsum("bhij,bhjd->bihd", share, v).flatten(2))
        return self.out((share @ v).transpose(1, 2).reshape(x.shape))


class LinearAttention(nn.Module):
    """Feature maps in place of the softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = F.elu(q) + 1, F.elu(k) + 1
        memory = torch.einsum("btd,bte->bde", k, v)
        norm = torch.einsum("btd,bd->bt", q, k.sum(1))
        return torch.einsum("btd,bde->bte", q, memory) / norm.unsqueeze(-1)


class Cached(nn.Module):
    """One step of decoding: keys and values of earlier tokens are given."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor, keys: Tensor, past: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unsqueeze(1).chunk(3, -1)
        keys, past = torch.cat([keys, k], 1), torch.cat([past, v], 1)
        return F.scaled_dot_product_attention(q, keys, past).squeeze(1)


def cache(batch: int) -> Tensor:
    return torch.linspace(-1, 1, batch * 2 * WIDTH).view(batch, 2, WIDTH)


class Block(nn.Module):
    """A pre-norm block by hand: RMS norm, rotary attention, SwiGLU."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = Attention("rotary")
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(6, WIDTH)
        self.scale = nn.Parameter(torch.ones(WIDTH))

    def norm(self, x: Tensor) -> Tensor:
        return self.scale * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm(x))
        gate, value = self.up(self.norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * value)


class Recurrent(nn.Module):
    """A recurrent cell by hand over four steps."""

    def __init__(self, cell: str) -> None:
        super().__init__()
        self.cell = cell
        self.of_x, self.of_h = nn.Linear(2, 9), nn.Linear(3, 9)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[0], 3)
        for step in x.unbind(1):
            a, b, c = self.of_x(step).chunk(3, 1)
            p, q, r = self.of_h(h).chunk(3, 1)
            if self.cell == "gru":
                update, reset = torch.sigmoid(a + p), torch.sigmoid(b + q)
                h = torch.lerp(torch.tanh(c + reset * r), h, update)
            elif self.cell == "minimal":
                share = torch.sigmoid(a + p)
                h = (1 - share) * h + share * torch.tanh(b)
            else:
                h = torch.tanh(a + p)
        return h


class StateSpace(nn.Module):
    """A selective scan: the decay of the state depends on the input."""

    def __init__(self) -> None:
        super().__init__()
        self.rate, self.of_x = nn.Linear(2, 3), nn.Linear(2, 3)
        self.A, self.out = nn.Parameter(weights(3).exp()), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        state, outputs = x.new_zeros(x.shape[0], 3), []
        for t in range(x.shape[1]):
            delta = F.softplus(self.rate(x[:, t]))
            state = torch.exp(-delta * self.A) * state + delta * self.of_x(x[:, t])
            outputs.append(self.out(state))
        return torch.stack(outputs, 1)


KINDS = (
    "plain", "einsum", "masked-fill", "where", "added", "alibi", "softcap", "grouped", "rotary",
    "normalised",
)  # fmt: skip
PROGRAMS = {
    **{
        f"attention-{kind}": Program(lambda kind=kind: Attention(kind), ((TOKENS, WIDTH),))
        for kind in KINDS
    },
    "attention-rotary-complex": Program(lambda: Attention("rotary-complex"), ((TOKENS, WIDTH),)),
    "attention-linear": Program(LinearAttention, ((TOKENS, WIDTH),)),
    "attention-cached": Program(Cached, ((WIDTH,),), given=(cache, cache)),
    "transformer-block": Program(Block, ((TOKENS, WIDTH),)),
    "recurrent-plain": Program(lambda: Recurrent("plain"), ((4, 2),)),
    "recurrent-gru": Program(lambda: Recurrent("gru"), ((4, 2),)),
    "recurrent-minimal": Program(lambda: Recurrent("minimal"), ((4, 2),)),
    "state-space": Program(StateSpace, ((3, 2),)),
}
