"""Classifiers of sentences: words become vectors in ``embedding``, the body reads vectors (samples,
positions, dim) and a mask."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boundlab.data.sentences import LONGEST, PADDING
from boundlab.errors import ArgumentError

WIDTH, HIDDEN = 64, 128
HEADS = 4
SCALE = 0.1
"""The standard deviation of untrained embeddings: with torch's, which is 1, substitutes begin so
far from each other that robust training makes the network constant."""


class Centred(nn.Module):
    """Layer norm without the variance: (x - mean) * weight + bias, as in Shi et al. 2020."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(-1, keepdim=True)) * self.weight + self.bias


class Transformer(nn.Module):
    """One layer: attention with 4 heads, feed-forward with ReLU, and the mean of the positions that
    hold words."""

    def __init__(self, classes: int, norm: Callable[[int], nn.Module] = Centred) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.randn(LONGEST, WIDTH) * 0.1)
        self.query, self.key, self.value, self.merge = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.before, self.between, self.behind = (norm(WIDTH) for _ in range(3))
        self.up = nn.Linear(WIDTH, HIDDEN)
        self.down = nn.Linear(HIDDEN, WIDTH)
        self.out = nn.Linear(WIDTH, classes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.before(x + self.places[: x.shape[1]])
        # (samples, heads, positions, dim)
        heads = lambda y: y.unflatten(2, (HEADS, -1)).transpose(1, 2)
        scores = (
            heads(self.query(x)) @ heads(self.key(x)).transpose(2, 3) / math.sqrt(WIDTH / HEADS)
        )
        shares = scores.masked_fill(~mask[:, None, None], -torch.inf).softmax(-1)
        x = self.between(x + self.merge((shares @ heads(self.value(x))).transpose(1, 2).flatten(2)))
        x = self.behind(x + self.down(F.relu(self.up(x))))
        return self.out(_mean(x, mask))


class Lstm(nn.Module):
    """One layer in both directions, and the mean of its states at the positions that hold words.
    Each direction has an LSTM of its own: the way back reads every sentence from its own last word,
    so that no padding comes before any word, as in packed sequences."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.there, self.back = (nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(2))
        self.out = nn.Linear(2 * WIDTH, classes)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        backwards = (mask.sum(1, keepdim=True) - 1 - places).clamp(min=0)  # (samples, positions)
        turned = x.gather(1, backwards.unsqueeze(2).expand(-1, -1, x.shape[2]))
        states = [
            _mean(lstm(words)[0], mask) for lstm, words in ((self.there, x), (self.back, turned))
        ]
        return self.out(torch.cat(states, 1))


def _mean(x: Tensor, mask: Tensor) -> Tensor:
    kept = mask.unsqueeze(2).to(x.dtype)
    return (x * kept).sum(1) / kept.sum(1).clamp(min=1)


class TextClassifier(nn.Module):
    """Word numbers (samples, positions) -> logits."""

    def __init__(self, body: nn.Module, words: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, WIDTH, padding_idx=PADDING)
        with torch.no_grad():
            self.embedding.weight.mul_(SCALE)
        self.body = body

    def forward(self, words: Tensor) -> Tensor:
        found: Tensor = self.body(self.embedding(words), words != PADDING)
        return found


TEXT_MODELS: dict[str, Callable[[int], nn.Module]] = {
    "transformer": Transformer,
    "transformer-ln": lambda classes: Transformer(classes, nn.LayerNorm),
    "lstm": Lstm,
}
"""name -> number of classes -> body; "-ln": with the standard layer norm."""


def build_text(name: str, words: int, classes: int) -> TextClassifier:
    if name not in TEXT_MODELS:
        raise ArgumentError(
            f"there is no model of sentences {name!r}; there are: {', '.join(TEXT_MODELS)}"
        )
    return TextClassifier(TEXT_MODELS[name](classes), words)
