"""The same questions under every ambient mode of torch: ``python -m tests.attacks.ambient [--only
MODE] [--count N] [--seed S]``.

A mode is entered around capture, around the question, or around both; the answer must be the plain
one (same type and shape, equal up to 1e-5 of the largest entry), or an error of boundlab's own.
Under autocast around capture the model itself is another one: there the bounds must hold the values
that the model has under autocast. Afterwards the mode must be as it was, and so must the state of
the global random numbers. --count: models with other weights.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from tests.helpers.contract import METHODS

Question = Callable[[bl.Net, "Subject"], Any]


# -- modes -----------------------------------------------------------------------------------------


@contextmanager
def _default_dtype(kind: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(kind)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _matmul_precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast, bfloat16": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast, float16": lambda: torch.autocast("cpu", torch.float16),
    "autocast, disabled": lambda: torch.autocast("cpu", torch.bfloat16, enabled=False),
    "inference_mode": torch.inference_mode,
    "no_grad": torch.no_grad,
    "default float64": lambda: _default_dtype(torch.float64),
    "default float16": lambda: _default_dtype(torch.float16),
    "default bfloat16": lambda: _default_dtype(torch.bfloat16),
    "deterministic": _deterministic,
    "two threads": lambda: _threads(2),
    "default device meta": lambda: torch.device("meta"),
    "matmul precision medium": lambda: _matmul_precision("medium"),
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "no gradients by set_grad_enabled": lambda: torch.set_grad_enabled(False),
}
PLACES = ("capture", "ask", "both")
NO_GRADIENTS = ("inference_mode", "no_grad", "no gradients by set_grad_enabled")


# -- models and questions --------------------------------------------------------------------------


@dataclass
class Subject:
    """A classifier of three classes, with a batch of five; words: its input is a sentence."""

    model: nn.Module
    x: Tensor
    labels: Tensor
    others: Tensor | None = None

    @property
    def region(self) -> bl.Region:
        return (
            bl.Linf(self.x, 0.1) if self.others is None else bl.Words(self.x, self.others, budget=2)
        )


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.norm, self.last = nn.Linear(4, 12), nn.LayerNorm(4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, -1)
        y = (q @ k.transpose(1, 2)).softmax(-1) @ v
        return self.last(torch.nn.functional.gelu(self.norm(x + y)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.last = nn.GRU(4, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.cell(x)[0][:, -1])


class Choices(nn.Module):
    """Comparisons and constants whose type nobody states."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        y = (
            torch.where(y > 0.2, y, 0.5)
            + torch.where(y < 0, torch.tanh(y), torch.zeros_like(y))
            + (y > 1).to(y.dtype)
        )
        return self.last(y.clamp(-2, 2) * torch.sigmoid(y) / 1.5)


def subjects(seed: int = 0) -> dict[str, Subject]:
    torch.manual_seed(seed)
    labels = torch.tensor([0, 1, 2, 0, 1])
    dense = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    conv = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    ).eval()
    words = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Flatten(), nn.Linear(18, 3))
    return {
        "dense": Subject(dense, torch.randn(5, 4), labels),
        "convolutions": Subject(conv, torch.randn(5, 2, 4, 4), labels),
        "attention": Subject(Attention(), torch.randn(5, 3, 4), labels),
        "recurrent": Subject(Recurrent(), torch.randn(5, 2, 4), labels),
        "choices": Subject(Choices(), torch.randn(5, 4), labels),
        "double": Subject(
            nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double(),
            torch.randn(5, 4, dtype=torch.float64),
            labels,
        ),
        "words": Subject(words, torch.randn(5, 3, 4), labels, torch.randn(5, 3, 2, 4)),
    }


def _alpha(method: str) -> bl.Alpha | None:
    return bl.Alpha(iterations=2, inner=1) if method == "alpha-crown" else None


def _bounds(method: str) -> Question:
    return lambda net, s: tuple(net.bounds(s.region, method=method, alpha=_alpha(method)))


def _margins(method: str) -> Question:
    return lambda net, s: net.margins(s.region, s.labels, method=method, alpha=_alpha(method))


def _lines(net: bl.Net, s: Subject) -> Any:
    lines = net.linear_bounds(s.region)
    return [*lines.lower_A.values(), lines.lower_b, *lines.upper_A.values(), lines.upper_b]


def _loss(fused: bool) -> Question:
    return lambda net, s: bl.robust_cross_entropy(net, s.region, s.labels, fused=fused)


def _gradient(net: bl.Net, s: Subject) -> Any:
    loss = bl.robust_cross_entropy(net, s.region, s.labels).mean()
    weights = list(net.parameters().values())
    # a backward pass is torch's own, and belongs outside of autocast
    with torch.autocast("cpu", enabled=False):
        return torch.autograd.grad(loss, weights) if loss.requires_grad else loss


QUESTIONS: dict[str, Question] = {f"bounds, {method}": _bounds(method) for method in METHODS}
QUESTIONS |= {
    f"margins, {method}": _margins(method)
    for method in ("ibp", "crown", "crown-ibp", "alpha-crown")
}
QUESTIONS |= {
    "value": lambda net, s: net(s.x),
    "lines": _lines,
    "loss, fused": _loss(True),
    "loss, of margins": _loss(False),
    "gradient of a loss": _gradient,
    "l2 ball": lambda net, s: tuple(net.bounds(bl.L2(s.x, 0.1))),
    "l2 ball, ibp": lambda net, s: tuple(net.bounds(bl.L2(s.x, 0.1), method="ibp")),
    "l1 ball": lambda net, s: tuple(net.bounds(bl.L1(s.x, 0.1))),
    "l0 ball": lambda net, s: tuple(net.bounds(bl.L0(s.x, 1, lower=-3.0, upper=3.0))),
    "cut ball": lambda net, s: tuple(net.bounds(bl.L2(s.x, 0.5, lower=-3.0, upper=3.0))),
    "specification": lambda net, s: tuple(
        net.bounds(
            s.region, spec=torch.tensor([[1, -1, 0], [0, 1, -1]], dtype=s.x.dtype, device="cpu")
        )
    ),
    "lower side": lambda net, s: net.bounds(s.region, sides="lower").lower,
    "intermediates": lambda net, s: tuple(net.bounds(s.region, intermediates=True)),
    "little memory": lambda net, s: tuple(net.bounds(s.region, memory=100_000)),
    "weights": lambda net, s: tuple(
        net.bounds(s.x, perturb={next(iter(net.parameters())): bl.L2(eps=0.01)})
    ),
    "mean loss": lambda net, s: bl.mean_loss_bound(
        net, s.x, s.labels, perturb=bl.weight_balls(net, 0.01)
    ),
    "flatness": lambda net, s: bl.flatness(net, s.x, s.labels, 0.01),
}


# -- asking ----------------------------------------------------------------------------------------


class Asked:
    """A model captured under a mode (or plainly), and questions under it (or plainly). Captured
    once, at the first question."""

    def __init__(self, subject: Subject, mode: str = "", place: str = "ask") -> None:
        around = MODES[mode] if mode else nullcontext
        self.subject = subject
        self.at_capture = around if place in ("capture", "both") else nullcontext
        self.at_question = around if place in ("ask", "both") else nullcontext
        self.net: bl.Net | None = None

    def answer(self, question: str) -> Any:
        """Tensors, or the error that was raised."""
        try:
            if self.net is None:
                with self.at_capture():
                    self.net = bl.capture(self.subject.model, self.subject.x)
            with self.at_question():
                found = QUESTIONS[question](self.net, self.subject)
        except Exception as error:
            return error
        return [leaf.detach() for leaf in pytree.tree_leaves(found) if isinstance(leaf, Tensor)]


def difference(plain: Any, found: Any) -> str:
    """What is wrong with an answer; nothing, or a refusal by name, is not."""
    if isinstance(found, bl.BoundlabError):
        return ""
    if isinstance(found, Exception):
        return f"{type(found).__name__}: {str(found).splitlines()[0] if str(found) else ''}"
    for a, b in zip(plain, found, strict=True):
        if a.dtype != b.dtype or a.shape != b.shape or a.device != b.device:
            return (
                f"{b.dtype} {tuple(b.shape)} on {b.device} instead of {a.dtype} {tuple(a.shape)} "
                f"on {a.device}"
            )
        if bool(torch.isnan(b).any()) and not bool(torch.isnan(a).any()):
            return "NaN"
        apart = (a.double() - b.double()).nan_to_num(0, 0, 0).abs().max() if a.numel() else 0.0
        size = 1 + float(a.double().nan_to_num(0, 0, 0).abs().max()) if a.numel() else 1.0
        if apart > 1e-5 * size:
            return f"differs by {float(apart):.3g} ({float(apart) / size:.2g} of its size)"
    return ""


def unsound_under_autocast(subject: Subject, mode: str, place: str) -> str:
    """Bounds of a model that was captured under autocast must hold its values under autocast; they
    may also be refused."""
    found = Asked(subject, mode, place).answer("bounds, crown")
    if isinstance(found, bl.BoundlabError):
        return ""
    if isinstance(found, Exception):
        return difference([], found)
    lower, upper = found
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), MODES[mode]():
        for _ in range(30):
            value = subject.model(subject.region.sample(generator)).to(torch.float64)
            apart = float(torch.maximum(lower.double() - value, value - upper.double()).max())
            if apart > 1e-5:
                return f"a value of the model under autocast lies outside its bounds by {apart:.3g}"
    return ""


@dataclass
class Finding:
    mode: str
    place: str
    subject: str
    question: str
    what: str

    def __str__(self) -> str:
        return (
            f"FINDING {self.mode}, around {self.place}: {self.subject}: {self.question}: "
            f"{self.what}"
        )


Plain = dict[str, tuple[Asked, dict[str, Any]]]
"""By subject: the model captured plainly, and its plain answers."""


def attack(
    mode: str, place: str, some: dict[str, Subject], questions: tuple[str, ...], plain: Plain
) -> tuple[list[Finding], int]:
    """What is wrong under a mode, and how many questions were refused. plain: filled as needed."""
    found, refused = [], 0
    for name, subject in some.items():
        if "autocast" in mode and "disabled" not in mode and place != "ask":
            what = unsound_under_autocast(subject, mode, place)
            found += [Finding(mode, place, name, "bounds, crown", what)] if what else []
            continue
        usual, answers = plain.setdefault(name, (Asked(subject), {}))
        asked = Asked(subject, mode, place)
        for question in questions:
            if question == "gradient of a loss" and mode in NO_GRADIENTS:
                continue
            if question not in answers:
                answers[question] = usual.answer(question)
            if isinstance(answers[question], Exception):
                assert isinstance(answers[question], bl.BoundlabError), (
                    name,
                    question,
                    answers[question],
                )
                continue
            state = torch.get_rng_state(), torch.get_default_dtype(), torch.is_grad_enabled()
            got = asked.answer(question)
            refused += isinstance(got, bl.BoundlabError)
            what = difference(answers[question], got)
            if not torch.equal(state[0], torch.get_rng_state()) or state[1:] != (
                torch.get_default_dtype(),
                torch.is_grad_enabled(),
            ):
                what = what or "the state of random numbers or a mode was changed"
            found += [Finding(mode, place, name, question, what)] if what else []
    return found, refused


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1, help="models with other weights")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="modes whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    everything: list[Finding] = []
    for seed in range(options.seed, options.seed + options.count):
        some, plain = subjects(seed), {}  # type: tuple[dict[str, Subject], Plain]
        for mode in (mode for mode in MODES if options.only in mode):
            for place in PLACES:
                found, refused = attack(mode, place, some, tuple(QUESTIONS), plain)
                everything += found
                for finding in found:
                    print(finding, f"(seed {seed})", flush=True)
                print(
                    f"{mode}, around {place}: {len(found)} findings, {refused} refused", flush=True
                )
    print(
        f"{len(everything)} findings, by mode and place: "
        f"{dict(Counter((f.mode, f.place) for f in everything))}"
    )
    return 1 if everything else 0


if __name__ == "__main__":
    raise SystemExit(main())
