"""What reads one word at a time is bounded choice by choice."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.methods.choices import ExactPerPosition
from boundlab.net.questions import Options
from tests.helpers.words import draw_words

# -- what reads one word at a time -----------------------------------------------------------------


class Parts(nn.Module):
    """One position at a time, or several, by different ways; the result squared, so that its bounds
    matter."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.layer, self.filter = (
            way,
            nn.Linear(2, 3).double(),
            nn.Conv1d(2, 3, 2).double(),
        )

    def forward(self, x: Tensor) -> Tensor:
        ways: dict[str, Callable[[], Tensor]] = {
            "linear": lambda: self.layer(x),
            "centred": lambda: self.layer(x - x.mean(2, keepdim=True)),
            "turned": lambda: self.layer(x).flip(1).transpose(1, 2).flatten(1),
            "gathered": lambda: self.layer(x[:, [2, 0, 0]]),
            "cut": lambda: torch.cat([self.layer(x)[:, 1], 2 * x[:, 3]], 1),
            "mean": lambda: self.layer(x).mean(1),
            "neighbours": lambda: self.filter(x.transpose(1, 2)),
            "two": lambda: self.layer(x)[:, :-1] - self.layer(x)[:, 1:],
        }
        return ways[self.way]() ** 2


@pytest.mark.parametrize(
    "way", ["linear", "centred", "turned", "gathered", "cut", "mean", "neighbours", "two"]
)
@pytest.mark.parametrize("budget", [0, 1, 2, None])
def test_affine_functions_of_words_are_bounded_exactly(way: str, budget: int | None) -> None:
    """By interval arithmetic alone, against every member."""
    torch.manual_seed(1)
    model = Parts(way)
    x, others, allowed = draw_words(3, positions=4)
    region = bl.Words(x, others, allowed, budget, eps=0.7)
    found = bl.capture(model, x).bounds(region, method="ibp")
    choices = [[None, *allowed[0, p].nonzero().flatten().tolist()] for p in range(4)]
    values = []
    for chosen in itertools.product(*choices):
        if budget is None or sum(k is not None for k in chosen) <= budget:
            sentence = x[:1].clone()
            for place, k in enumerate(chosen):
                if k is not None:
                    sentence[0, place] = torch.lerp(
                        x[0, place], others[0, place, k], torch.tensor(0.7, dtype=x.dtype)
                    )
            values.append(model(sentence)[0])
    exact = torch.stack(values).amax(0)
    # the largest square is at one of the values themselves
    torch.testing.assert_close(found.upper[0], exact)


def test_what_reads_several_words_is_known() -> None:
    x, others, allowed = draw_words(3, positions=5)
    for way in ("linear", "centred", "turned", "gathered", "cut", "mean", "neighbours", "two"):
        net = bl.capture(Parts(way), x)
        analysis = net.ask((bl.Words(x, others, allowed, 1),), {}, Options("ibp")).analysis
        versions = ExactPerPosition.of(analysis)
        assert versions is not None
        last = [name for name in analysis.plan.last_affine if name not in analysis.regions]
        assert last and all(
            versions.is_apart(name) == (way not in ("mean", "neighbours", "two")) for name in last
        ), way


class Chosen(nn.Module):
    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask.unsqueeze(2), x, 0.0).sum(1) ** 2


def test_what_reads_one_word_may_read_two_with_another_mask() -> None:
    x, others, allowed = draw_words(5, positions=3)
    region, one = bl.Words(x, others, allowed, 3), torch.tensor([[True, False, False]] * 2)
    net = bl.capture(Chosen(), x, one)
    for mask in (one, torch.ones_like(one), one):
        bounds = net.bounds(region, mask, method="ibp")
        for seed in range(200):
            value = Chosen()(region.sample(torch.Generator().manual_seed(seed)), mask)
            assert (value <= bounds.upper + 1e-9).all() and (value >= bounds.lower - 1e-9).all()
