"""Attention, transformer encoders, and what mixes tokens in their place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.case import IMAGE, NetworkCase


class SelfAttention(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.attention, self.head = (
            nn.MultiheadAttention(4, 2, batch_first=batch_first),
            nn.Linear(4, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.permute(1, 0, 2)
        y, _ = self.attention(x, x, x, need_weights=not self.batch_first)
        return self.head(y if self.batch_first else y.permute(1, 0, 2)).flatten(1)


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = (
            nn.MultiheadAttention(4, 2, kdim=3, vdim=3, batch_first=True),
            nn.LayerNorm(4, eps=1e-2),
        )

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        y, weights = self.attention(x, memory, memory)
        return self.norm(x + y), weights


class Encoder(nn.Module):
    def __init__(self, layers: int = 1, mask: str = "none", **options: Any) -> None:
        super().__init__()
        options = {"activation": "relu", "layer_norm_eps": 1e-2, "batch_first": True, **options}
        self.batch_first = options["batch_first"]
        layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=6, **options)
        self.encoder = layer if layers == 1 else nn.TransformerEncoder(layer, layers)
        self.mask, self.head = mask, nn.Linear(4, 2)
        self.register_buffer("padding", torch.tensor([[False, False, True]]))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        time = x.shape[1] if self.batch_first else x.shape[0]
        if self.mask == "causal":
            x = self.encoder(
                x, nn.Transformer.generate_square_subsequent_mask(time), is_causal=True
            )
        # torch looks at the values of the mask to see that it is causal
        elif self.mask == "causal-detected":
            x = self.encoder(x, nn.Transformer.generate_square_subsequent_mask(time))
        elif self.mask == "padding":
            x = self.encoder(x, src_key_padding_mask=self.padding.expand(x.shape[0], -1))
        else:
            x = self.encoder(x)
        return self.head(x.mean(1) if self.batch_first else x[0])


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(2, 4, 3, stride=3)
        self.cls, self.position = (
            nn.Parameter(torch.randn(1, 1, 4)),
            nn.Parameter(0.1 * torch.randn(1, 5, 4)),
        )
        layer = nn.TransformerEncoderLayer(
            4, 2, 6, activation="gelu", batch_first=True, norm_first=True, layer_norm_eps=1e-2
        )
        self.encoder = nn.TransformerEncoder(
            layer, 1, norm=nn.LayerNorm(4, eps=1e-2), enable_nested_tensor=False
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.encoder(x)[:, 0])


class HandMadeAttention(nn.Module):
    """Attention with views and permutes as einops writes them, heads merged into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(4, 12, bias=False), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = (
            self.qkv(x)
            .reshape(b, t, 3, 2, d // 2)
            .permute(2, 0, 3, 1, 4)
            .reshape(3, b * 2, t, d // 2)
        )
        weights = F.softmax(torch.bmm(q, k.transpose(1, 2)) / math.sqrt(d // 2), dim=-1)
        y = torch.bmm(weights, v).view(b, 2, t, d // 2).transpose(1, 2).contiguous().view(b, t, d)
        return self.out(y).sum(1)


class CausalAttention(nn.Module):
    """As in a small GPT: a mask buffer and masked_fill."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("tril", torch.tril(torch.ones(3, 3)))

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * 4**-0.5
        scores = scores.masked_fill(self.tril[:t, :t] == 0, float("-inf"))
        return scores.softmax(dim=-1) @ self.value(x)


class AttentionPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score, self.head = nn.Linear(4, 1), nn.Linear(4, 2)
        self.query = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        a = torch.softmax(self.score(torch.tanh(x)).squeeze(-1) + x @ self.query, dim=1)
        return self.head(torch.einsum("bt,btd->bd", a, x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(2, 4, 3, 3)
        self.norm1, self.norm2 = nn.LayerNorm(4, eps=1e-2), nn.LayerNorm(4, eps=1e-2)
        self.token, self.channel = (
            nn.Sequential(nn.Linear(4, 6), nn.GELU(approximate="tanh"), nn.Linear(6, 4))
            for _ in range(2)
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channel(self.norm2(x))
        return self.head(x.mean(dim=1))


class Windows(nn.Module):
    """Shifted windows as in a Swin block: the windows of all samples merged in dimension 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Conv2d(2, 4, 1), nn.Linear(4, 12), nn.Linear(4, 2)
        self.table = nn.Parameter(0.1 * torch.randn(9, 2))
        where = torch.stack(
            torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")
        ).flatten(1)
        relative = (where[:, :, None] - where[:, None, :] + 1).permute(1, 2, 0)
        self.register_buffer("index", relative[..., 0] * 3 + relative[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.embed(x).permute(0, 2, 3, 1), (-1, -1), dims=(1, 2))
        b, h, w, c = x.shape
        windows = (
            x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, c)
        )
        q, k, v = self.qkv(windows).reshape(-1, 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(4, 4, 2).permute(2, 0, 1)
        attention = (q @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(-1)
        x = (attention @ v).transpose(1, 2).reshape(-1, 4, c)
        x = x.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return self.head(x.mean(dim=(1, 2)))


def encoder(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Encoder(**options)


NETWORKS: dict[str, NetworkCase] = {
    "attention": NetworkCase(lambda: SelfAttention(True), ((3, 4),), 0.05),
    "attention-time-first": NetworkCase(lambda: SelfAttention(False), ((3, 4),), 0.05),
    "attention-cross": NetworkCase(CrossAttention, ((2, 4), (3, 3)), 0.02),
    "attention-by-hand": NetworkCase(HandMadeAttention, ((3, 4),), 0.05),
    "attention-causal": NetworkCase(CausalAttention, ((3, 4),), 0.05),
    "attention-pooling": NetworkCase(AttentionPooling, ((3, 4),), 0.05),
    "attention-windows": NetworkCase(Windows, ((2, 4, 4),), 0.05),
    "encoder-post-relu": NetworkCase(encoder(), ((3, 4),), 0.01),
    "encoder-pre-gelu": NetworkCase(encoder(norm_first=True, activation="gelu"), ((3, 4),), 0.01),
    "encoder-time-first": NetworkCase(
        encoder(batch_first=False, activation="gelu"), ((3, 4),), 0.01
    ),
    "encoder-two-causal": NetworkCase(encoder(layers=2, mask="causal"), ((3, 4),), 0.002),
    "encoder-causal-detected": NetworkCase(
        encoder(layers=2, mask="causal-detected"), ((3, 4),), 0.002
    ),
    "encoder-two-padding": NetworkCase(
        encoder(layers=2, mask="padding", activation="gelu"), ((3, 4),), 0.002
    ),
    "encoder-two-pre": NetworkCase(encoder(layers=2, norm_first=True), ((3, 4),), 0.005),
    "vit": NetworkCase(ViT, (IMAGE,), 0.005),
    "mixer": NetworkCase(Mixer, (IMAGE,), 0.005),
}
