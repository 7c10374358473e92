"""Error of a network over a data set, clean and under attack, and what is verified of it, with
confidence intervals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from boundlab.attacks import AttackSettings, attack
from boundlab.data import Samples, as_values
from boundlab.net import Net, capture
from boundlab.regions import Linf
from boundlab.scaling.parts import Here, Spread, Subject
from boundlab.training.objective import ball
from boundlab.training.processes import Processes
from boundlab.verify.samples import COMPLETE, SampleVerifier, time_limit
from boundlab.verify.verdict import HOLDS, VIOLATED

FORMAT = 2
"""Of the files that hold errors."""
Watch = Callable[[int], None]
"""Is told how many more samples are done."""


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
    data: Samples,
    eps: float,
    methods: tuple[str, ...] = ("ibp",),
    settings: AttackSettings | None = None,
    *,
    valid: tuple[float, ...] = (0.0, 1.0),
    timeout: float | None = None,
    arithmetic: str | None = None,
    batch: int = 200,
    processes: Processes | None = None,
    watch: Watch = lambda _: None,
    spread: Spread = Here,
) -> Errors:
    """Errors in eval mode at radius eps, in the unit of the network's inputs. Methods run in the
    given order, cheap ones first: a sample that one has proved is proved for those behind it. The
    method "complete" verifies samples one by one, those that the attack has not broken, each for
    ``timeout`` seconds (60 if left out). With several processes each takes its share of the
    samples. settings: of the attack; without restarts there is none. valid: the range (low, high)
    of inputs, or nothing. arithmetic: that bounds are proved for; None: rounding is taken for
    nothing. watch: is told how many samples are done. spread: where the work on
    batches is done."""
    methods = tuple(dict.fromkeys(methods))
    limit = time_limit(timeout, methods)
    processes = processes or Processes()
    settings = settings or AttackSettings()
    was = model.training
    model.eval().to(processes.device)
    pixels = lambda part: as_values(data.images[part].to(processes.device))
    net = capture(model, pixels(slice(0, 2)))
    counts = torch.zeros(4 + len(methods), dtype=torch.float64)
    own = torch.arange(processes.rank, len(data), processes.count).split(batch)
    parts = spread(Subject(net, data.images, data.labels))
    told = _Told(watch)
    work = CountErrors(eps, methods, settings, limit, processes.device, valid, arithmetic)
    if parts.is_here:
        work = replace(work, watch=told)
    with closing(parts.map(work, own)) as found:
        for part, known in zip(own, found, strict=True):
            counts += known
            told.up_to(len(part))
    model.train(was)
    total, *shares = processes.sum(counts.to(processes.device)).tolist()
    clean, attacked, open_, *proved = [count / total for count in shares]
    by_method = dict(zip(methods, proved, strict=True))
    return Errors(int(total), clean, attacked, by_method, open_)


class _Told:
    """Passes on how many samples of a part are done."""

    def __init__(self, watch: Watch) -> None:
        self.watch, self.count = watch, 0

    def __call__(self, count: int) -> None:
        self.count += count
        self.watch(count)

    def up_to(self, size: int) -> None:
        """All samples of a part of some size are done."""
        self.watch(size - self.count)
        self.count = 0


def _silent(_: int) -> None:
    """Progress that nobody watches."""


@dataclass(frozen=True)
class CountErrors:
    """Counts what is wrong, broken, open and verified among samples (N, ...), by their numbers.
    limit: seconds of the method "complete" for a sample. watch: is told of samples that it has
    verified."""

    eps: float
    methods: tuple[str, ...]
    settings: AttackSettings
    limit: float | None
    device: torch.device
    valid: tuple[float, ...] = (0.0, 1.0)
    arithmetic: str | None = None
    watch: Watch = _silent

    @torch.no_grad()
    def __call__(self, about: Subject, part: Tensor) -> Tensor:
        """How many samples there are, are wrong, broken, open, and verified by each method or one
        before it: (4 + methods,) in float64."""
        model = about.net.source
        assert isinstance(model, nn.Module)
        labels = about.labels[part].to(self.device)
        pixels = as_values(about.images[part].to(self.device))
        around = ball(pixels, self.eps, self.valid)
        samples = _Samples(around, labels, model(around.centre).argmax(1) != labels, self.watch)
        if self.settings.restarts:
            samples.broken |= attack(model, around, labels, **asdict(self.settings)).violated
        verified = []
        for method in self.methods:
            if method == COMPLETE and self.limit is not None:
                samples.verify(SampleVerifier(model, self.limit, self.arithmetic))
            else:
                samples.bound(about.net, method, self.arithmetic)
            verified.append(samples.proved.sum())
        known = (samples.wrong.sum(), samples.broken.sum(), samples.open.sum())
        size = torch.tensor(len(part), device=self.device)
        return torch.stack([size, *known, *verified]).double().cpu()


class _Samples:
    """What is known of some samples (samples,): which are wrong, which are wrong or have a
    counterexample, and which are proved. watch: is told of each that is verified."""

    def __init__(self, ball: Linf, labels: Tensor, wrong: Tensor, watch: Watch) -> None:
        self.ball, self.labels, self.watch = ball, labels, watch
        self.wrong, self.broken = wrong, wrong.clone()
        self.proved = torch.zeros_like(wrong)

    @property
    def open(self) -> Tensor:
        return ~(self.broken | self.proved)

    def bound(self, net: Net, method: str, arithmetic: str | None) -> None:
        """Bound the margins of those that are right and not proved."""
        left = (~(self.wrong | self.proved)).nonzero().flatten()
        if len(left):
            ball, labels = self.ball.samples(left), self.labels[left]
            margins = net.margins(ball, labels, method=method, arithmetic=arithmetic)
            self.proved[left] = (margins > 0).all(1)

    def verify(self, verifier: SampleVerifier) -> None:
        """Verify those that are open, one by one."""
        for sample in self.open.nonzero().flatten().tolist():
            one = slice(sample, sample + 1)
            verdict = verifier.verify(self.ball.samples(one), int(self.labels[sample]))
            self.proved[sample] = verdict.status == HOLDS
            self.broken[sample] = verdict.status == VIOLATED
            self.watch(1)
