"""Clean, attacked and verified error of a network over a data set, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from boundlab.data import Images
from boundlab.net import capture
from boundlab.regions import Linf
from boundlab.training.processes import Processes


@dataclass(frozen=True)
class Attack:
    """Projected gradient ascent on the margin loss inside the linf ball, from random starts.

    size: of a step, in units of eps; it falls to a tenth along the way.
    """

    steps: int = 40
    restarts: int = 2
    size: float = 0.25
    seed: int = 0


@dataclass(frozen=True)
class Errors:
    """Shares of ``count`` samples, each with the ends of its 95 % Wilson interval."""

    count: int
    clean: float
    attacked: float
    verified: dict[str, float]
    """method -> the share that it does not prove."""

    def interval(self, share: float) -> tuple[float, float]:
        return wilson(share, self.count)


def wilson(share: float, count: int, z: float = 1.96) -> tuple[float, float]:
    """The interval of success probabilities that a share of ``count`` trials does not rule out
    (Wilson 1927)."""
    if not count:
        return 0.0, 1.0
    centre = (share + z * z / (2 * count)) / (1 + z * z / count)
    reach = (
        z
        * math.sqrt(share * (1 - share) / count + z * z / (4 * count * count))
        / (1 + z * z / count)
    )
    return max(0.0, centre - reach), min(1.0, centre + reach)


def attack(model: nn.Module, x: Tensor, y: Tensor, eps: float, settings: Attack) -> Tensor:
    """Which samples (batch,) an attack inside the ball and inside [0, 1] moves to a wrong class,
    clean errors included."""
    generator = torch.Generator(device="cpu").manual_seed(settings.seed)
    low, up = (x - eps).clamp(min=0), (x + eps).clamp(max=1)
    broken = model(x).argmax(1) != y
    for _ in range(settings.restarts):
        alive = (~broken).nonzero().flatten()
        if not len(alive) or eps == 0:
            break
        xs, ys = x[alive], y[alive]
        lows, ups = low[alive], up[alive]
        point = lows + (ups - lows) * torch.rand(xs.shape, generator=generator).to(xs)
        for step in range(settings.steps):
            point = point.detach().requires_grad_()
            with torch.enable_grad():
                logits = model(point)
                own = logits.gather(1, ys[:, None]).squeeze(1)
                other = logits.masked_fill(F.one_hot(ys, logits.shape[1]).bool(), -torch.inf).amax(
                    1
                )
                (gradient,) = torch.autograd.grad((other - own).sum(), point)
            broken[alive] |= (own <= other).detach()
            length = settings.size * eps * 0.1 ** (step / settings.steps)
            point = torch.minimum(
                torch.maximum(point.detach() + length * gradient.sign(), lows), ups
            )
        broken[alive] |= model(point).argmax(1) != ys
    return broken


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: Images,
    eps: float,
    methods: tuple[str, ...] = ("ibp",),
    settings: Attack | None = None,
    *,
    batch: int = 200,
    processes: Processes | None = None,
    watch: Callable[[int], None] = lambda _: None,
) -> Errors:
    """Errors in eval mode at radius eps in pixel space. Methods run in the given order, cheap ones
    first: a sample that one has proved is proved for those behind it. With several processes each
    takes its share of the samples. watch: is told how many samples are done."""
    processes = processes or Processes()
    settings = settings or Attack()
    was = model.training
    model.eval().to(processes.device)
    pixels = lambda part: data.images[part].to(processes.device).float() / 255
    net = capture(model, pixels(slice(0, 2)))
    counts = torch.zeros(3 + len(methods), dtype=torch.float64, device=processes.device)
    own = torch.arange(processes.rank, len(data), processes.count)
    for part in own.split(batch):
        x = pixels(part)
        y = data.labels[part].to(processes.device)
        wrong = model(x).argmax(1) != y
        broken = wrong
        if settings.restarts:
            broken = attack(model, x, y, eps, settings)
        open_ = ~wrong  # right, and not proved so far
        missing = []
        for method in methods:
            left = open_.nonzero().flatten()
            if len(left):
                margins = net.margins(
                    Linf(x[left], eps, lower=0.0, upper=1.0), y[left], method=method
                )
                open_[left] = ~(margins > 0).all(1)
            missing.append((wrong | open_).sum())
        counts += torch.stack(
            [torch.tensor(len(part), device=x.device), wrong.sum(), broken.sum(), *missing]
        ).double()
        watch(len(part))
    model.train(was)
    total, clean, attacked, *verified = processes.sum(counts).tolist()
    return Errors(
        int(total),
        clean / total,
        attacked / total,
        {name: n / total for name, n in zip(methods, verified, strict=True)},
    )
