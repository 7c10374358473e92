"""Samples of which a few elements may be replaced."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.dense import inner
from boundlab.errors import ArgumentError
from boundlab.regions.base import Region, batch_size, drawn, flat_beside, take_samples
from boundlab.regions.checks import Number, centre_tensor, given, spread
from boundlab.relaxations.interval import Interval


@dataclass(frozen=True, eq=False)
class L0(Region):
    """At most k elements of each sample replaced by anything in ``[lower, upper]``; k is a number
    or one per sample."""

    x: Tensor | None = None
    k: int | Tensor = 1
    lower: Number = 0.0
    upper: Number = 1.0

    def __post_init__(self) -> None:
        device = torch.device("cpu")
        if self.x is not None:
            device = self.x.device
        wrong = ArgumentError(
            f"k counts changed elements: a whole number >= 0 (or one per sample), not {self.k!r}"
        )
        try:
            k = torch.as_tensor(self.k, device=device)
        except (TypeError, ValueError, RuntimeError):
            raise wrong from None
        if k.is_floating_point() or (k < 0).any():
            raise wrong
        if self.x is not None:
            centre_tensor(self.x)
            if (spread(self.lower, self.x, "lower") > spread(self.upper, self.x, "upper")).any():
                raise ArgumentError("L0: lower exceeds upper, so no element has anywhere to go")

    def at(self, value: Tensor) -> L0:
        if self.x is not None:
            return self
        return L0(value, self.k, self.lower, self.upper)

    @property
    def centre(self) -> Tensor:
        return given(self.x)

    def contains(self, x: Tensor, tolerance: float = 0.0) -> Tensor:
        centre, flat = given(self.x), x.reshape(len(x), -1).double()
        low = flat_beside(spread(self.lower, centre, "lower").expand(centre.shape), flat)
        up = flat_beside(spread(self.upper, centre, "upper").expand(centre.shape), flat)
        stays = (flat - flat_beside(centre, flat)).abs() <= tolerance
        fits = stays | ((flat >= low - tolerance) & (flat <= up + tolerance))
        counts = self._counts(len(flat)).to(flat.device)
        return fits.all(1) & ((~stays).sum(1) <= counts)

    def samples(self, chosen: slice | Tensor) -> Region:
        return take_samples(self, chosen)

    def _counts(self, samples: int) -> Tensor:
        """How many elements may change, for each sample."""
        return torch.as_tensor(self.k, device=given(self.x).device).reshape(-1).expand(samples)

    def hull(self) -> Interval:
        x = given(self.x)
        low = torch.minimum(x, spread(self.lower, x, "lower").expand(x.shape))
        up = torch.maximum(x, spread(self.upper, x, "upper").expand(x.shape))
        moves = torch.as_tensor(self.k, device=x.device) > 0
        if moves.dim():  # one per sample
            moves = moves.reshape(-1, *[1] * (x.dim() - 1))
        return Interval(torch.where(moves, low, x), torch.where(moves, up, x))

    def minimum(self, coefficients: Tensor) -> Tensor:
        """Exact: change the k elements whose best change lowers the sum most."""
        x = given(self.x)
        low, up = spread(self.lower, x, "lower"), spread(self.upper, x, "upper")
        gains = torch.minimum(coefficients * (low - x), coefficients * (up - x)).clamp(max=0)
        if gains.dim() == 2:  # of single numbers
            gains = gains.unsqueeze(2)
        ordered = gains.flatten(2).sort(dim=2).values
        rank = torch.arange(ordered.shape[2], device=x.device)
        chosen = rank < self._counts(ordered.shape[1])[:, None]
        return inner(coefficients, x) + torch.where(chosen, ordered, 0).sum(2)

    def sample(self, generator: torch.Generator | None = None, batched: bool = True) -> Tensor:
        x = given(self.x)
        batch = batch_size(x, batched)
        order = drawn(torch.rand, x.shape, generator, x).reshape(batch, -1)
        rank = order.argsort(1).argsort(1)
        chosen = (rank < self._counts(batch)[:, None]).reshape(x.shape)
        low, up = spread(self.lower, x, "lower"), spread(self.upper, x, "upper")
        place = low + drawn(torch.rand, x.shape, generator, x) * (up - low)
        return torch.where(chosen, place, x)
