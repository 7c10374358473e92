"""Labels of every type, shape and value: ``python -m tests.attacks.labels [--count N] [--seed S]``.

Whole numbers of any type and of shape (batch,) must give what int64 gives. Truth values, floats,
other shapes, other lengths and values out of range must raise bl.ArgumentError. Every function that
takes labels is asked, with the labels last and, where it may be so, by ``labels=``. --count:
networks with other weights and numbers of classes.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import boundlab as bl

WHOLE = (
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
)
OTHERS = (torch.bool, torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.complex64)


@dataclass(frozen=True)
class Subject:
    net: bl.Net
    x: Tensor
    classes: int

    @property
    def region(self) -> bl.Region:
        return bl.Linf(self.x, 0.05)


def subject(seed: int, samples: int = 4, classes: int = 4) -> Subject:
    torch.manual_seed(seed)
    x = torch.randn(samples, 3)
    return Subject(
        bl.capture(nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, classes)), x), x, classes
    )


Ask = Callable[[Subject, Any], Tensor]
ASKED: dict[str, Ask] = {
    **{
        f"margins, {method}": (
            lambda s, y, method=method: s.net.margins(s.region, y, method=method)
        )
        for method in ("ibp", "crown", "crown-ibp", "forward")
    },
    "margins, alpha-crown": lambda s, y: s.net.margins(
        s.region, y, method="alpha-crown", alpha=bl.Alpha(iterations=1, inner=0)
    ),
    "margins, labels=": lambda s, y: s.net.margins(s.region, labels=y),
    "margins, little memory": lambda s, y: s.net.margins(s.region, y, memory=2_000),
    "loss, fused": lambda s, y: bl.robust_cross_entropy(s.net, s.region, y),
    "loss, of margins": lambda s, y: bl.robust_cross_entropy(s.net, s.region, y, fused=False),
    "loss, ibp": lambda s, y: bl.robust_cross_entropy(s.net, s.region, y, beta=0),
    "loss, mixed": lambda s, y: bl.robust_cross_entropy(s.net, s.region, y, fused=False, beta=0.5),
    "loss, labels=": lambda s, y: bl.robust_cross_entropy(s.net, s.region, labels=y),
    "mean loss": lambda s, y: bl.mean_loss_bound(
        s.net, s.x, y, perturb=bl.weight_balls(s.net, 0.01)
    ),
    "mean loss, ibp": lambda s, y: bl.mean_loss_bound(
        s.net, s.x, y, perturb=bl.weight_balls(s.net, 0.01), method="ibp"
    ),
    "mean loss, labels=": lambda s, y: bl.mean_loss_bound(
        s.net, s.x, labels=y, perturb=bl.weight_balls(s.net, 0.01)
    ),
    "flatness": lambda s, y: bl.flatness(s.net, s.x, y, 0.01),
    "flatness, in parts": lambda s, y: bl.flatness(s.net, s.x, y, 0.01, batch=3),
    "flatness, labels=": lambda s, y: bl.flatness(s.net, s.x, labels=y, eps=0.01),
}


def accepted(labels: Tensor) -> dict[str, Any]:
    """Ways to write these labels that all mean the same."""
    found: dict[str, Any] = {str(kind): labels.to(kind) for kind in WHOLE}
    found |= {
        "list": labels.tolist(), "tuple": tuple(labels.tolist()), "numpy, int64": labels.numpy(),
        "numpy, uint8": labels.numpy().astype(np.uint8),
        "not contiguous": torch.stack([labels, labels], 1)[:, 0],
        "expanded view": labels.unsqueeze(0).expand(2, -1)[0],
    }  # fmt: skip
    return found


def refused(labels: Tensor, classes: int) -> dict[str, Any]:
    """What is no such labels: wrong type, shape, length or value."""
    found: dict[str, Any] = {str(kind): labels.to(kind) for kind in OTHERS}
    found |= {
        "(n, 1)": labels[:, None], "(1, n)": labels[None],
        "one-hot": nn.functional.one_hot(labels, classes),
        "one-hot, bool": nn.functional.one_hot(labels, classes).bool(),
        "one-hot, float": nn.functional.one_hot(labels, classes).float(),
        "scalar tensor": labels[0], "one number": int(labels[0]), "too few": labels[:-1],
        "too many": torch.cat([labels, labels[:1]]), "one for all": labels[:1], "empty": labels[:0],
        "list of floats": [float(v) for v in labels],
        "list of truth values": [bool(v) for v in labels],
        "numpy, bool": labels.numpy().astype(bool),
        "numpy, float": labels.numpy().astype(np.float32), "None": None, "text": "label",
    }  # fmt: skip
    for name, value in {
        "-1": -1,
        "-100": -100,
        "classes": classes,
        "255": 255,
        "far": 2**31 - 1,
    }.items():
        wrong = labels.clone()
        wrong[1] = value
        found[f"value {name}"] = wrong
    below = labels.to(torch.int8)
    below[0] = -1
    above = labels.to(torch.uint8)
    above[0] = 255
    found |= {
        "int8 -1": below,
        "uint8 255": above,
        "truth values of two classes": (labels % 2).bool(),
        "uint64 beyond int64": torch.tensor([2**63, *labels[1:].tolist()], dtype=torch.uint64),
    }
    return found


@dataclass(frozen=True)
class Finding:
    question: str
    labels: str
    what: str

    def __str__(self) -> str:
        return f"FINDING {self.question}, labels {self.labels}: {self.what}"


def attack(s: Subject, labels: Tensor, questions: tuple[str, ...]) -> list[Finding]:
    found = []
    plain = {
        question: ASKED[question.removesuffix(", labels=")](s, labels)
        for question in questions
        if question.removesuffix(", labels=") in ASKED
    }
    plain |= {
        question: ASKED[_positional(question)](s, labels)
        for question in questions
        if question not in plain
    }
    for question in questions:
        for name, written in accepted(labels).items():
            what = _same(
                lambda question=question, written=written: ASKED[question](s, written),
                plain[question],
            )
            found += [Finding(question, name, what)] if what else []
        for name, written in refused(labels, s.classes).items():
            what = _refused(lambda question=question, written=written: ASKED[question](s, written))
            found += [Finding(question, name, what)] if what else []
    return found


def _positional(question: str) -> str:
    """The question with the labels last that asks the same."""
    return {"margins, labels=": "margins, crown", "loss, labels=": "loss, fused"}[question]


def _same(ask: Callable[[], Tensor], plain: Tensor) -> str:
    try:
        got = ask()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:150]}"
    if got.shape != plain.shape or got.dtype != plain.dtype:
        return (
            f"{got.dtype} of shape {tuple(got.shape)} instead of {plain.dtype} of shape "
            f"{tuple(plain.shape)}"
        )
    got, plain = got.detach(), plain.detach()
    apart = float((got - plain).abs().max())
    return (
        f"differs by {apart:.3g} from what int64 gives"
        if not apart <= 1e-6 * (1 + float(plain.abs().max()))
        else ""
    )


def _refused(ask: Callable[[], Tensor]) -> str:
    try:
        got = ask()
    except bl.ArgumentError:
        return ""
    except Exception as error:
        return f"{type(error).__name__} instead of ArgumentError: {str(error)[:150]}"
    return f"accepted, with a result of shape {tuple(got.shape)}: {got.flatten()[:4].tolist()}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=5)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    total, asked = 0, 0
    for seed in range(options.seed, options.seed + options.count):
        rng = random.Random(seed)
        classes = rng.choice([2, 3, 4, 5])
        s = subject(seed, samples=rng.choice([2, 4, 5, classes, classes]), classes=classes)
        least = rng.choice([0, 1])  # without a 0 they are a mask of all samples too
        labels = torch.tensor([rng.randrange(least, s.classes) for _ in range(len(s.x))])
        found = attack(s, labels, tuple(ASKED))
        asked += len(ASKED) * (len(accepted(labels)) + len(refused(labels, s.classes)))
        total += len(found)
        for finding in found:
            print(finding, f"(seed {seed}: {len(s.x)} samples, {s.classes} classes)", flush=True)
    print(f"{asked} questions, {total} findings")
    return 1 if total else 0


if __name__ == "__main__":
    raise SystemExit(main())
