"""Clean, attacked and verified error of a network over a data set, with confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import torch
from torch import nn

from boundlab.attacks import AttackSettings, attack
from boundlab.data import Images
from boundlab.net import capture
from boundlab.regions import Linf
from boundlab.training.processes import Processes


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


@torch.no_grad()
def evaluate(
    model: nn.Module,
    data: Images,
    eps: float,
    methods: tuple[str, ...] = ("ibp",),
    settings: AttackSettings | None = None,
    *,
    batch: int = 200,
    processes: Processes | None = None,
    watch: Callable[[int], None] = lambda _: None,
) -> Errors:
    """Errors in eval mode at radius eps in pixel space. Methods run in the given order, cheap ones
    first: a sample that one has proved is proved for those behind it. With several processes each
    takes its share of the samples. settings: of the attack; without restarts there is none.
    watch: is told how many samples are done."""
    processes = processes or Processes()
    settings = settings or AttackSettings()
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
        ball = Linf(x, eps, lower=0.0, upper=1.0)
        broken = wrong
        if settings.restarts:
            broken = wrong | attack(model, ball, y, **asdict(settings)).violated
        open_ = ~wrong  # right, and not proved so far
        missing = []
        for method in methods:
            left = open_.nonzero().flatten()
            if len(left):
                margins = net.margins(ball.samples(left), y[left], method=method)
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
