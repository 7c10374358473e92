"""What a certification found: small frozen objects, every figure derived from the margins."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Task:
    """What was certified: fingerprints of model and data, and the set around each image. name: what
    its owner calls it."""

    model: str
    data: str
    images: int
    classes: int
    norm: str
    valid: tuple[float, float] | None
    name: str = ""


@dataclass(frozen=True, eq=False)
class Run:
    """One method at one radius. margins: lower bounds of f_y - f_k, (images so far, classes - 1) in
    float64; class k stands at k, or at k - 1 behind the label y. seconds: spent on bounds in
    all."""

    method: str
    radius: float
    margins: Tensor
    seconds: float

    @property
    def least(self) -> Tensor:
        """The smallest margin of every image: (images,); NaN if any of them is."""
        return self.margins.amin(1)


@dataclass(frozen=True)
class Row:
    """The summary of one run.

    verified counts the images that are classified correctly and whose margins are all above zero;
    NaN and infinity never count. mean_margin is the mean over all images, right or wrong, of the
    smallest margin. seconds are per image.
    """

    method: str
    radius: float
    images: int
    correct: int
    verified: int
    mean_margin: float
    seconds: float

    @property
    def share(self) -> float:
        """Verified images as a share of all images."""
        return self.verified / self.images


@dataclass(frozen=True, eq=False)
class Certification:
    """All runs over the same images. labels, predictions: (N,); a prediction is -1 where an output
    is NaN."""

    task: Task
    labels: Tensor
    predictions: Tensor
    runs: tuple[Run, ...]

    @property
    def correct(self) -> Tensor:
        """Which images are classified correctly: (N,)."""
        return self.predictions == self.labels

    @property
    def methods(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(run.method for run in self.runs))

    @property
    def radii(self) -> tuple[float, ...]:
        return tuple(dict.fromkeys(run.radius for run in self.runs))

    def run(self, method: str, radius: float) -> Run:
        return next(run for run in self.runs if (run.method, run.radius) == (method, radius))

    def verified(self, run: Run) -> Tensor:
        """Which images a run proves safe: (N,). NaN and infinity prove nothing."""
        return self.correct & ((run.margins > 0) & run.margins.isfinite()).all(1)

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
                float(run.least.mean()),
                run.seconds / count,
            )
            for run in self.runs
        )
