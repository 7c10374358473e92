"""What questions return: small frozen objects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from boundlab.compat.ambient import undisturbed
from boundlab.errors import ArgumentError
from boundlab.methods.state import BoundState
from boundlab.regions import Region


@dataclass(frozen=True, eq=False)
class Bounds:
    """``lower <= value <= upper`` elementwise for every member of the regions.

    A side that was not asked for is infinite. With ``intermediates=True`` the bounds of other nodes
    are found by module path (``bounds["layer1.0.relu"]``) or graph name. ``state``: what the
    question has found of every node, if it was asked with one, or slopes were optimised.
    ``slopes``: what "alpha-crown" found, to start another question of the same shape from.
    """

    lower: Tensor
    upper: Tensor
    intermediates: Mapping[str, Bounds] = field(default_factory=dict, repr=False)
    slopes: Mapping[str, Mapping[str, Tensor]] = field(default_factory=dict, repr=False)
    state: BoundState | None = field(default=None, repr=False)

    def __iter__(self) -> Iterator[Tensor]:
        return iter((self.lower, self.upper))

    def __getitem__(self, name: str) -> Bounds:
        if not self.intermediates:
            raise ArgumentError("no intermediate bounds were kept: ask with intermediates=True")
        try:
            return self.intermediates[name]
        except KeyError:
            known = ", ".join(sorted(self.intermediates))
            raise ArgumentError(
                f"no node or module '{name}' with bounds; there are: {known}"
            ) from None

    @property
    def width(self) -> Tensor:
        return self.upper - self.lower

    @property
    def shape(self) -> torch.Size:
        return self.lower.shape

    def __repr__(self) -> str:
        shape = tuple(self.lower.shape)
        if self.lower.numel() == 0:
            return f"Bounds(shape={shape})"
        if not self.lower.dtype.is_floating_point:
            decided = float((self.lower == self.upper).double().mean())
            return f"Bounds(shape={shape}, {self.lower.dtype}, {decided:.1%} decided)"
        width = float(self.width.detach().mean())
        return (
            f"Bounds(shape={shape}, lower in [{_span(self.lower)}], upper in "
            f"[{_span(self.upper)}], mean width {width:.4g})"
        )


def _span(tensor: Tensor) -> str:
    """The least and the greatest entry, to be read."""
    numbers = tensor.detach().to(torch.float64)
    return f"{float(numbers.min()):.4g}, {float(numbers.max()):.4g}"


@dataclass(frozen=True, eq=False)
class LinearBounds:
    """Linear functions below and above the output, pointwise for every member of the regions:

        sum over sources of lower_A[name] . x[name] + lower_b  <=  output  <=  the same with upper.

    ``lower_A[name]`` has the shape (samples, *output of one sample, *shape of the source), where
    the shape of a batched source is that of one sample; ``lower_b`` has the shape of the output,
    samples first. With a ``spec`` the output is ``spec @ output``. Models without a batch have no
    sample dimension.
    """

    lower_A: Mapping[str, Tensor]
    lower_b: Tensor
    upper_A: Mapping[str, Tensor]
    upper_b: Tensor
    regions: Mapping[str, Region] = field(repr=False)
    batched: Mapping[str, bool] = field(repr=False)
    samples: int | None = field(repr=False)

    @undisturbed()
    def concretize(self) -> Bounds:
        """The least and greatest values of the linear functions over the regions."""
        return Bounds(
            self._minimum(self.lower_A, self.lower_b, 1),
            self._minimum(self.upper_A, self.upper_b, -1),
        )

    def _minimum(self, coefficients: Mapping[str, Tensor], bias: Tensor, sign: int) -> Tensor:
        """The least value of a linear function over the regions, the greatest one for sign -1: of
        the shape of the output."""
        samples = self._samples
        total = sign * bias.reshape(samples, -1)
        for name, matrix in coefficients.items():
            source = self._shape_of_one(name, self.regions[name].centre)
            rows = matrix.reshape(samples, -1, *source).transpose(0, 1)  # (rows, samples, *shape)
            total = total + self.regions[name].minimum(sign * rows).T
        return (sign * total).reshape(bias.shape)

    @undisturbed()
    def evaluate(self, values: Mapping[str, Tensor]) -> Bounds:
        """Both linear functions at one point: name -> value of the source."""
        return Bounds(
            self._value(self.lower_A, self.lower_b, values),
            self._value(self.upper_A, self.upper_b, values),
        )

    def _value(
        self, coefficients: Mapping[str, Tensor], bias: Tensor, values: Mapping[str, Tensor]
    ) -> Tensor:
        """One linear function at a point: of the shape of the output."""
        samples = self._samples
        total = bias.reshape(samples, -1)
        for name, matrix in coefficients.items():
            value = values[name]
            rows = matrix.reshape(samples, -1, self._shape_of_one(name, value).numel())
            points = 1  # one for all samples
            if self.batched[name]:
                points = samples
            total = total + (rows * value.reshape(points, 1, -1)).sum(-1)
        return total.reshape(bias.shape)

    @property
    def _samples(self) -> int:
        """How many there are; one of a model without a batch."""
        if self.samples is None:
            return 1
        return self.samples

    def _shape_of_one(self, name: str, value: Tensor) -> torch.Size:
        """The shape of a source, of one sample if it is batched."""
        if self.batched[name]:
            return value.shape[1:]
        return value.shape

    def __repr__(self) -> str:
        sources = ", ".join(
            f"{name}: {tuple(matrix.shape)}" for name, matrix in self.lower_A.items()
        )
        return f"LinearBounds(b={tuple(self.lower_b.shape)}, A={{{sources}}})"
