"""A warning of models that do no better than guesses."""

from __future__ import annotations

import logging
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from boundlab.commands.certify import certify
from boundlab.commands.chance import FEWEST, as_good_as_guessing, guessed


@settings(deadline=None)
@given(st.integers(1, 60), st.integers(2, 1000), st.data())
def test_the_tail_is_that_of_the_binomial_distribution(
    count: int, classes: int, data: st.DataObject
) -> None:
    correct = data.draw(st.integers(0, count))
    chance = Fraction(1, classes)
    exact = sum(
        math.comb(count, hits) * chance**hits * (1 - chance) ** (count - hits)
        for hits in range(correct, count + 1)
    )
    assert guessed(correct, count, 1 / classes) == pytest.approx(float(exact), rel=1e-9)


@pytest.mark.parametrize(
    ("correct", "count", "classes", "expected"),
    [
        (9, 100, 10, True),  # images in a wrong order of values
        (0, 100, 10, True),
        (14, 100, 10, True),
        (30, 100, 10, False),
        (1000, 10_000, 10, True),
        (1200, 10_000, 10, False),
        (55, 100, 2, True),
        (70, 100, 2, False),
        (0, FEWEST - 1, 10, False),  # too few to tell
        (FEWEST, FEWEST, 1, False),
    ],
)
def test_when_guesses_do_as_well(correct: int, count: int, classes: int, expected: bool) -> None:
    assert as_good_as_guessing(correct, count, classes) == expected


@pytest.mark.parametrize("right", [True, False])
def test_the_warning_names_likely_causes(right: bool, caplog: pytest.LogCaptureFixture) -> None:
    torch.manual_seed(0)
    model, images = nn.Linear(4, 5), torch.rand(40, 4)
    labels = model(images).argmax(1)
    if not right:
        labels = (labels + 1) % 5
    with caplog.at_level(logging.WARNING, "boundlab"):
        certify(model, images, labels, [0.01], ["ibp"], attack=None)
    assert bool(caplog.messages) != right
    for cause in ("0 of 40", "5 classes", "--layout hwc", "--mean", "--std", "--range"):
        assert right or cause in caplog.text
