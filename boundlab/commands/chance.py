"""Whether a classifier is right no more often than by chance: then its images are most likely not
what it was trained on."""

from __future__ import annotations

import logging
import math

import torch

log = logging.getLogger("boundlab")

FEWEST = 20
"""Images from which on a share tells something."""
LEVEL = 0.05
"""Guesses do as well with at least this probability: then they may be what is seen."""


def as_good_as_guessing(correct: int, count: int, classes: int) -> bool:
    """Whether guesses among the classes could well be right for so many of ``count`` images."""
    if count < FEWEST or classes < 2:
        return False
    return guessed(correct, count, 1 / classes) >= LEVEL


def guessed(correct: int, count: int, chance: float) -> float:
    """The probability that at least so many of ``count`` guesses are right: the upper tail of a
    binomial distribution."""
    hits = torch.arange(correct, count + 1, dtype=torch.float64)
    misses = count - hits
    ways = math.lgamma(count + 1) - torch.lgamma(hits + 1) - torch.lgamma(misses + 1)
    return float((ways + hits * math.log(chance) + misses * math.log1p(-chance)).exp().sum())


def warn_of_guesses(correct: int, count: int, classes: int) -> None:
    """Warn of a model that seems to guess, and say what the likely causes are."""
    if as_good_as_guessing(correct, count, classes):
        log.warning(
            "only %d of %d images are classified correctly, no more than guesses among %d classes "
            "would be: are the images what the model was trained on? Check the order of their "
            "values (--layout hwc, --shape), the normalisation (--mean, --std), their range "
            "(--range; bytes are divided by 255), the labels and --weights",
            correct,
            count,
            classes,
        )
