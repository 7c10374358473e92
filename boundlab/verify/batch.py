"""How many domains are bounded at once."""

from __future__ import annotations

SHRINK = 4
"""By how much batches become smaller that do not fit into memory or time."""


class BatchSize:
    """A number of domains that follows the time they take: a batch should take about ``seconds``,
    and has at least ``least`` and at most ``most`` domains, unless they do not fit."""

    def __init__(self, first: int, least: int, most: int, seconds: float) -> None:
        self.size = first
        self.least = least
        self.most = most
        self.seconds = seconds

    def follow(self, count: int, seconds: float) -> None:
        """Learn from a batch of so many domains that took so long."""
        if seconds > 2 * self.seconds:
            self.size = max(self.size // 2, self.least)
        elif seconds < self.seconds / 2 and count >= self.size // 2:
            self.size = min(2 * self.size, self.most)

    def shrink(self) -> None:
        """A batch did not fit into memory or time."""
        self.size = max(self.size // SHRINK, 2)
