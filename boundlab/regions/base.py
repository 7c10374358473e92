"""What an input set is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import fields, is_dataclass, replace

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import Dense
from boundlab.errors import ArgumentError
from boundlab.relaxations.interval import DualRadius, Interval


class Region(ABC):
    """A set of values for one input or parameter. A subclass answers three questions, and says
    where its centre is.

    Over a batched input a region is one set per sample: the tensors it holds have the samples in
    dimension 0. Coefficients arrive as ``(rows, samples, *shape of one sample)``, so that they
    broadcast against those tensors; for an input or parameter without a batch, ``samples`` is that
    of the output and the tensors have the shape of the value.
    """

    @property
    @abstractmethod
    def centre(self) -> Tensor:
        """The clean value: a member of the set where that makes sense."""

    @abstractmethod
    def hull(self) -> Interval:
        """The smallest box around the set."""

    @abstractmethod
    def minimum(self, coefficients: Tensor) -> Tensor:
        """``min over x in the set of <coefficients, x>``: (rows, samples, *shape) -> (rows,
        samples)."""

    @abstractmethod
    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        """A random member, in the shape of the value; batched: whether dimension 0 counts samples,
        each with a set of its own."""

    @property
    def is_box(self) -> bool:
        """Whether the set is its hull, so that interval arithmetic is exact for one affine step."""
        return False

    def reach(self) -> DualRadius | None:
        """How far <a, x> can be from its value at the centre, in closed form; None if there is no
        form smaller than the hull's."""
        return None

    @property
    def reach_is_exact(self) -> bool:
        return False

    def wider(self) -> tuple[Region, ...]:
        """Larger regions whose bounds this one should never fall behind, though a method chooses
        other lines for them."""
        return ()

    def versions(self) -> Tensor | None:
        """For a set that is contained in all ways to choose, at each position (dimension 1) of each
        sample, one of finitely many values, each of which some member has there: these values,
        (choices, *shape). None for any other set."""
        return None

    def least(self, rows: Coefficients) -> Tensor:
        """:meth:`minimum`, for coefficients in every form."""
        if self.is_box and not isinstance(rows, Dense):
            return rows.over_box(self.hull())
        return self.minimum(rows.dense())

    def contains(self, x: Tensor, tolerance: float = 0.0) -> Tensor:
        """Whether inputs (batch, *shape), flat or not, are members, up to a tolerance: (batch,).
        A region of one sample is the same for all of them."""
        raise ArgumentError(
            f"{type(self).__name__} does not say what its members are: give it a method "
            "contains(x, tolerance)"
        )

    def project(self, x: Tensor) -> Tensor | None:
        """A member near each x (samples, *shape), itself where it is one, up to rounding; None if
        that is not known."""
        return None

    def samples(self, chosen: slice | Tensor) -> Region | None:
        """The region over some of the samples; None if that is not known, and then a batch is never
        taken apart."""
        return None

    def at(self, value: Tensor) -> Region:
        """The region around ``value`` if it has no centre yet; itself otherwise."""
        return self

    def __str__(self) -> str:
        """What the region is made of, in a line: of large tensors their shape and range."""
        if not is_dataclass(self):
            return repr(self)
        held = {f.name: getattr(self, f.name) for f in fields(self)}
        parts = [f"{name}={_shown(value)}" for name, value in held.items() if value is not None]
        return f"{type(self).__name__}({', '.join(parts)})"


def _shown(value: object) -> str:
    """A value that a region holds, in a few words."""
    if isinstance(value, float):
        return f"{value:g}"
    if not isinstance(value, Tensor):
        return str(value)
    shape, value = tuple(value.shape), value.detach()
    if value.numel() == 1:
        return f"{value.item():g}"
    if not value.numel() or value.dtype == torch.bool:
        return f"{shape}"
    return f"{shape} in [{float(value.min()):.4g}, {float(value.max()):.4g}]"


def drawn(
    draw: Callable[..., Tensor],
    shape: Sequence[int],
    generator: torch.Generator | None,
    like: Tensor,
) -> Tensor:
    """Random numbers, ``torch.rand`` or ``torch.randn``, beside another tensor, from a generator of
    any device."""
    source = like.device
    if generator is not None:
        source = generator.device
    numbers = draw(tuple(shape), generator=generator, dtype=like.dtype, device=source)
    return numbers.to(like.device)


def batch_size(x: Tensor, batched: bool) -> int:
    """How many sets a region around x holds: one for each sample, or one."""
    if batched and x.dim():
        return x.shape[0]
    return 1


def flat_beside(value: Tensor, x: Tensor) -> Tensor:
    """A tensor of a region (samples, *shape), or (*shape), in double precision as (samples, n) or
    (1, n), beside flat inputs (batch, n)."""
    if value.numel() not in (x.shape[1], x.numel()):
        raise ArgumentError(
            f"inputs of {x.shape[1]} elements are not of a region of {value.numel()} elements"
        )
    return value.reshape(-1, x.shape[1]).to(x.device, torch.float64)


def with_tensors(region: Region, change: Callable[[Tensor], Tensor]) -> Region:
    """A region with every tensor that it holds changed, itself if nothing does; one that is no
    dataclass as it is."""
    if not is_dataclass(region):
        return region
    held = {f.name: getattr(region, f.name) for f in fields(region)}
    found = {name: change(value) for name, value in held.items() if isinstance(value, Tensor)}
    changed = {name: value for name, value in found.items() if value is not held[name]}
    if not changed:
        return region
    return replace(region, **changed)


def take_samples(region: Region, chosen: slice | Tensor) -> Region:
    """For the regions here, whose tensors hold one entry per sample, in dimension 0, or are the
    same for all samples."""
    dims, samples = region.centre.dim(), region.centre.shape[0]

    def taken(tensor: Tensor) -> Tensor:
        if tensor.dim() > 0 and tensor.shape[0] == samples and tensor.dim() in (1, dims):
            return tensor[chosen]
        return tensor

    return with_tensors(region, taken)
