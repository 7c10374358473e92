"""How many inputs of a classifier are provably safe: several methods and radii over a set of
images."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from boundlab.attacks import AttackSettings
from boundlab.commands.certificates import Certification, Run, Task
from boundlab.commands.chance import warn_of_guesses
from boundlab.commands.deciding import Decider
from boundlab.commands.falsifying import Falsifier
from boundlab.commands.fingerprints import fingerprint
from boundlab.commands.jobs import EFFORT, Job, batch_size, batches, region_around
from boundlab.commands.ledger import Ledger
from boundlab.defaults import COMPLETE
from boundlab.defaults import METHODS as DEFAULT_METHODS
from boundlab.errors import ArgumentError
from boundlab.net import Net, capture
from boundlab.regions import Linf
from boundlab.results import Bounds
from boundlab.scaling.parts import Here, Parts, Spread, Subject
from boundlab.verify.samples import SampleVerifier

Progress = Callable[[str, float, int, int], None]
"""Called after every batch, and for the method "complete" after every image, with the method, the
radius, the images done and the images in all."""


def certify(
    model: Net | nn.Module,
    images: Tensor,
    labels: Tensor,
    radii: Sequence[float],
    methods: Sequence[str] = DEFAULT_METHODS,
    *,
    norm: str = "inf",
    valid: tuple[float, float] | None = None,
    batch: int = 16,
    device: torch.device | str = "cpu",
    results: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    name: str = "",
    attack: AttackSettings | None = EFFORT,
    timeout: float | None = None,
    arithmetic: str | None = None,
) -> Certification:
    """Bound the margins of every image for every method and radius: what :class:`Job` says, by
    :func:`certify_job`."""
    how = norm, valid, batch, device, name, attack, timeout, arithmetic
    job = Job(images, labels, radii, methods, *how)
    return certify_job(model, job, results=results, resume=resume, progress=progress)


def certify_job(
    model: Net | nn.Module,
    job: Job,
    *,
    results: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
    spread: Spread = Here,
) -> Certification:
    """Bound the margins of every image for every method and radius, attack the images that no
    method proves, and verify what is left if "complete" is one of the methods.

    model: a captured net, or a module, which is captured here as it is (call ``eval()`` first).
    results: a JSON file that holds everything computed so far at all times, counterexamples in an
    .npz file beside it; an interruption saves what is there and goes on as KeyboardInterrupt. A
    file that is there already is an error, unless ``resume``: continue from that file, image by
    image, without computing anything twice; a file made for another model, other images, norm or
    range, or changed since it was written, is refused. Runs in it that are not asked for stay in
    it. spread: where the work on batches is done.
    """
    job = job.checked()
    if isinstance(model, Net):
        net = model
    else:
        net = capture(model, job.images[:2].to(job.device))
    task, predictions, images = prepare(net, job)
    parts = spread(Subject(net, images, job.labels))
    work = _Work(parts, net, replace(job, images=images))
    ledger = Ledger.open(results, task, job.labels, predictions, resume)
    wanted = [(method, radius) for method in job.methods for radius in job.radii]
    falsifier = Falsifier(net, work.job, ledger, parts)
    falsifier.replay()
    verifier = None
    if job.timeout is not None:
        verifier = SampleVerifier(net, job.timeout, job.arithmetic)
    tell = progress or _silent
    for method, radius in wanted:
        if method != COMPLETE:
            work.run(ledger, method, radius, tell)
    if job.attack is not None:
        for radius in sorted(job.radii):
            falsifier.run(radius, job.attack, tell)
    if verifier is not None:
        Decider(verifier, work.job, ledger, parts).run(tell)
    falsifier.check()
    runs = tuple(ledger.get(method, radius, job.limit(method)) for method, radius in wanted)
    attacks = tuple(run for run in ledger.attacks if run.radius in job.radii)
    return Certification(task, job.labels, predictions, runs, attacks, ledger.examples)


def prepare(net: Net, job: Job) -> tuple[Task, Tensor, Tensor]:
    """The task of a checked job, the predictions (N,), -1 where an output is NaN, and the images as
    the net takes them; an error if labels are no classes of the net."""
    images = _as_the_net_takes_them(job.images, net)
    logits = outputs(net, images, job.batch, job.device)
    classes = logits.shape[1]
    least, most = int(job.labels.min()), int(job.labels.max())
    if least < 0 or most >= classes:
        raise ArgumentError(
            f"the model has {classes} outputs, so labels must lie in 0 ... {classes - 1}; they "
            f"span {least} ... {most}"
        )
    predictions = torch.where(logits.isnan().any(1), -1, logits.argmax(1))
    warn_of_guesses(int((predictions == job.labels).sum()), len(predictions), classes)
    task = Task(
        fingerprint(net),
        fingerprint(job.images, job.labels),
        len(job.images),
        classes,
        job.norm,
        job.valid,
        job.name,
        job.arithmetic,
    )
    return task, predictions, images


def _silent(*_: object) -> None:
    """Progress that nobody watches."""


@torch.no_grad()
def outputs(
    net: Net, images: Tensor, batch: int = 64, device: torch.device | str = "cpu"
) -> Tensor:
    """The logits of images (N, *shape) as the net was captured, train or eval mode included: (N,
    classes), on the CPU.

    With radius 0 both bounds are the value, whatever the net was captured from.
    """
    parts = []
    for count, x in batches(net, images, batch, device):
        found = net.bounds(Linf(x, 0.0), method="ibp")
        if not isinstance(found, Bounds):
            raise ArgumentError(
                "certify needs a model that returns one tensor of logits, (batch, classes); this "
                "one returns several"
            )
        if found.lower.dim() != 2 or found.lower.shape[0] != len(x) or found.lower.shape[1] < 2:
            raise ArgumentError(
                "certify needs logits of shape (batch, classes) with at least two classes; "
                f"the model gives {tuple(found.lower.shape)}"
            )
        parts.append(found.lower[:count].cpu())
    return torch.cat(parts)


def _as_the_net_takes_them(images: Tensor, net: Net) -> Tensor:
    """The images (N, *shape) in the type of the net's only input, whose shape must be theirs."""
    if len(net.graph.inputs) != 1:
        raise ArgumentError(
            f"certify needs a model with one input; this one takes {', '.join(net.graph.inputs)}"
        )
    shape, dtype, _ = net.graph.examples[net.graph.inputs[0]]
    if shape[1:] != tuple(images.shape[1:]):
        raise ArgumentError(
            f"the model takes images of shape {shape[1:]}, but these have "
            f"{tuple(images.shape[1:])}: reshape them (--shape)"
        )
    return images.to(dtype)


@dataclass(frozen=True)
class BoundMargins:
    """Bounds the margins of consecutive images by a method at a radius."""

    method: str
    radius: float
    norm: str
    valid: tuple[float, float] | None
    device: torch.device | str
    arithmetic: str | None = None

    @torch.no_grad()
    def __call__(self, about: Subject, part: slice) -> tuple[Tensor, float]:
        """Lower bounds of the margins (part, classes - 1), in float64, and the seconds that this
        took."""
        start = time.perf_counter()
        images, labels = about.images[part], about.labels[part]
        size = len(images)
        ((count, x),) = batches(about.net, images, size, self.device)
        ((_, y),) = batches(about.net, labels, size, self.device)
        region = region_around(x, self.radius, self.norm, self.valid)
        margins = about.net.margins(region, y, method=self.method, arithmetic=self.arithmetic)
        margins = margins.reshape(len(x), -1)[:count].double().cpu()
        return margins, time.perf_counter() - start


@dataclass(frozen=True, eq=False)
class _Work:
    """A model, a checked job with images as the model takes them, and where work on them is
    done."""

    parts: Parts
    net: Net
    job: Job

    def run(self, ledger: Ledger, method: str, radius: float, tell: Progress) -> None:
        """Complete one (method, radius) in the ledger, from wherever it stands."""
        job = self.job
        so_far = ledger.get(method, radius)
        parts = [so_far.margins]
        done = len(so_far.margins)
        seconds = so_far.seconds
        tell(method, radius, done, len(job.images))
        if done == len(job.images):
            return
        size = batch_size(self.net, job.batch)
        todo = [slice(first, first + size) for first in range(done, len(job.images), size)]
        about = job.norm, job.valid, job.device, job.arithmetic
        bound = BoundMargins(method, radius, *about)
        try:
            with closing(self.parts.map(bound, todo)) as found:
                for margins, spent in found:
                    seconds += spent
                    parts.append(margins)
                    done += len(margins)
                    ledger.put(Run(method, radius, torch.cat(parts), seconds))
                    ledger.save_if_due()
                    tell(method, radius, done, len(job.images))
        finally:
            ledger.save()
