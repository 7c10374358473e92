"""How long a search takes, from how its bound rises.

A binary tree with twice as many leaves is one level deeper, and a level raises the least bound by
about as much as the one before. So the bound is about linear in the logarithm of the number of
domains, and the time in that number.
"""

from __future__ import annotations

import math

DOUBLINGS = 2
"""Over how many doublings of the domains the rise of the bound is measured."""
FEWEST = 64
"""Domains that must have been bounded before anything is expected."""


def rate(before: float, after: float, seconds: float) -> float:
    """How fast a least bound rises, as the share of what it lacks to 0 that it gains in a second;
    0 if nothing is known of it."""
    if after >= 0:
        return math.inf
    if not (-math.inf < before < 0 and after > before and seconds > 0):
        return 0.0
    return math.log(before / after) / seconds


class Trend:
    """The least bounds of a search after so many domains."""

    def __init__(self) -> None:
        self.points: list[tuple[int, float]] = []
        self.domains = 0
        self.seconds = 0.0

    def note(self, domains: int, bound: float, seconds: float) -> None:
        """After ``domains`` more, which took some seconds, the least bound is ``bound``."""
        self.domains += domains
        self.seconds += seconds
        self.points.append((self.domains, bound))

    @property
    def expected_seconds(self) -> float:
        """How much longer until the least bound is 0; infinite if nothing is known."""
        if self.domains < FEWEST:
            return math.inf
        bound = self.points[-1][1]
        rise = (bound - self._bound_at(self.domains / 2**DOUBLINGS)) / DOUBLINGS
        if not 0 < rise < math.inf:
            return math.inf
        doublings = max(-bound, 0.0) / rise
        return self.seconds * (2.0 ** min(doublings, 100.0) - 1)

    def _bound_at(self, domains: float) -> float:
        """The least bound after so many domains."""
        return max((bound for count, bound in self.points if count <= domains), default=-math.inf)
