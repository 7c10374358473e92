"""What became of subdomains."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Counts:
    """Subdomains: opened is bounded ones; each was proved, found empty, split, or is still open."""

    opened: int = 0
    proved: int = 0
    empty: int = 0
    split: int = 0

    def follow(self, other: Counts, begun: int) -> None:
        """Add what another search has done that began with so many of this one's open boxes."""
        self.opened += other.opened - begun
        self.proved += other.proved
        self.empty += other.empty
        self.split += other.split

    def __str__(self) -> str:
        return f"{self.opened} domains, {self.proved} proved, {self.empty} empty"

    def add_up(self, still_open: int) -> bool:
        return self.opened == self.proved + self.empty + self.split + still_open
