"""How many inputs of a classifier are provably safe: several methods and radii over a set of
images."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from boundlab.commands.certificates import Certification, Run, Task
from boundlab.commands.ledger import Ledger, fingerprint
from boundlab.errors import ArgumentError
from boundlab.methods.method import METHODS
from boundlab.net import Net, capture
from boundlab.regions import L1, L2, Linf, Region
from boundlab.results import Bounds

NORMS: dict[str, type[Linf] | type[L2] | type[L1]] = {"inf": Linf, "2": L2, "1": L1}
DEFAULT_METHODS = ("ibp", "crown-ibp", "crown", "forward+backward")
SAVE_SECONDS = 10.0
"""At least this long between two saves within one run; the end of a run and an interruption save at
once."""

Progress = Callable[[str, float, int, int], None]
"""Called after every batch with the method, the radius, the images done and the images in all."""


@dataclass(frozen=True, eq=False)
class Job:
    """What to certify, and how to walk through it.

    images: (N, *shape), floating point, or uint8 to be divided by 255. labels: (N,) class numbers.
    radii: of balls in the given norm ("inf", "2" or "1") around the images, cut to the valid range
    if one is given. batch: images at a time. name: noted in the results.
    """

    images: Tensor
    labels: Tensor
    radii: Sequence[float]
    methods: Sequence[str] = DEFAULT_METHODS
    norm: str = "inf"
    valid: tuple[float, float] | None = None
    batch: int = 16
    device: torch.device | str = "cpu"
    name: str = ""

    def checked(self) -> Job:
        """The job with images in floating point, labels in int64, and each method and radius once;
        an error if it cannot be done."""
        if self.norm not in NORMS:
            raise ArgumentError(
                f"norm must be one of {', '.join(map(repr, NORMS))}, not {self.norm!r}"
            )
        if self.batch < 1:
            raise ArgumentError(f"the batch size must be at least 1, not {self.batch}")
        images = check_images(self.images, self.valid)
        return replace(
            self,
            images=images,
            labels=check_labels(self.labels, len(images)),
            radii=check_radii(self.radii),
            methods=check_methods(self.methods),
        )


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
) -> Certification:
    """Bound the margins of every image for every method and radius: what :class:`Job` says, by
    :func:`certify_job`."""
    job = Job(images, labels, radii, methods, norm, valid, batch, device, name)
    return certify_job(model, job, results=results, resume=resume, progress=progress)


def certify_job(
    model: Net | nn.Module,
    job: Job,
    *,
    results: Path | str | None = None,
    resume: bool = False,
    progress: Progress | None = None,
) -> Certification:
    """Bound the margins of every image for every method and radius.

    model: a captured net, or a module, which is captured here as it is (call ``eval()`` first).
    results: a JSON file that holds everything computed so far at all times; an interruption saves
    what is there and goes on as KeyboardInterrupt. A file that is there already is an error, unless
    ``resume``: continue from that file, image by image, without computing anything twice; a file
    made for another model, other images, norm or range, or changed since it was written, is
    refused. Runs in it that are not asked for stay in it.
    """
    job = job.checked()
    if isinstance(model, Net):
        net = model
    else:
        net = capture(model, job.images[:2].to(job.device))
    work = _Work(net, replace(job, images=_as_the_net_takes_them(job.images, net)))
    logits = outputs(net, work.job.images, job.batch, job.device)
    classes = logits.shape[1]
    least, most = int(job.labels.min()), int(job.labels.max())
    if least < 0 or most >= classes:
        raise ArgumentError(
            f"the model has {classes} outputs, so labels must lie in 0 ... {classes - 1}; they "
            f"span {least} ... {most}"
        )
    predictions = torch.where(logits.isnan().any(1), -1, logits.argmax(1))
    task = Task(
        fingerprint(net),
        fingerprint(job.images, job.labels),
        len(job.images),
        classes,
        job.norm,
        job.valid,
        job.name,
    )
    ledger = Ledger.open(results, task, job.labels, predictions, resume)
    wanted = [(method, radius) for method in job.methods for radius in job.radii]
    for method, radius in wanted:
        work.run(ledger, method, radius, progress)
    runs = tuple(ledger.get(method, radius) for method, radius in wanted)
    return Certification(task, job.labels, predictions, runs)


def region_around(
    x: Tensor, radius: float, norm: str = "inf", valid: tuple[float, float] | None = None
) -> Region:
    """The ball around every image of x: (batch, *shape), within the valid range."""
    low, high = valid or (None, None)
    return NORMS[norm](x, radius, low, high)


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


def batches(
    net: Net, values: Tensor, batch: int, device: torch.device | str
) -> Iterator[tuple[int, Tensor]]:
    """values (N, ...) in parts as the net takes them, each with the number that counts: a net with
    a fixed batch size has the last part filled up by repetition."""
    shape, _, free = net.graph.examples[net.graph.inputs[0]]
    if not free:
        batch = shape[0]
    for part in values.split(batch):
        count = len(part)
        if not free and count < batch:
            part = part[torch.arange(batch).clamp(max=count - 1)]
        yield count, part.to(device)


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


@dataclass(frozen=True, eq=False)
class _Work:
    """A model and a checked job, with images as the model takes them."""

    net: Net
    job: Job

    @torch.no_grad()
    def run(self, ledger: Ledger, method: str, radius: float, progress: Progress | None) -> None:
        """Complete one (method, radius) in the ledger, from wherever it stands."""
        job = self.job
        so_far = ledger.get(method, radius)
        parts = [so_far.margins]
        done = len(so_far.margins)
        seconds = so_far.seconds
        tell = progress or (lambda *_: None)
        tell(method, radius, done, len(job.images))
        if done == len(job.images):
            return
        saved = time.perf_counter()
        try:
            images = batches(self.net, job.images[done:], job.batch, job.device)
            labels = batches(self.net, job.labels[done:], job.batch, job.device)
            for (count, x), (_, y) in zip(images, labels, strict=True):
                start = time.perf_counter()
                margins = self.net.margins(
                    region_around(x, radius, job.norm, job.valid), y, method=method
                ).reshape(len(x), -1)
                margins = margins[:count].double().cpu()
                seconds += time.perf_counter() - start
                parts.append(margins)
                done += count
                ledger.put(Run(method, radius, torch.cat(parts), seconds))
                if time.perf_counter() - saved > SAVE_SECONDS:
                    ledger.save()
                    saved = time.perf_counter()
                tell(method, radius, done, len(job.images))
        finally:
            ledger.save()


def check_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods, each once; an unknown name is an error."""
    for method in methods:
        if method not in METHODS:
            raise ArgumentError(f"there is no method {method!r}; there are: {', '.join(METHODS)}")
    if not methods:
        raise ArgumentError(f"give at least one method; there are: {', '.join(METHODS)}")
    return tuple(dict.fromkeys(methods))


def check_radii(radii: Sequence[float]) -> tuple[float, ...]:
    """The radii, each once."""
    for radius in radii:
        if not (math.isfinite(radius) and radius >= 0):
            raise ArgumentError(f"a radius must be a finite number >= 0, not {radius}")
    if not radii:
        raise ArgumentError("give at least one radius")
    return tuple(dict.fromkeys(float(radius) for radius in radii))


def check_images(images: Tensor, valid: tuple[float, float] | None) -> Tensor:
    """The images in floating point, all within the valid range."""
    if images.dim() < 2 or len(images) == 0:
        raise ArgumentError(
            f"images must have the shape (N, ...) with N >= 1, not {tuple(images.shape)}"
        )
    if images.dtype == torch.uint8:
        images = images.float() / 255
    if not images.is_floating_point():
        raise ArgumentError(
            f"images must be floating point, or uint8 to be divided by 255, not {images.dtype}"
        )
    if not bool(images.isfinite().all()):
        raise ArgumentError("the images contain NaN or infinite values")
    if valid is None:
        return images
    low, high = valid
    if not low <= high:
        raise ArgumentError(f"the valid range needs low <= high, not {low} ... {high}")
    least, most = float(images.min()), float(images.max())
    if least < low or most > high:
        raise ArgumentError(
            f"the images span {least:g} ... {most:g}, outside the valid range {low:g} ... "
            f"{high:g}: give the true one (--range LOW HIGH), or none (--range none)"
        )
    return images


def check_labels(labels: Tensor, count: int) -> Tensor:
    """One class number per image: (N,) in int64."""
    if labels.is_floating_point() or labels.is_complex():
        raise ArgumentError(f"labels must be whole numbers, not {labels.dtype}")
    if labels.numel() != count:
        raise ArgumentError(f"there are {count} images but {labels.numel()} labels")
    return labels.reshape(-1).long()
