"""Small models with planted mixing or independence of samples: ``python -m tests.attacks.mixing
--count N --seed S``.

What capture says of each is held against how it was built. Wrong is: a model that mixes samples,
accepted with a batch; bounds of a sample that change with its neighbours; another value than the
model's for another batch size; a bound that a member of the region leaves; an error that is not
boundlab's own. Independent models that are refused are counted by piece.

A model counts as mixing only with a witness: one sample of the input changed, with all veils open,
and another sample of the output moved. Models without a witness (a later piece took away what was
mixed) are left out.
"""

from __future__ import annotations

import argparse
import logging
import random
import warnings
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

import boundlab as bl
from tests.attacks.pieces import INDEPENDENT, OTHER_SIZES, Extra, Shape
from tests.attacks.veils import MIXING, VEILS, Mixes

FORMS: tuple[Shape, ...] = ((6,), (4,), (5, 4), (3, 4), (2, 4, 4))
FIXED = 6
"""The batch size of models that fix it."""
UNSUPPORTED = (bl.UnsupportedOperator, bl.DomainError)


class Step(nn.Module):
    """One piece, perhaps with x added to what it gives."""

    def __init__(self, call: Any, residual: bool, reads: bool) -> None:
        super().__init__()
        self.call, self.residual, self.reads = call, residual, reads

    def forward(self, x: Tensor, *extra: Tensor) -> Tensor:
        y = self.call(x, *extra)
        return x + y if self.residual else y


class Model(nn.Module):
    """Steps in a row; those that read a further input take the next one."""

    def __init__(self, steps: list[Step]) -> None:
        super().__init__()
        self.steps = nn.ModuleList(steps)

    def forward(self, x: Tensor, *extras: Tensor) -> Tensor:
        left = list(extras)
        for step in self.steps:
            x = step(x, left.pop(0)) if step.reads else step(x)
        return x


@dataclass
class Planted:
    """A model and what is known of it by construction."""

    seed: int
    model: Model
    shape: Shape
    samples: int
    pieces: list[str]
    extras: list[Extra]
    mixes: bool
    fixed: bool
    sized: bool
    undone: bool

    def example(self, samples: int, opened: bool = False) -> list[Tensor]:
        return [(extra.opened if opened else extra.example)(samples) for extra in self.extras]

    def __str__(self) -> str:
        return f"seed {self.seed}: {self.shape}, {self.samples} samples: {' -> '.join(self.pieces)}"


def plant(seed: int, mixes: bool | None = None, pieces: tuple[str, ...] | None = None) -> Planted:
    """The model of a seed. mixes: whether one of its pieces shall mix (None: half of them do).
    pieces: these independent ones."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    mixes = rng.random() < 0.5 if mixes is None else mixes
    shape = rng.choice(FORMS)
    if pieces is not None:
        shape = next(s for s in FORMS if len(s) in INDEPENDENT[pieces[0]].ranks)
    start, steps, names, extras = shape, [], [], []
    fixed = sized = undone = False
    count = rng.randint(1, 4) if pieces is None else len(pieces)
    place = rng.randrange(count + 1) if mixes else -1
    for k in range(count + 1):
        if k == place:
            mix, veil = rng.choice(sorted(MIXING)), rng.choice(sorted(VEILS))
            hiding = VEILS[veil]
            steps.append(Step(Mixes(MIXING[mix], hiding), False, hiding.extra is not None))
            names.append(f"MIXES {mix} [{veil}]")
            extras += [hiding.extra(shape)] if hiding.extra else []
            fixed |= hiding.fixes
        if k == count:
            break
        possible = sorted(name for name, piece in INDEPENDENT.items() if len(shape) in piece.ranks)
        name = rng.choice(possible) if pieces is None else pieces[k]
        piece = INDEPENDENT[name]
        # seldom
        if pieces is None and (piece.fixes or piece.sized or piece.undone) and rng.random() < 0.8:
            name, piece = "tanh", INDEPENDENT["tanh"]
        call, after = piece.make(rng, shape)
        residual = after == shape and rng.random() < 0.3
        steps.append(Step(call, residual, piece.extra is not None))
        names.append(name + (", residual" if residual else ""))
        extras += [piece.extra(shape)] if piece.extra else []
        fixed, sized, undone, shape = (
            fixed or piece.fixes,
            sized or piece.sized,
            undone or piece.undone,
            after,
        )
    samples = FIXED if fixed else rng.choice([1, 2, 3, 4, 6, 8])
    return Planted(
        seed, Model(steps).eval(), start, samples, names, extras, mixes, fixed, sized, undone
    )


def witness(planted: Planted) -> bool:
    """Whether a change of one sample, of any input, with all veils open, moves another sample of
    the output."""
    model, n = planted.model, FIXED
    weights = [w for w in model.parameters() if w.dim() == 0]
    generator = torch.Generator().manual_seed(planted.seed)
    with torch.no_grad():
        for weight in weights:
            weight.fill_(1.0)
        found = any(
            _moves(planted, n, scale, sample, generator)
            for scale in (1.0, 30.0, 3e3, 3e4)
            for sample in range(n)
        )
        for weight in weights:
            weight.zero_()
    return found


def _moves(planted: Planted, n: int, scale: float, sample: int, generator: torch.Generator) -> bool:
    x = scale * torch.randn(n, *planted.shape, generator=generator)
    extras = planted.example(n, opened=True)
    changed = x.clone()
    changed[sample] = scale * torch.randn(planted.shape, generator=generator)
    others = [
        _with_other(extra, value, planted.example(n, opened=True)[k], sample)
        for k, (extra, value) in enumerate(zip(planted.extras, extras, strict=True))
    ]
    before, after = planted.model(x, *extras), planted.model(changed, *others)
    beside = torch.arange(n) != sample
    apart, size = (after - before).abs()[beside], before.abs()[beside]
    return bool((apart > 1e-3 * (size + 0.1)).any())


def _with_other(extra: Extra, value: Tensor, drawn: Tensor, sample: int) -> Tensor:
    """A further input with another value for that sample."""
    if not extra.batched:
        return value
    changed = value.clone()
    changed[sample] = drawn[sample]
    return changed


@dataclass
class Verdict:
    """answer: what capture said. findings: what is wrong with it. unsupported: bounds that no rule
    gives."""

    planted: Planted
    answer: str
    findings: list[str] = field(default_factory=list)
    unsupported: bool = False
    message: str = ""


def judge(planted: Planted) -> Verdict | None:
    """What capture says of a model, against what is known of it; None if it has no witness."""
    if witness(planted) != planted.mixes:
        assert planted.mixes, f"built of independent pieces, but mixes: {planted}"
        return None
    torch.manual_seed(planted.seed)
    x = torch.randn(planted.samples, *planted.shape)
    try:
        net = bl.capture(planted.model, x, *planted.example(planted.samples))
    except bl.MixedSamples as error:
        return Verdict(planted, "refused", message=str(error))
    except bl.BoundlabError as error:
        return Verdict(planted, type(error).__name__, message=str(error))
    except Exception as error:
        return Verdict(planted, "crashed", [f"capture raised {type(error).__name__}: {error}"])
    verdict = Verdict(planted, "accepted" if net.graph.batched else "one sample")
    if planted.mixes and net.graph.batched:
        verdict.findings.append("mixing accepted")
        return verdict
    free = any(free for *_, free in net.graph.examples.values())
    for samples in OTHER_SIZES if free else (planted.samples,):
        if not verdict.findings:
            _ask(verdict, net, samples)
    return verdict


def _ask(verdict: Verdict, net: bl.Net, samples: int) -> None:
    """Values and bounds for a batch of that size."""
    planted = verdict.planted
    x, extras = torch.randn(samples, *planted.shape), planted.example(samples)
    try:
        truth = planted.model(x, *extras)
    except Exception:
        return  # the model itself cannot
    try:
        value = net(x, *extras)
        if value.shape != truth.shape or not torch.allclose(value, truth, rtol=1e-4, atol=1e-5):
            verdict.findings.append(f"another value than the model's for {samples} samples")
            return
        for method in ("ibp", "crown"):
            _bounds(verdict, net, x, extras, method)
    except UNSUPPORTED:
        verdict.unsupported = True
    except bl.BoundlabError as error:
        verdict.message = f"{samples} samples: {error}"
    except Exception as error:
        verdict.findings.append(f"{samples} samples: {type(error).__name__}: {error}")


def _bounds(verdict: Verdict, net: bl.Net, x: Tensor, extras: list[Tensor], method: str) -> None:
    """Sound for the model, and the same for a sample whoever its neighbours are."""
    planted = verdict.planted
    with torch.no_grad():
        bounds = net.bounds(bl.Linf(x, 0.05), *extras, method=method)
        for sign in (0.0, 1.0, -1.0):
            noise = torch.rand_like(x) * 2 - 1 if sign == 0 else torch.full_like(x, sign)
            value = planted.model(x + 0.05 * noise, *extras)
            room = 1e-4 * (1 + value.abs())
            if not bool(((bounds.lower - room <= value) & (value <= bounds.upper + room)).all()):
                verdict.findings.append(f"{method}: a member of the region leaves its bounds")
                return
        if planted.mixes or not net.graph.batched:
            return
        other = 3 * torch.randn_like(x)
        other[0] = x[0]
        moved = [
            torch.cat([e[:1], d[1:]]) if extra.batched else e
            for e, d, extra in zip(
                extras, planted.example(len(x), opened=True), planted.extras, strict=True
            )
        ]
        beside = net.bounds(bl.Linf(other, 0.05), *moved, method=method)
        if not _same(bounds, beside):
            verdict.findings.append(f"{method}: bounds of a sample change with its neighbours")
        if planted.fixed or planted.sized:
            return
        alone = net.bounds(
            bl.Linf(x[:1], 0.05),
            *[
                e[:1] if extra.batched else e
                for e, extra in zip(extras, planted.extras, strict=True)
            ],
            method=method,
        )
        if not _same(bounds, alone):
            verdict.findings.append(
                f"{method}: bounds of a sample alone differ from those in the batch"
            )


def _same(a: bl.Bounds, b: bl.Bounds) -> bool:
    return all(
        torch.allclose(p[0], q[0], rtol=1e-3, atol=1e-4)
        for p, q in ((a.lower, b.lower), (a.upper, b.upper))
    )


def run(count: int, first: int, mixes: bool | None = None) -> list[Verdict]:
    verdicts = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("boundlab").setLevel(logging.ERROR)
        for seed in range(first, first + count):
            verdict = judge(plant(seed, mixes))
            if verdict is not None:
                verdicts.append(verdict)
                for finding in verdict.findings:
                    print(f"FINDING {finding}\n    {verdict.planted}", flush=True)
    return verdicts


def report(verdicts: list[Verdict], count: int) -> None:
    mixing = [v for v in verdicts if v.planted.mixes]
    fair = [v for v in verdicts if not v.planted.mixes and not v.planted.undone]
    undone = [v for v in verdicts if not v.planted.mixes and v.planted.undone]
    print(f"{count} models, {count - len(verdicts)} left out without a witness")
    for what, some in (
        ("mixing", mixing),
        ("independent", fair),
        ("mixing that is undone", undone),
    ):
        print(
            f"{what}: {len(some)}: {dict(Counter(v.answer for v in some))}, "
            f"{sum(v.unsupported for v in some)} without rules for bounds"
        )
    print(
        "mixing, accepted with a batch, by veil: "
        f"{_by(mixing, lambda v: v.answer == 'accepted', lambda name: 'MIXES' in name, '[')}"
    )
    refused = lambda v: v.answer not in ("accepted", "one sample")
    print(f"independent, refused, by piece that its refusals share most: {_by(fair, refused)}")
    print(
        "independent, taken for one sample, by piece: "
        f"{_by(fair, lambda v: v.answer == 'one sample')}"
    )
    for verdict in [v for v in fair if refused(v)][:30]:
        print(f"  {verdict.planted}\n      {verdict.message[:250]}")
    findings = [finding for verdict in verdicts for finding in verdict.findings]
    kinds = Counter(text.split(":")[0] if "raised" in text else text for text in findings)
    print(f"findings: {dict(kinds)}")


def _by(
    verdicts: list[Verdict], wanted: Any, piece: Any = lambda name: True, cut: str = ""
) -> dict[str, str]:
    """Piece -> how many of its models are wanted, of all with it; most suspicious first."""
    plain = lambda name: name[name.index(cut) :] if cut else name.removesuffix(", residual")
    total = Counter(plain(name) for v in verdicts for name in set(v.planted.pieces) if piece(name))
    hits = Counter(
        plain(name) for v in verdicts if wanted(v) for name in set(v.planted.pieces) if piece(name)
    )
    ranked = sorted(hits, key=lambda name: -hits[name] / total[name])
    return {
        name: f"{hits[name]}/{total[name]}" for name in ranked if hits[name] > 0.3 * total[name]
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    verdicts = run(options.count, options.seed)
    report(verdicts, options.count)
    return 1 if any(v.findings for v in verdicts) else 0


if __name__ == "__main__":
    raise SystemExit(main())
