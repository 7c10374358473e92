"""How eps, beta and kappa move during training, step by step.

A schedule maps progress, in epochs (a whole number plus the share of the epoch that is done), to a
share between 0 and 1 of the way from its first to its last value. They are pure functions of
progress, except the adaptive one, whose state goes into checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from boundlab.errors import ArgumentError

KINDS = ("fixed", "linear", "smooth", "adaptive")
MIDDLE = 0.4
"""The share of a smooth schedule's length that is spent in its slow beginning."""
STEEPNESS = 4.0
"""The power of the slow beginning."""


@dataclass(frozen=True)
class Schedule:
    """Moves from 0 to 1 between the epochs ``start`` and ``start + length``.

    kind: "fixed" (1 from the start on), "linear", "smooth" (slow beginning, then linear, without a
    kink between them), or "adaptive" (see :class:`Adaptive`).
    """

    kind: str = "smooth"
    start: float = 0.0
    length: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ArgumentError(f"a schedule is one of {', '.join(KINDS)}, not {self.kind!r}")
        if not self.start >= 0 or not self.length >= 0:
            raise ArgumentError(
                f"a schedule begins at an epoch >= 0 and takes >= 0 epochs, not {self.start} and "
                f"{self.length}"
            )

    def share(self, progress: float) -> float:
        """The share of the way at a progress in epochs."""
        if progress < self.start:
            return 0.0
        if self.kind == "fixed" or self.length == 0 or progress >= self.start + self.length:
            return 1.0
        t = (progress - self.start) / self.length
        if self.kind == "linear":
            return t
        return _smooth(t)


def _smooth(t: float) -> float:
    """c t^p up to the middle, then a straight line to (1, 1), with equal slope where they meet.

    With m the middle: the curve ends at c m^p with slope c p m^(p-1), and from there the line must
    rise by 1 - c m^p over 1 - m. So c (m^p + p m^(p-1) (1 - m)) = 1.
    """
    m, p = MIDDLE, STEEPNESS
    c = 1 / (m**p + p * m ** (p - 1) * (1 - m))
    if t < m:
        return c * t**p
    return c * m**p + c * p * m ** (p - 1) * (t - m)


@dataclass
class Adaptive:
    """Grows while training copes: by a step whenever the running robust loss lies below ``target``,
    else it waits.

    step: the share of the way of one step of training. The state is the share itself and the
    running mean of the loss.
    """

    step: float
    target: float
    memory: float = 0.99
    state: dict[str, float] = field(default_factory=lambda: {"share": 0.0, "loss": 0.0})

    def note(self, loss: float) -> None:
        mean = self.state["loss"]
        if mean != 0.0:
            loss = self.memory * mean + (1 - self.memory) * loss
        self.state["loss"] = loss
        if self.state["loss"] <= self.target:
            self.state["share"] = min(1.0, self.state["share"] + self.step)

    @property
    def share(self) -> float:
        return self.state["share"]

    def load(self, state: Mapping[str, float]) -> None:
        self.state = {"share": float(state["share"]), "loss": float(state["loss"])}


def between(first: float, last: float, share: float) -> float:
    """The value at a share of the way."""
    return first + (last - first) * share
