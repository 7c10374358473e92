"""The second half of a certification: attacks on images that no method proves."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from boundlab.attacks import Attack, AttackSettings, attack
from boundlab.commands.certificates import AttackRun, Run, proved_by_any
from boundlab.commands.counterexamples import COUNTEREXAMPLES, Counterexamples
from boundlab.commands.jobs import Job, batches, region_around
from boundlab.commands.ledger import Ledger
from boundlab.errors import ArgumentError, Contradiction
from boundlab.net import Net
from boundlab.scaling.parts import Parts, Subject

ATTACK = "attack"
"""What the attack is called where methods stand."""
TOGETHER = 4
"""Batches of images that are attacked at once: a step costs less than a bound."""
REPLAY = 1e-3
"""How far outputs of a stored counterexample may be from those of the model, relative to the
largest: both round, in batches of other sizes."""


def attackable(net: Net) -> Net | Callable[[Tensor], Tensor]:
    """The net; for one with a fixed batch size, or in train mode, a function of any number of
    points that is computed by its graph."""
    free = net.graph.examples[net.graph.inputs[0]][2]
    source = net.source
    if free and not (isinstance(source, nn.Module) and source.training):
        return net

    def in_parts(x: Tensor) -> Tensor:
        parts = batches(net, x, max(len(x), 1), x.device)
        return torch.cat([net(part)[:count] for count, part in parts])

    return in_parts


@dataclass(frozen=True)
class AttackImages:
    """Attacks images, by their numbers, at a radius."""

    radius: float
    settings: AttackSettings
    norm: str
    valid: tuple[float, float] | None
    device: torch.device | str

    def __call__(self, about: Subject, part: Tensor) -> tuple[AttackRun, Counterexamples]:
        """What the attack on some images has shown."""
        start = time.perf_counter()
        labels = about.labels[part]
        x, y = about.images[part].to(self.device), labels.to(self.device)
        ball = region_around(x, self.radius, self.norm, self.valid)
        found = attack(attackable(about.net), ball, y, **asdict(self.settings))
        seconds = time.perf_counter() - start
        return _noted(found, part, labels, self.radius, self.settings, seconds)


@dataclass(frozen=True, eq=False)
class Falsifier:
    """A model, a job whose images are as the model takes them, the ledger of both, and where work
    on the images is done."""

    net: Net
    job: Job
    ledger: Ledger
    parts: Parts

    def run(
        self, radius: float, settings: AttackSettings, tell: Callable[[str, float, int, int], None]
    ) -> None:
        """Attack every image that is classified correctly, that nothing proves at this radius or a
        larger one, and that has no counterexample at this radius or a smaller one."""
        job, ledger, count = self.job, self.ledger, len(self.job.images)
        so_far = ledger.get_attack(radius, settings.steps, settings.restarts)
        left = self._left(radius, so_far)
        tell(ATTACK, radius, count - len(left), count)
        attacked = AttackImages(radius, settings, job.norm, job.valid, job.device)
        todo = [part for part in left.split(TOGETHER * job.batch) if len(part)]
        done = count - len(left)
        try:
            ledger.put_attack(so_far, ledger.examples.taken(slice(0)))
            with closing(self.parts.map(attacked, todo)) as found:
                for run, examples in found:
                    so_far = so_far.joined(run)
                    ledger.put_attack(so_far, examples)
                    ledger.save_if_due()
                    done += len(run.images)
                    tell(ATTACK, radius, done, count)
        finally:
            ledger.save()

    def _left(self, radius: float, so_far: AttackRun) -> Tensor:
        """The numbers of the images to attack: (left,)."""
        ledger, count = self.ledger, len(self.job.images)
        skipped = ledger.predictions != ledger.labels
        skipped |= proved_by_any(ledger.runs, count, radius)
        skipped |= ledger.examples.falsified(count, radius)
        skipped[so_far.images] = True
        return (~skipped).nonzero().flatten()

    @torch.no_grad()
    def replay(self) -> None:
        """An error if a counterexample that was read from a file is none of this model."""
        job, held = self.job, self.ledger.examples
        if not len(held):
            return
        fits = held.input.shape[1:] == job.images.shape[1:] and held.input.is_floating_point()
        if not fits or bool((held.image < 0).any() | (held.image >= len(job.images)).any()):
            raise ArgumentError(f"{COUNTEREXAMPLES} is of other images: move it away")
        x = held.input.to(job.images)
        model = attackable(self.net)
        parts = x.to(job.device).split(TOGETHER * job.batch)
        outputs = torch.cat([_called(model, part) for part in parts]).cpu()
        near = (outputs - held.output).abs().amax(1) <= REPLAY * outputs.abs().amax(1)
        good = near & (held.margin <= 0) & (held.label == job.labels[held.image])
        for k in range(len(held)):
            image = job.images[held.image[k], None]
            ball = region_around(image, float(held.radius[k]), job.norm, job.valid)
            if not bool(good[k] & ball.contains(x[k, None]).all()):
                raise ArgumentError(
                    f"{COUNTEREXAMPLES} is damaged or was edited: what it holds for image "
                    f"{int(held.image[k])} at radius {float(held.radius[k]):g} is no "
                    "counterexample; move it away"
                )

    def check(self) -> None:
        """An error if an image is both proved and falsified."""
        held = self.ledger.examples
        for k, image in enumerate(held.image.tolist()):
            for run in self.ledger.runs:
                if image < len(run.margins) and bool(run.positive[image]):
                    self._check(run, k)

    def _check(self, run: Run, k: int) -> None:
        """An error if a counterexample lies in a ball that a run proves safe."""
        job, held = self.job, self.ledger.examples
        image = int(held.image[k])
        ball = region_around(job.images[image, None], run.radius, job.norm, job.valid)
        inside = bool(ball.contains(held.input[k, None].to(job.images)).all())
        if inside or float(held.radius[k]) <= run.radius:
            raise Contradiction(
                f"image {image} is proved by {run.method} at radius {run.radius:g} (margin "
                f"{float(run.least[image]):.3g}) and falsified at radius "
                f"{float(held.radius[k]):g} (margin {float(held.margin[k]):.3g}): one of the two "
                "is wrong, which is a bug in boundlab; please report it with the model and the "
                "image"
            )


def _called(model: Net | Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    found: Tensor = model(x)
    return found


def _noted(
    found: Attack,
    images: Tensor,
    labels: Tensor,
    radius: float,
    settings: AttackSettings,
    seconds: float,
) -> tuple[AttackRun, Counterexamples]:
    """What an attack on images, by their numbers, has shown."""
    rivals = found.outputs.cpu().scatter(1, labels[:, None], -torch.inf)
    run = AttackRun(
        radius,
        settings.steps,
        settings.restarts,
        images,
        rivals.argmax(1),
        found.margin.double().cpu(),
        seconds,
    )
    return run, Counterexamples.of(found, images, labels, radius)
