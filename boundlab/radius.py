"""``bl.certified_radius``: for each sample the largest radius that is proved, and the smallest that
is broken."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.attacks import AttackSettings, attack
from boundlab.errors import ArgumentError, Contradiction
from boundlab.methods.method import Method, find_method
from boundlab.net import Net
from boundlab.regions import Region
from boundlab.regions.checks import Number
from boundlab.regions.norms import NORMS, norm_named
from boundlab.specs.labels import Labels, read_labels

LEAST = 1e-6
"""Radii below this share of the largest one are not asked."""
FURTHER = 8.0
"""By how much a search goes on at a time while nothing is known below a radius."""
CLOSER = 12
"""Halvings of the way from a clean sample to a violation."""
ROUNDING = 1e-5
"""A violation by less than this share of the largest output may be one of rounding."""


@dataclass(frozen=True, eq=False)
class Radii:
    """Radii of balls around samples: (samples,), in the type of the samples.

    proved: the largest that was asked and proved; 0 where none was. broken: the smallest whose ball
    is known to hold a violation; infinite where none was found. examples: the violations,
    (samples, *shape), NaN where none was found.

    Between the two radii nothing is known. Where a clean sample is misclassified both are 0;
    elsewhere proved < broken.
    """

    proved: Tensor
    broken: Tensor
    examples: Tensor

    def __str__(self) -> str:
        found = self.broken[self.broken.isfinite()]
        return (
            f"Radii({len(self.proved)} samples, proved {_span(self.proved)}, "
            f"{len(found)} broken {_span(found)})"
        )

    __repr__ = __str__


def _span(values: Tensor) -> str:
    if not len(values):
        return "nowhere"
    return f"in [{float(values.min()):.4g}, {float(values.max()):.4g}]"


def certified_radius(
    net: Net,
    x: Tensor,
    labels: Labels,
    norm: str | float = "inf",
    method: str | Method = "crown",
    *,
    lower: Number | None = None,
    upper: Number | None = None,
    most: float = 1.0,
    tolerance: float = 0.01,
    steps: int = 40,
    restarts: int = 2,
    batch: int = 64,
) -> Radii:
    """Search for the largest radius that is proved for each sample, and the smallest that is
    broken.

    net: a classifier of one input. x: (samples, *shape). labels: (samples,). norm: "inf", "2" or
    "1". lower, upper: the valid range that balls are cut to. most: the largest radius that is
    asked. tolerance: how far apart, as a share, the last radius that was proved (or attacked in
    vain) and the last that was not may be. steps, restarts: of the attacks; without restarts there
    are none. batch: samples at a time.

    Radii are found by bisection for all samples of a batch at once. Every one that is reported was
    asked: a proved one by bounds at that radius, a broken one by a violation in that ball, which
    the model itself confirms.
    """
    for name, number in (("most", most), ("tolerance", tolerance)):
        if isinstance(number, str) or not 0 < number < torch.inf:
            raise ArgumentError(f"{name} must be a number above 0, not {number!r}")
    if batch < 1:
        raise ArgumentError(f"the batch size must be at least 1, not {batch}")
    if not net.graph.examples[net.graph.inputs[0]][2]:
        raise ArgumentError("certified_radius needs a net with a free batch size")
    ball = NORMS[norm_named(norm)](x, 0.0, lower, upper)
    with torch.no_grad():
        classes = net(x[:1]).shape[-1]
    y = read_labels(labels, len(x), classes, x.device)
    effort = AttackSettings(steps, restarts) if restarts else None
    parts = []
    for first in range(0, len(x), batch):
        part = slice(first, first + batch)
        search = _Search(net, ball.samples(part), y[part], find_method(method), most, tolerance)
        parts.append(search.radii(effort))
    return Radii(
        torch.cat([part.proved for part in parts]),
        torch.cat([part.broken for part in parts]),
        torch.cat([part.examples for part in parts]),
    )


@dataclass(frozen=True, eq=False)
class _Search:
    """The search around some samples. ball: around all of them, of any radius."""

    net: Net
    ball: Any
    labels: Tensor
    method: Method
    most: float
    tolerance: float

    def radii(self, effort: AttackSettings | None) -> Radii:
        x = self.ball.centre
        proved = self._proved()
        broken, examples = torch.full_like(proved, torch.inf), torch.full_like(x, torch.nan)
        wrong = self._margin(self._everyone, x) <= 0
        broken[wrong], examples[wrong] = 0.0, x[wrong]
        if effort is not None:
            self._break(effort, proved, broken, examples)
        both = ((proved > 0) & (proved >= broken)).nonzero().flatten().tolist()
        if both:
            raise Contradiction(
                f"sample {both[0]} of a batch is proved at radius {float(proved[both[0]]):g} by "
                f"{self.method.name} and broken at radius {float(broken[both[0]]):g}: one of the "
                "two is wrong, which is a bug in boundlab; please report it with the model and the "
                "sample"
            )
        return Radii(proved, broken, examples)

    @property
    def _everyone(self) -> Tensor:
        return torch.arange(len(self.labels), device=self.labels.device)

    def _region(self, chosen: Tensor, radius: Tensor) -> Region:
        """The balls of some samples, each of its own radius."""
        found: Region = replace(self.ball.samples(chosen), eps=radius)
        return found

    def _apart(self, low: Tensor, high: Tensor) -> Tensor:
        """Whether two ends are too far apart, and there are numbers between them."""
        share = max(self.tolerance, 16 * torch.finfo(high.dtype).eps)
        return (high - low > share * high) & (high > LEAST * self.most)

    # -- proofs ----------------------------------------------------------------------------------

    @torch.no_grad()
    def _holds(self, chosen: Tensor, radius: Tensor) -> Tensor:
        """Which of some samples are proved at a radius each: (chosen,)."""
        region = self._region(chosen, radius)
        margins = self.net.margins(region, self.labels[chosen], method=self.method)
        return ((margins > 0) & margins.isfinite()).all(1)

    def _proved(self) -> Tensor:
        """The largest radius that was asked and proved: (samples,)."""
        x = self.ball.centre
        low = x.new_zeros(len(x))
        high = torch.full_like(low, self.most)
        asked = self._holds(self._everyone, low).nonzero().flatten()
        right, radius = asked, high[asked]
        while len(asked):
            holds = self._holds(asked, radius)
            low[asked[holds]] = radius[holds]
            high[asked[~holds]] = radius[~holds]
            asked = right[self._apart(low[right], high[right])]
            radius = _between(low[asked], high[asked])
        return low

    # -- violations ------------------------------------------------------------------------------

    @torch.no_grad()
    def _margin(self, chosen: Tensor, x: Tensor) -> Tensor:
        """f_y less the largest other output at points, one of each of some samples, as a share of
        the largest output: (chosen,)."""
        outputs: Tensor = self.net(x)
        label = self.labels[chosen][:, None]
        least = outputs.gather(1, label).squeeze(1) - outputs.scatter(1, label, -torch.inf).amax(1)
        return least / outputs.abs().amax(1).clamp(min=torch.finfo(outputs.dtype).tiny)

    def _break(
        self, effort: AttackSettings, proved: Tensor, broken: Tensor, examples: Tensor
    ) -> None:
        """Attack balls larger than the proved ones until one is broken, and then between; what is
        found goes into ``broken`` and ``examples``."""
        low = proved.clone()
        factor = torch.where(proved > 0, 2.0, FURTHER)
        start = torch.where(proved > 0, 2 * proved, self.most * FURTHER**-4)
        asked = ((broken > 0) & (proved < self.most)).nonzero().flatten()
        radius = start[asked].clamp(max=self.most)
        while len(asked):
            region = self._region(asked, radius)
            settings = {"steps": effort.steps, "restarts": effort.restarts, "seed": effort.seed}
            found = attack(self.net, region, self.labels[asked], **settings)
            hit, samples = found.violated, asked[found.violated]
            points, radii = self._closer(samples, found.inputs[hit], radius[hit], proved[samples])
            broken[samples], examples[samples] = radii, points
            low[asked[~hit]] = radius[~hit]
            unknown = broken.isinf() & (low < self.most)
            asked = (unknown | (broken.isfinite() & self._apart(low, broken))).nonzero().flatten()
            onwards = (low * factor).clamp(max=self.most)
            onwards = torch.where(low > 0, onwards, start)
            radius = torch.where(broken.isinf(), onwards, _between(low, broken))[asked]

    def _closer(
        self, chosen: Tensor, x: Tensor, radius: Tensor, proved: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Violations in balls of some radii, pulled towards their samples as far as they stay
        violations, and the radii of the smallest balls that hold them."""
        if not len(chosen):
            return x, radius
        centre = self.ball.centre[chosen]
        column = lambda share: share.reshape(-1, *[1] * (x.dim() - 1))
        share, least = torch.ones_like(radius), torch.zeros_like(radius)
        for _ in range(CLOSER):
            middle = (share + least) / 2
            point = centre + column(middle) * (x - centre)
            breaks = self._margin(chosen, point) <= 0
            share = torch.where(breaks, middle, share)
            least = torch.where(breaks, least, middle)
        point = centre + column(share) * (x - centre)
        away = torch.linalg.vector_norm(
            (point - centre).flatten(1).double(), self._order, dim=1
        ) * (1 + 8 * torch.finfo(x.dtype).eps)
        closer = away.to(radius).clamp(min=LEAST * self.most)
        margin = self._margin(chosen, point)
        good = (closer < radius) & (margin <= 0) & self._region(chosen, closer).contains(point)
        good &= ~((closer <= proved) & (margin > -ROUNDING))  # a tie, by rounding
        return torch.where(column(good), point, x), torch.where(good, closer, radius)

    @property
    def _order(self) -> float:
        return next(float(name) for name, kind in NORMS.items() if isinstance(self.ball, kind))


def _between(low: Tensor, high: Tensor) -> Tensor:
    """A radius to ask next, strictly between two ends: far below the upper one while the lower one
    is 0, the geometric mean while they are far apart, the middle in the end."""
    far = torch.where(low > 0, (low * high).sqrt(), high / FURTHER)
    return torch.where(high > 2 * low, far, (low + high) / 2)
