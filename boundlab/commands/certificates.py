"""What a certification found: small frozen objects, every figure derived from margins and
counterexamples."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

import torch
from torch import Tensor

from boundlab.commands.counterexamples import Counterexamples


class Verdict(StrEnum):
    """What is known of an image at a radius."""

    PROVED = "proved"
    FALSIFIED = "falsified"
    OPEN = "open"
    WRONG = "wrong"
    """The image itself is classified wrongly."""


@dataclass(frozen=True)
class Task:
    """What was certified: fingerprints of model and data, and the set around each image. name: what
    its owner calls it; arithmetic: that bounds are proved for."""

    model: str
    data: str
    images: int
    classes: int
    norm: str
    valid: tuple[float, float] | None
    name: str = ""
    arithmetic: str | None = None


@dataclass(frozen=True, eq=False)
class Run:
    """One method at one radius. margins: lower bounds of f_y - f_k, (images so far, classes - 1) in
    float64; class k stands at k, or at k - 1 behind the label y. seconds: spent on bounds in all.
    timeout: the seconds that verification may take for an image; None for other methods."""

    method: str
    radius: float
    margins: Tensor
    seconds: float
    timeout: float | None = None

    @property
    def least(self) -> Tensor:
        """The smallest margin of every image: (images,); NaN if any of them is."""
        return self.margins.amin(1)

    @property
    def positive(self) -> Tensor:
        """Whether all margins of an image are above zero: (images so far,). NaN and infinity prove
        nothing."""
        return ((self.margins > 0) & self.margins.isfinite()).all(1)


@dataclass(frozen=True, eq=False)
class AttackRun:
    """The attack on some images at one radius, with so many steps and restarts.

    images: their numbers, (attacked,). margins: the least f_y - f_k that was found for each, with
    its class k in ``classes``: (attacked,); it is a counterexample where it is at most 0.
    """

    radius: float
    steps: int
    restarts: int
    images: Tensor
    classes: Tensor
    margins: Tensor
    seconds: float

    @staticmethod
    def none(radius: float, steps: int, restarts: int) -> AttackRun:
        numbers = torch.zeros(0, dtype=torch.long)
        return AttackRun(radius, steps, restarts, numbers, numbers, torch.zeros(0).double(), 0.0)

    @property
    def violated(self) -> Tensor:
        return self.margins <= 0

    def taken(self, chosen: Tensor) -> AttackRun:
        """What was found for some of the images."""
        return AttackRun(
            self.radius,
            self.steps,
            self.restarts,
            self.images[chosen],
            self.classes[chosen],
            self.margins[chosen],
            self.seconds,
        )

    def joined(self, other: AttackRun) -> AttackRun:
        """Also what was found for other images, in more time."""
        return AttackRun(
            self.radius,
            self.steps,
            self.restarts,
            torch.cat([self.images, other.images]),
            torch.cat([self.classes, other.classes]),
            torch.cat([self.margins, other.margins]),
            self.seconds + other.seconds,
        )


@dataclass(frozen=True)
class Row:
    """The summary of one run.

    verified counts the images that are classified correctly and whose margins are all above zero;
    NaN and infinity never count. falsified counts those that are classified correctly and have a
    counterexample. mean_margin is the mean over all images, right or wrong, of the smallest margin.
    seconds are per image.
    """

    method: str
    radius: float
    images: int
    correct: int
    verified: int
    falsified: int
    mean_margin: float
    seconds: float

    @property
    def share(self) -> float:
        """Verified images as a share of all images."""
        return self.verified / self.images

    @property
    def open(self) -> int:
        """Images that are classified correctly, and neither verified nor falsified."""
        return self.correct - self.verified - self.falsified


@dataclass(frozen=True, eq=False)
class Certification:
    """All runs over the same images. labels, predictions: (N,); a prediction is -1 where an output
    is NaN. attacks, examples: what was attacked, and found."""

    task: Task
    labels: Tensor
    predictions: Tensor
    runs: tuple[Run, ...]
    attacks: tuple[AttackRun, ...] = ()
    examples: Counterexamples | None = None

    @property
    def correct(self) -> Tensor:
        """Which images are classified correctly: (N,)."""
        return self.predictions == self.labels

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.method for run in self.runs))

    @property
    def radii(self) -> tuple[float, ...]:
        """Those of the runs, or of the attacks if there are no runs."""
        return tuple(dict.fromkeys(run.radius for run in self.runs or self.attacks))

    def run(self, method: str, radius: float) -> Run:
        return next(run for run in self.runs if (run.method, run.radius) == (method, radius))

    def verified(self, run: Run) -> Tensor:
        """Which images a run proves safe: (N,). NaN and infinity prove nothing."""
        return self.correct & run.positive

    def falsified(self, radius: float) -> Tensor:
        """Which images that are classified correctly have a counterexample in the ball of a radius:
        (N,)."""
        if self.examples is None:
            return torch.zeros_like(self.correct)
        return self.correct & self.examples.falsified(len(self.labels), radius)

    def proved(self, radius: float) -> Tensor:
        """Which images some method proves in the ball of a radius, or in a larger one: (N,)."""
        return self.correct & proved_by_any(self.runs, len(self.labels), radius)

    def verdicts(self, radius: float, method: str | None = None) -> list[Verdict]:
        """What is known of every image at a radius: by one method and the attack, or by all."""
        if method is None:
            proved = self.proved(radius)
        else:
            proved = self.verified(self.run(method, radius))
        known = zip(
            self.correct.tolist(), proved.tolist(), self.falsified(radius).tolist(), strict=True
        )
        return [_verdict(*facts) for facts in known]

    def best_margins(self, radius: float) -> Tensor:
        """The greatest of the methods' lower bounds at one radius, NaN left out where another
        method has a number: (N, classes - 1)."""
        margins = [run.margins for run in self.runs if run.radius == radius]
        best = margins[0]
        for other in margins[1:]:
            best = torch.fmax(best, other)
        return best

    @property
    def rows(self) -> tuple[Row, ...]:
        """One summary per run, in the order of the runs."""
        correct, count = int(self.correct.sum()), len(self.labels)
        return tuple(
            Row(
                run.method,
                run.radius,
                count,
                correct,
                int(self.verified(run).sum()),
                int(self.falsified(run.radius).sum()),
                float(run.least.mean()),
                run.seconds / count,
            )
            for run in self.runs
        )


def _verdict(correct: bool, proved: bool, falsified: bool) -> Verdict:
    if not correct:
        return Verdict.WRONG
    if proved:
        return Verdict.PROVED
    return Verdict.FALSIFIED if falsified else Verdict.OPEN


def proved_by_any(runs: Iterable[Run], images: int, radius: float) -> Tensor:
    """Which of so many images have margins above zero in a run at a radius or a larger one, as far
    as the runs have come: (images,)."""
    found = torch.zeros(images, dtype=torch.bool)
    for run in runs:
        if run.radius >= radius:
            found[: len(run.margins)] |= run.positive
    return found


def best_known(runs: Iterable[Run], task: Task, radius: float) -> Tensor:
    """The greatest finite lower bounds of margins in runs at a radius or a larger one, as far as
    the runs have come: (images, classes - 1); -inf where there is none."""
    found = torch.full((task.images, task.classes - 1), -torch.inf, dtype=torch.float64)
    for run in runs:
        if run.radius >= radius:
            finite = torch.where(run.margins.isfinite(), run.margins, -torch.inf)
            found[: len(finite)] = torch.maximum(found[: len(finite)], finite)
    return found
