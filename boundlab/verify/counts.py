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

    def __str__(self) -> str:
        return f"{self.opened} domains, {self.proved} proved, {self.empty} empty"

    def add_up(self, still_open: int) -> bool:
        return self.opened == self.proved + self.empty + self.split + still_open
