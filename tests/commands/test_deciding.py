"""The method ``complete``: images that nothing else decides are verified, and what is kept of
that."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.commands.certificates import Run, Task, Verdict, best_known
from boundlab.commands.certify import certify, certify_job
from boundlab.commands.deciding import PROVED
from boundlab.commands.jobs import Job, region_around
from boundlab.errors import Contradiction
from boundlab.verify import Verdict as Answer
from boundlab.verify.portfolio import Portfolio
from boundlab.verify.samples import SampleVerifier, time_limit
from boundlab.verify.verdict import HOLDS, UNKNOWN, VIOLATED
from tests.helpers.commands import error, results, run

RADIUS = 0.1
PLENTY = 60.0
"""Seconds that no image here needs."""


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    ).eval()


@pytest.fixture(scope="module")
def kinds(model: nn.Module) -> tuple[Tensor, Tensor]:
    """An image that crown proves, one that is safe though crown does not prove it, one that is not
    safe, and one that is wrong; and labels."""
    torch.manual_seed(0)
    images = torch.rand(30, 1, 2, 2)
    labels = model(images).argmax(1)
    ball = bl.Linf(images, RADIUS, 0.0, 1.0)
    with torch.no_grad():
        proved = (bl.capture(model, images).margins(ball, labels) > 0).all(1)
    broken = bl.attack(model, ball, labels).violated
    hard = ~(proved | broken)
    chosen = torch.stack([kind.nonzero()[0, 0] for kind in (proved, hard, broken, proved)])
    labels = labels[chosen]
    labels[3] = (labels[3] + 1) % 3
    return images[chosen], labels


class Watch:
    """Counts images that are verified. answer: in place of the verifier, from a region and the
    number of calls so far."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        answer: Callable[[bl.Linf, int], Answer] | None = None,
    ) -> None:
        self.images: list[tuple[float, float]] = []
        """Radius and first pixel."""
        original = SampleVerifier.verify

        def verify(verifier: SampleVerifier, region: bl.Linf, label: int) -> Answer:
            self.images.append((float(region.eps), round(float(region.centre.flatten()[0]), 4)))
            if answer is None:
                return original(verifier, region, label)
            return answer(region, len(self.images))

        monkeypatch.setattr(SampleVerifier, "verify", verify)


def said(status: str, bound: float = -math.inf, found: bl.Attack | None = None) -> Answer:
    return Answer(status, found, bound, (), 1, 0.25)


# -- what is found ---------------------------------------------------------------------------------


def test_three_outcomes(
    model: nn.Module, kinds: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only what crown does not prove and the attack does not break is verified."""
    watch = Watch(monkeypatch)
    found = certify(
        model, *kinds, [RADIUS], ["complete", "crown"], valid=(0, 1), timeout=PLENTY, batch=3
    )
    assert len(watch.images) == 1
    assert found.methods == ("complete", "crown")
    after = [Verdict.PROVED, Verdict.PROVED, Verdict.FALSIFIED, Verdict.WRONG]
    assert found.verdicts(RADIUS) == found.verdicts(RADIUS, "complete") == after
    assert found.verdicts(RADIUS, "crown")[1] is Verdict.OPEN
    crown, complete = (found.run(method, RADIUS) for method in ("crown", "complete"))
    assert complete.timeout == PLENTY and complete.seconds > 0
    assert torch.equal(complete.margins[[0, 2, 3]], crown.margins[[0, 2, 3]])
    assert torch.equal(complete.margins[1], crown.margins[1].clamp(min=PROVED))


def test_falsified_by_the_verifier_alone(
    model: nn.Module, kinds: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it finds is a counterexample, and is replayed when it is read again."""
    images, labels = (part[2:3] for part in kinds)
    path = tmp_path / "results.json"
    job = Job(images, labels, [RADIUS], ["complete"], valid=(0, 1), attack=None, timeout=PLENTY)
    found = certify_job(model, job, results=path)
    assert found.attacks == () and found.verdicts(RADIUS) == [Verdict.FALSIFIED]
    held = found.examples
    assert held is not None and held.image.tolist() == [0] and held.radius.tolist() == [RADIUS]
    assert region_around(images, RADIUS, "inf", (0, 1)).contains(held.input).all()
    outputs = model(held.input)
    torch.testing.assert_close(held.output, outputs)
    assert int(outputs.argmax()) != int(labels) and float(held.margin) <= 0
    watch = Watch(monkeypatch)
    again = certify_job(model, job, results=path, resume=True)
    assert again.verdicts(RADIUS) == [Verdict.FALSIFIED] and watch.images == []
    with np.load(tmp_path / "counterexamples.npz") as arrays:
        edited = {**arrays, "input": images.numpy()}
    np.savez(tmp_path / "counterexamples.npz", **edited)
    with pytest.raises(bl.ArgumentError, match="is no counterexample"):
        certify_job(model, job, results=path, resume=True)


def test_too_little_time(model: nn.Module, kinds: tuple[Tensor, Tensor]) -> None:
    images, labels = (part[:2] for part in kinds)
    found = certify(
        model, images, labels, [RADIUS], ["complete"], valid=(0, 1), attack=None, timeout=1e-9
    )
    assert found.verdicts(RADIUS) == [Verdict.OPEN] * 2
    assert not found.runs[0].positive.any()


# -- what is asked, and what is made of the answers ------------------------------------------------

PIXELS = torch.tensor([0.1, 0.35, 0.48, 0.65, 0.9, 0.2])
IMAGES = PIXELS.reshape(-1, 1, 1, 1)
LABELS = torch.tensor([0, 0, 0, 1, 1, 1])  # the last one is wrong


def line() -> nn.Module:
    """f_1 - f_0 = 2 (x - 0.5)."""
    linear = nn.Linear(1, 2)
    weight, bias = torch.tensor([[-1.0], [1.0]]), torch.tensor([0.5, -0.5])
    linear.load_state_dict({"weight": weight, "bias": bias})
    return nn.Sequential(nn.Flatten(), linear).eval().requires_grad_(False)


@pytest.fixture(scope="module")
def net() -> bl.Net:
    return bl.capture(line(), IMAGES[:2])


def job(
    radii: tuple[float, ...] = (0.1,), methods: tuple[str, ...] = ("complete",), timeout: float = 5
) -> Job:
    return Job(IMAGES, LABELS, radii, methods, valid=(0, 1), attack=None, timeout=timeout)


@pytest.mark.parametrize("bound", [math.inf, 1.0, -0.5, -math.inf, math.nan])
def test_only_a_proof_proves(net: bl.Net, monkeypatch: pytest.MonkeyPatch, bound: float) -> None:
    """Whatever the bound of a search is that has not ended."""
    Watch(monkeypatch, lambda *_: said(UNKNOWN, bound))
    found = certify_job(net, job())
    assert found.verdicts(0.1) == [Verdict.OPEN] * 5 + [Verdict.WRONG]
    expected = bound if bound <= 0 else -math.inf
    assert found.runs[0].margins.flatten().tolist() == [expected] * 5 + [-math.inf]
    Watch(monkeypatch, lambda *_: said(HOLDS, bound))
    assert certify_job(net, job()).verdicts(0.1) == [Verdict.PROVED] * 5 + [Verdict.WRONG]


def test_the_largest_radius_first(net: bl.Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is proved there is proved at smaller ones, by other methods too."""
    outer = lambda region, _: said(HOLDS if float(region.centre) < 0.4 else UNKNOWN)
    watch = Watch(monkeypatch, outer)
    found = certify_job(net, job((0.01, 0.2)))
    pixels = [0.1, 0.35, 0.48, 0.65, 0.9]
    later = [(0.01, pixel) for pixel in pixels[2:]]
    assert watch.images == [(0.2, pixel) for pixel in pixels] + later
    assert found.verdicts(0.01)[:3] == [Verdict.PROVED, Verdict.PROVED, Verdict.OPEN]
    with_bounds = Watch(monkeypatch, outer)
    certify_job(net, job((0.2, 0.01), ("ibp", "complete")))
    assert with_bounds.images == [(0.2, 0.35), (0.2, 0.48), (0.2, 0.65)]


def test_margins_of_several_methods_prove_together() -> None:
    task = Task("", "", 3, 3, "inf", None)
    tensor = lambda *rows: torch.tensor(rows, dtype=torch.float64)
    runs = [
        Run("ibp", 0.1, tensor([1.0, -1.0], [math.inf, 1.0], [math.nan, -2.0]), 0.0),
        Run("crown", 0.2, tensor([-1.0, 2.0]), 0.0),  # has not come further
        Run("crown", 0.05, tensor([9.0, 9.0], [9.0, 9.0], [9.0, 9.0]), 0.0),
    ]
    expected = tensor([1.0, 2.0], [-math.inf, 1.0], [-math.inf, -2.0])
    assert torch.equal(best_known(runs, task, 0.1), expected)


def test_proved_and_falsified_is_an_alarm(net: bl.Net, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counterexample at a large radius that lies in the ball of a small one, which is said to
    hold."""

    def wrong(region: bl.Linf, _: int) -> Answer:
        if float(region.eps) < 0.2:
            return said(HOLDS)
        x = region.centre + 0.05
        return said(VIOLATED, found=bl.Attack(x, line()(x), torch.tensor([True]), torch.zeros(1)))

    Watch(monkeypatch, wrong)
    message = r"image 0 is proved by complete at radius 0\.1 .* falsified at radius 0\.3"
    with pytest.raises(Contradiction, match=message):
        certify_job(net, job((0.1, 0.3)))


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [1, 2, 4])
def test_resume_after_interruption(
    net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    """Every image is saved before the next one begins, and none is verified twice."""
    path = tmp_path / "results.json"

    def saved() -> int:
        if not path.exists():
            return 0
        (entry,) = json.loads(path.read_text())["runs"]
        return len(entry["margins"])

    def interrupted(_: bl.Linf, calls: int) -> Answer:
        assert saved() == calls - 1
        if calls == stop_at:
            raise KeyboardInterrupt
        return said(HOLDS)

    Watch(monkeypatch, interrupted)
    seen: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        certify_job(net, job(), results=path, progress=lambda *now: seen.append(now[2]))
    assert seen == list(range(stop_at))
    watch = Watch(monkeypatch, lambda *_: said(HOLDS))
    found = certify_job(net, job(), results=path, resume=True)
    assert len(watch.images) == 5 - (stop_at - 1)
    assert found.verdicts(0.1) == [Verdict.PROVED] * 5 + [Verdict.WRONG]
    assert found.runs[0].seconds == 5 * 0.25
    certify_job(net, job(), results=path, resume=True)
    assert len(watch.images) == 5 - (stop_at - 1)


def test_ctrl_c_is_no_answer(net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(_: Portfolio) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Portfolio, "run", stop)
    with pytest.raises(KeyboardInterrupt):
        certify_job(net, job(), results=tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text())["runs"] == []


def test_more_time_tries_again(
    net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is open, not what is proved; and less time nothing."""
    path = tmp_path / "results.json"
    low = lambda region, _: said(HOLDS if float(region.centre) < 0.4 else UNKNOWN)
    Watch(monkeypatch, low)
    certify_job(net, job(timeout=5), results=path)
    more = Watch(monkeypatch, lambda *_: said(UNKNOWN))
    found = certify_job(net, job(timeout=9), results=path, resume=True)
    assert [pixel for _, pixel in more.images] == [0.48, 0.65, 0.9]
    assert found.verdicts(0.1)[:3] == [Verdict.PROVED, Verdict.PROVED, Verdict.OPEN]
    assert [run.timeout for run in found.runs] == [9]
    less = Watch(monkeypatch, lambda *_: said(UNKNOWN))
    found = certify_job(net, job(timeout=7), results=path, resume=True)
    assert less.images == []
    assert found.verdicts(0.1)[:3] == [Verdict.PROVED, Verdict.PROVED, Verdict.OPEN]
    runs = json.loads(path.read_text())["runs"]
    assert [entry["timeout"] for entry in runs] == [5, 9, 7]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout", [0.0, -1.0, math.nan, math.inf])
def test_times_that_are_none(net: bl.Net, timeout: float) -> None:
    with pytest.raises(bl.ArgumentError, match="positive number of seconds"):
        certify_job(net, job(timeout=timeout))


def test_a_time_for_nothing(net: bl.Net) -> None:
    with pytest.raises(bl.ArgumentError, match=r"the method 'complete' .* not among"):
        certify_job(net, job(methods=("crown",)))
    assert time_limit(None, ["crown"]) is None
    assert time_limit(None, ["crown", "complete"]) == 60


@pytest.mark.parametrize("kind", ["fixed batch size", "train mode"])
def test_nets_that_cannot_be_verified(kind: str, tmp_path: Path) -> None:
    if kind == "train mode":
        net = bl.capture(line().train(), IMAGES[:2])
    else:
        net = bl.capture(torch.export.export(line(), (IMAGES[:3],)))
    path = tmp_path / "results.json"
    with pytest.raises(bl.ArgumentError, match=kind):
        certify_job(net, job(methods=("ibp", "complete")), results=path)
    assert not path.exists()


# -- the command -----------------------------------------------------------------------------------


def test_on_the_command_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A line has no image that bounds do not decide: without an attack it is the verifier that
    finds counterexamples."""
    np.savez("line.npz", images=PIXELS.reshape(-1, 1).numpy(), labels=LABELS.numpy())
    command = ["certify", "zoo:line", "line.npz", "--eps", "0.2", "--no-attack"]
    assert run(*command, "--methods", "crown", "complete", "--timeout", "30") == 0
    assert "complete" in capsys.readouterr().out
    assert [entry.get("timeout") for entry in results()] == [None, 30]
    with Path("boundlab-report/results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    by = {
        method: [row["verdict"] for row in rows if row["method"] == method]
        for method in ("crown", "complete")
    }
    expected = ["proved", "falsified", "falsified", "falsified", "proved", "wrong"]
    assert by == {"crown": expected, "complete": expected}
    for one, other in zip(rows[:6], rows[6:], strict=True):
        assert {**one, "method": "complete"} == other
    with np.load("boundlab-report/counterexamples.npz") as arrays:
        assert arrays["image"].tolist() == [1, 2, 3]
    page = Path("boundlab-report/index.html").read_text()
    assert page.count("becomes <b>") == 3 and ">complete</th>" in page
    assert run(*command, "--methods", "crown", "complete", "--timeout", "30", "--resume") == 0


def test_what_the_command_refuses(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["certify", "zoo:cnn", "data.npz"]
    assert "'complete'" in error(capsys, *command, "--timeout", "5")
    several = [*command, "--methods", "crown", "complete"]
    assert "positive number" in error(capsys, *several, "--timeout", "0")
    assert "there are: ibp" in error(capsys, *command, "--methods", "completely")
    assert "'complete'" in error(capsys, "demo", "--timeout", "5")
