"""The last part of a certification: images that no method proves and no attack breaks are verified,
one by one, each for a limited time."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.commands.certificates import Run, best_known
from boundlab.commands.counterexamples import Counterexamples
from boundlab.commands.jobs import Job, region_around
from boundlab.commands.ledger import Ledger
from boundlab.defaults import COMPLETE
from boundlab.scaling.parts import Parts, Subject
from boundlab.verify import Verdict
from boundlab.verify.samples import SampleVerifier
from boundlab.verify.verdict import HOLDS, UNKNOWN

PROVED = torch.finfo(torch.float64).tiny
"""The margin of a class that is verified: it is above 0, and by how much is not known."""


@dataclass(frozen=True)
class VerifyImage:
    """Verifies single images, by their numbers, at a radius, each for so many seconds."""

    radius: float
    norm: str
    valid: tuple[float, float] | None
    timeout: float
    arithmetic: str | None = None

    def __call__(self, about: Subject, image: int) -> Verdict:
        ball = region_around(about.images[image, None], self.radius, self.norm, self.valid)
        verifier = SampleVerifier(about.net, self.timeout, self.arithmetic)
        return verifier.verify(ball, int(about.labels[image]))


@dataclass(frozen=True, eq=False)
class Decider:
    """The verifier of a model, a checked job whose images are as the model takes them, the ledger
    of both, and where work on the images is done."""

    verifier: SampleVerifier
    job: Job
    ledger: Ledger
    parts: Parts

    def run(self, tell: Callable[[str, float, int, int], None]) -> None:
        """Verify at all radii, at the largest first: what is proved there is proved at the
        others."""
        for radius in sorted(self.job.radii, reverse=True):
            self._run(radius, tell)

    def _run(self, radius: float, tell: Callable[[str, float, int, int], None]) -> None:
        """Complete the run at one radius, from wherever it stands. Images that are not verified
        have the margins that other runs have found."""
        ledger, limit, count = self.ledger, self.verifier.timeout, len(self.job.images)
        so_far = ledger.get(COMPLETE, radius, limit)
        done, seconds = len(so_far.margins), so_far.seconds
        tell(COMPLETE, radius, done, count)
        if done == count:
            return
        margins = best_known(ledger.runs, ledger.task, radius)
        margins[:done] = so_far.margins
        job = self.job
        verify = VerifyImage(radius, job.norm, job.valid, limit, job.arithmetic)
        left = self._left(radius, margins)
        try:
            with closing(self.parts.map(verify, left)) as found:
                for image, verdict in zip(left, found, strict=True):
                    self._note(image, radius, verdict)
                    seconds += verdict.seconds
                    margins[image] = _bounds(margins[image], verdict)
                    done = image + 1
                    ledger.put(Run(COMPLETE, radius, margins[:done], seconds, limit))
                    ledger.save()  # the next image may take long
                    tell(COMPLETE, radius, done, count)
            ledger.put(Run(COMPLETE, radius, margins, seconds, limit))
            tell(COMPLETE, radius, count, count)
        finally:
            ledger.save()

    def _left(self, radius: float, margins: Tensor) -> list[int]:
        """The numbers of the images to verify: they are classified correctly, not proved by margins
        (images, classes - 1), have no counterexample, and were not tried for as long before."""
        ledger, count = self.ledger, len(margins)
        skipped = ledger.predictions != ledger.labels
        skipped |= (margins > 0).all(1)
        skipped |= ledger.examples.falsified(count, radius)
        for run in ledger.runs:
            if run.radius == radius and (run.timeout or 0.0) >= self.verifier.timeout:
                skipped[: len(run.margins)] = True
        return (~skipped).nonzero().flatten().tolist()

    def _note(self, image: int, radius: float, verdict: Verdict) -> None:
        """A counterexample goes to the ledger."""
        if verdict.counterexample is not None:
            label, number = self.job.labels[image, None], torch.tensor([image])
            found = Counterexamples.of(verdict.counterexample, number, label, radius)
            self.ledger.add(found)


def _bounds(known: Tensor, verdict: Verdict) -> Tensor:
    """Lower bounds of the margins of an image, (classes - 1,), given those that are known: all
    above 0 if and only if it is verified."""
    if verdict.status == HOLDS:
        return known.clamp(min=PROVED)
    if verdict.status == UNKNOWN and verdict.bound <= 0:
        return known.clamp(min=verdict.bound)
    return known
