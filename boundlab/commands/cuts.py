"""A look inside a region: linear bounds and the function itself along a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.commands.certificates import Certification
from boundlab.commands.certify import outputs
from boundlab.commands.jobs import region_around
from boundlab.errors import BoundlabError
from boundlab.net import Net

LINEAR = ("crown-ibp", "crown", "forward+backward", "forward+crown")
"""The methods that end in linear functions of the input."""


@dataclass(frozen=True, eq=False)
class Cut:
    """A margin f_label - f_rival of one image along a segment inside its region.

    place, value, lower, upper: (points,): where on the segment (0 ... 1), the margin sampled there,
    and the linear bounds of one method, which hold at every point of the region.
    """

    image: int
    label: int
    rival: int
    method: str
    radius: float
    place: Tensor
    value: Tensor
    lower: Tensor
    upper: Tensor


def line_cuts(
    net: Net,
    found: Certification,
    images: Tensor,
    radius: float,
    device: torch.device | str = "cpu",
    points: int = 121,
) -> list[Cut]:
    """Cuts by every linear method that was run, through the region of the correct image where they
    differ most.

    images: (N, *shape), the same ones. device: that of the net. The segment leads towards the worst
    point of the first method's lower bound. Empty if no image is classified correctly or no linear
    method was run.
    """
    methods = [method for method in found.methods if method in LINEAR]
    if not methods:
        return []
    image = most_telling(found, methods, radius)
    if image is None:
        return []
    label = int(found.labels[image])
    rival = int(found.best_margins(radius)[image].argmin())
    rival += rival >= label
    spec = torch.zeros(1, found.task.classes)
    spec[0, label], spec[0, rival] = 1.0, -1.0
    start = end = None
    cuts = []
    for method in methods:
        try:
            lines, x = _linear(net, images[image].to(device), radius, method, spec, found)
        # a way of bounding that this model does not allow: the report does without it
        except BoundlabError:
            continue
        (lower_A, lower_b), (upper_A, upper_b) = lines
        if start is None or end is None:
            start, end = _segment(x, lower_A, radius, found)
        place = torch.linspace(0, 1, points, dtype=x.dtype)
        along = start + place.reshape(-1, *[1] * start.dim()) * (end - start)  # (points, *shape)
        flat = along.flatten(1)
        value = outputs(net, along, device=device).double() @ spec[0].double()
        lower, upper = flat @ lower_A.flatten() + lower_b, flat @ upper_A.flatten() + upper_b
        cuts.append(Cut(image, label, rival, method, radius, place, value, lower, upper))
    return cuts


def telling_radius(found: Certification, usual: float) -> float:
    """The radius at which the smallest margins of a correct image differ most between the methods
    that end in linear functions; ``usual`` if they differ nowhere."""
    methods = [method for method in found.methods if method in LINEAR]
    spreads = {usual: 0.0}
    for radius in found.radii:
        if methods:
            usable, spread = _spread(found, methods, radius)
            spreads[radius] = float(torch.where(usable, spread, 0.0).max())
    return max(spreads, key=lambda radius: spreads[radius])


def _spread(found: Certification, methods: Sequence[str], radius: float) -> tuple[Tensor, Tensor]:
    """Which images are classified correctly and bounded by all methods, and by how much their
    smallest margins differ between these: (N,) each."""
    least = torch.stack([found.run(method, radius).least for method in methods])  # (methods, N)
    return found.correct & least.isfinite().all(0), least.amax(0) - least.amin(0)


def most_telling(found: Certification, methods: Sequence[str], radius: float) -> int | None:
    """The correct image whose smallest margins differ most between the methods; of a single method
    that closest to the edge of being proved."""
    usable, spread = _spread(found, methods, radius)
    if not bool(usable.any()):
        return None
    if len(methods) == 1:
        edge = found.run(methods[0], radius).least.abs()
        return int(torch.where(usable, edge, torch.inf).argmin())
    return int(torch.where(usable, spread, -torch.inf).argmax())


@torch.no_grad()
def _linear(
    net: Net, image: Tensor, radius: float, method: str, spec: Tensor, found: Certification
) -> tuple[list[tuple[Tensor, Tensor]], Tensor]:
    """(A, b) below and above for one image: A (*shape), b (); and the image in the model's type;
    all on the CPU."""
    shape, dtype, free = net.graph.examples[net.graph.inputs[0]]
    x = image.to(dtype)
    samples = 1 if free else shape[0]
    region = region_around(x.expand(samples, *x.shape), radius, found.task.norm, found.task.valid)
    lin = net.linear_bounds(region, method=method, spec=spec)
    name = next(iter(lin.lower_A))
    pairs = ((lin.lower_A[name], lin.lower_b), (lin.upper_A[name], lin.upper_b))
    return [(A.reshape(-1, *x.shape)[0].cpu(), b.reshape(-1)[0].cpu()) for A, b in pairs], x.cpu()


def _segment(
    x: Tensor, slope: Tensor, radius: float, found: Certification
) -> tuple[Tensor, Tensor]:
    """Two members of the region, the second where a linear function with this slope is small: the
    segment between them lies in it."""
    flat = slope.flatten()
    if found.task.norm == "inf":
        step = flat.sign()
    elif found.task.norm == "2":
        step = flat / flat.norm().clamp(min=torch.finfo(flat.dtype).tiny)
    else:
        step = torch.zeros_like(flat)
        step[flat.abs().argmax()] = flat[flat.abs().argmax()].sign()
    step = (radius * step).reshape(x.shape)
    low, high = found.task.valid or (-torch.inf, torch.inf)
    return (x + step).clamp(low, high), (x - step).clamp(low, high)
