"""Error of a network over a data set, clean and under attack, and what is verified of it, with
confidence intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from boundlab.attacks import AttackSettings, attack
from boundlab.data import Images
from boundlab.net import Net, capture
from boundlab.regions import Linf
from boundlab.training.processes import Processes
from boundlab.verify.samples import COMPLETE, SampleVerifier, time_limit
from boundlab.verify.verdict import HOLDS, VIOLATED

FORMAT = 2
"""Of the files that hold errors."""


@dataclass(frozen=True)
class Errors:
    """Shares of ``count`` samples, each with the ends of its 95 % Wilson interval."""

    count: int
    clean: float
    attacked: float
    """The share that is wrong, or has a counterexample: found by the attack, or by the method
    "complete"."""
    verified: dict[str, float]
    """method -> the share that it, or a method before it, proves."""
    open: float
    """The share that has no counterexample, and that no method proves."""

    @property
    def proved(self) -> float:
        """The share that some method proves."""
        return max(self.verified.values(), default=0.0)

    def interval(self, share: float) -> tuple[float, float]:
        return wilson(share, self.count)


def read_errors(path: Path) -> dict[str, Any]:
    """What ``boundlab evaluate`` has written. In files without a format number ``verified`` holds
    shares that are not proved; they are read as the shares that are."""
    found: dict[str, Any] = json.loads(path.read_text())
    if "format" not in found:
        found["verified"] = {method: 1 - share for method, share in found["verified"].items()}
        found["format"] = FORMAT
    return found


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
    timeout: float | None = None,
    batch: int = 200,
    processes: Processes | None = None,
    watch: Callable[[int], None] = lambda _: None,
) -> Errors:
    """Errors in eval mode at radius eps in pixel space. Methods run in the given order, cheap ones
    first: a sample that one has proved is proved for those behind it. The method "complete"
    verifies samples one by one, those that the attack has not broken, each for ``timeout`` seconds
    (60 if left out). With several processes each takes its share of the samples. settings: of the
    attack; without restarts there is none. watch: is told how many samples are done."""
    methods = tuple(dict.fromkeys(methods))
    limit = time_limit(timeout, methods)
    processes = processes or Processes()
    settings = settings or AttackSettings()
    was = model.training
    model.eval().to(processes.device)
    pixels = lambda part: data.images[part].to(processes.device).float() / 255
    net = capture(model, pixels(slice(0, 2)))
    verifier = None
    if limit is not None:
        verifier = SampleVerifier(model, limit)
    counts = torch.zeros(4 + len(methods), dtype=torch.float64, device=processes.device)
    own = torch.arange(processes.rank, len(data), processes.count)
    for part in own.split(batch):
        labels = data.labels[part].to(processes.device)
        ball = Linf(pixels(part), eps, lower=0.0, upper=1.0)
        samples = _Samples(ball, labels, model(ball.centre).argmax(1) != labels, watch)
        if settings.restarts:
            samples.broken |= attack(model, ball, labels, **asdict(settings)).violated
        verified = []
        for method in methods:
            if verifier is not None and method == COMPLETE:
                samples.verify(verifier)
            else:
                samples.bound(net, method)
            verified.append(samples.proved.sum())
        size = torch.tensor(len(part), device=processes.device)
        known = (samples.wrong.sum(), samples.broken.sum(), samples.open.sum())
        counts += torch.stack([size, *known, *verified]).double()
        watch(len(part) - samples.told)
    model.train(was)
    total, *shares = processes.sum(counts).tolist()
    clean, attacked, open_, *proved = [count / total for count in shares]
    by_method = dict(zip(methods, proved, strict=True))
    return Errors(int(total), clean, attacked, by_method, open_)


class _Samples:
    """What is known of some samples (samples,): which are wrong, which are wrong or have a
    counterexample, and which are proved. told: of how many ``watch`` was told."""

    def __init__(
        self, ball: Linf, labels: Tensor, wrong: Tensor, watch: Callable[[int], None]
    ) -> None:
        self.ball, self.labels, self.watch = ball, labels, watch
        self.wrong, self.broken = wrong, wrong.clone()
        self.proved = torch.zeros_like(wrong)
        self.told = 0

    @property
    def open(self) -> Tensor:
        return ~(self.broken | self.proved)

    def bound(self, net: Net, method: str) -> None:
        """Bound the margins of those that are right and not proved."""
        left = (~(self.wrong | self.proved)).nonzero().flatten()
        if len(left):
            margins = net.margins(self.ball.samples(left), self.labels[left], method=method)
            self.proved[left] = (margins > 0).all(1)

    def verify(self, verifier: SampleVerifier) -> None:
        """Verify those that are open, one by one."""
        for sample in self.open.nonzero().flatten().tolist():
            one = slice(sample, sample + 1)
            verdict = verifier.verify(self.ball.samples(one), int(self.labels[sample]))
            self.proved[sample] = verdict.status == HOLDS
            self.broken[sample] = verdict.status == VIOLATED
            self.watch(1)
            self.told += 1
