"""The answer to a question about a property."""

from __future__ import annotations

from dataclasses import dataclass

from boundlab.attacks import Attack

HOLDS, VIOLATED, UNKNOWN = "holds", "violated", "unknown"


@dataclass(frozen=True)
class Stage:
    """What one stage of a search did: its name, how long it took, and what came of it."""

    name: str
    seconds: float
    outcome: str

    def __str__(self) -> str:
        return f"{self.name}: {self.outcome} ({self.seconds:.2f} s)"


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether a property holds.

    status: "holds", "violated" or "unknown". counterexample: an input of the region, with the
    model's own output there, that violates the property; None if there is none. bound: how far from
    a proof the search is, the least lower bound of what must be positive; stages: what was done,
    last what was last at work, which decided if anything is decided; domains: how many subdomains
    were bounded; seconds: how long it took. arithmetic: of a proof, what it holds for: "real" is
    the network evaluated exactly, "float32" or "float64" as executed in that precision; None if
    rounding was not accounted for everywhere (docs/floating-point.md).
    """

    status: str
    counterexample: Attack | None
    bound: float
    stages: tuple[Stage, ...]
    domains: int
    seconds: float
    arithmetic: str | None = None

    def __str__(self) -> str:
        lines = [f"{self.status} ({self.seconds:.2f} s, {self.domains} domains)"]
        if self.counterexample is not None:
            missed = -float(self.counterexample.margin)
            lines.append(f"  a counterexample breaks it by {missed:.4g}")
        elif self.status == UNKNOWN:
            lines.append(f"  the least bound is {self.bound:.4g}; a proof needs one above 0")
        if self.status == HOLDS and self.arithmetic is not None:
            lines.append(f"  proved in {self.arithmetic} arithmetic")
        lines += [f"  {stage}" for stage in self.stages]
        return "\n".join(lines)
