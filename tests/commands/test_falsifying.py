"""Three verdicts: attacks on what no method proves, what is stored of them, and the alarm."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.attacks import AttackSettings
from boundlab.commands import falsifying
from boundlab.commands.certificates import Certification, Verdict
from boundlab.commands.certify import certify_job
from boundlab.commands.jobs import Job, region_around
from boundlab.errors import Contradiction

RADII = (0.01, 0.1, 0.3)


def line() -> nn.Module:
    """f_1 - f_0 = 2 (x - 0.5): what an image withstands is its distance from the middle."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model[1].bias.copy_(torch.tensor([0.5, -0.5]))
    return model.eval()


IMAGES = torch.tensor([0.1, 0.35, 0.48, 0.65, 0.505, 0.9, 0.2]).reshape(-1, 1, 1, 1)
LABELS = torch.tensor([0, 0, 0, 1, 1, 1, 1])  # the last one is wrong
JOB = Job(IMAGES, LABELS, RADII, ["ibp"], valid=(0, 1), batch=2)


@pytest.fixture(scope="module")
def net() -> bl.Net:
    return bl.capture(line(), IMAGES[:2])


class Watch:
    """Counts images that are attacked, and can stop like Ctrl-C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> None:
        self.images: list[tuple[float, int]] = []
        calls = 0

        def attack(model: object, region: bl.Linf, labels: Tensor, **kwargs: int) -> bl.Attack:
            nonlocal calls
            if calls == stop_at:
                raise KeyboardInterrupt
            calls += 1
            self.images.append((float(region.eps), len(labels)))
            return bl.attack(model, region, labels, **kwargs)

        monkeypatch.setattr(falsifying, "attack", attack)


def test_verdicts_are_what_is_so(net: bl.Net, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch(monkeypatch)
    found = certify_job(net, JOB)
    distance = (IMAGES.flatten() - 0.5).abs()
    for radius in RADII:
        expected = [Verdict.PROVED if d > radius else Verdict.FALSIFIED for d in distance]
        expected[6] = Verdict.WRONG
        assert found.verdicts(radius) == found.verdicts(radius, "ibp") == expected
    # 0.505 breaks at 0.01, 0.48 at 0.1, 0.35 and 0.65 at 0.3: each is attacked once
    assert watch.images == [(0.01, 1), (0.1, 1), (0.3, 2)]
    assert found.examples is not None
    assert sorted(found.examples.image.tolist()) == [1, 2, 3, 4]
    for row in found.rows:
        assert row.verified + row.falsified + row.open == row.correct == 6
        assert row.open == 0


def test_examples_are_members_and_violations(net: bl.Net) -> None:
    held = certify_job(net, JOB).examples
    assert held is not None
    outputs = line()(held.input)
    torch.testing.assert_close(held.output, outputs)
    assert (outputs.gather(1, held.label[:, None]) <= outputs.amax(1, keepdim=True)).all()
    assert (held.became == 1 - held.label).all() and (held.margin <= 0).all()
    for image, radius, x in zip(held.image, held.radius, held.input, strict=True):
        ball = region_around(IMAGES[image, None], float(radius), "inf", (0, 1))
        assert ball.contains(x[None]).all()


def test_without_attack_nothing_is_falsified(
    net: bl.Net, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    watch = Watch(monkeypatch)
    job = Job(IMAGES, LABELS, RADII, ["ibp"], valid=(0, 1), attack=None)
    found = certify_job(net, job, results=tmp_path / "results.json")
    assert watch.images == [] and [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert found.verdicts(0.3)[1:4] == [Verdict.OPEN] * 3


def test_attack_alone(net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without methods every correct image is attacked; methods that come later keep what is
    found."""
    results = tmp_path / "results.json"
    found = certify_job(net, Job(IMAGES, LABELS, RADII, [], valid=(0, 1)), results=results)
    assert found.radii == RADII and found.runs == ()
    assert found.verdicts(0.1).count(Verdict.FALSIFIED) == 2
    assert found.verdicts(0.1).count(Verdict.OPEN) == 4
    watch = Watch(monkeypatch)
    again = certify_job(net, JOB, results=results, resume=True)
    assert watch.images == []
    assert again.verdicts(0.1).count(Verdict.OPEN) == 0


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [0, 1, 2, 3, 4])
def test_resume_after_interruption(
    net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop_at: int
) -> None:
    results = tmp_path / "results.json"
    monkeypatch.setattr(falsifying, "TOGETHER", 1)
    job = Job(IMAGES, LABELS, RADII, [], valid=(0, 1), batch=4)
    whole = certify_job(net, job)
    with monkeypatch.context() as patch:
        watch = Watch(patch, stop_at)
        with pytest.raises(KeyboardInterrupt):
            certify_job(net, job, results=results)
    with monkeypatch.context() as patch:
        watch = Watch(patch)
        resumed = certify_job(net, job, results=results, resume=True)
        assert len(watch.images) == 5 - stop_at
    for radius in RADII:
        assert whole.verdicts(radius) == resumed.verdicts(radius)
    with monkeypatch.context() as patch:
        watch = Watch(patch)
        again = certify_job(net, job, results=results, resume=True)
        assert watch.images == []
    assert again.verdicts(0.3) == whole.verdicts(0.3)


def test_more_effort_attacks_again(
    net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.json"
    attacked = lambda steps: Job(IMAGES, LABELS, [0.1], [], attack=AttackSettings(steps, 1))
    certify_job(net, attacked(3), results=results)
    watch = Watch(monkeypatch)
    certify_job(net, attacked(5), results=results, resume=True)
    assert watch.images == [(0.1, 4)]  # those that were not broken


def test_what_is_in_the_files(net: bl.Net, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    found = certify_job(net, JOB, results=results)
    content = json.loads(results.read_text())
    assert (content["format"], content["kind"]) == (3, "verdicts")
    assert [entry["radius"] for entry in content["attacks"]] == list(RADII)
    assert content["attacks"][2]["images"] == [1, 3]
    with np.load(tmp_path / "counterexamples.npz") as arrays:
        assert set(arrays) == {"image", "label", "radius", "input", "output"}
        assert arrays["input"].shape == (4, 1, 1, 1) and arrays["input"].dtype == np.float32
        assert found.examples is not None
        assert arrays["image"].tolist() == found.examples.image.tolist()


def changed(path: Path, name: str, value: np.ndarray) -> None:
    with np.load(path) as arrays:
        held = dict(arrays)
    held[name] = value
    np.savez(path, **held)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("input", IMAGES[[4, 2, 1, 3]].numpy(), "for image 4 at radius 0.01 is no counterexample"),
        ("radius", np.array([0.01, 0.001, 0.3, 0.3]), "for image 2 at radius 0.001"),
        ("image", np.array([4, 2, 1, 40]), "of other images"),
        ("output", np.zeros((4, 3), np.float32), "damaged or of another task"),
        ("label", np.array([0, 0, 0, 1]), "for image 4"),
    ],
)
def test_files_that_were_edited_are_not_believed(
    net: bl.Net, tmp_path: Path, name: str, value: np.ndarray, message: str
) -> None:
    results = tmp_path / "results.json"
    certify_job(net, JOB, results=results)
    changed(tmp_path / "counterexamples.npz", name, value)
    with pytest.raises(bl.ArgumentError, match=message):
        certify_job(net, JOB, results=results, resume=True)


def test_lost_examples_are_looked_for_again(
    net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.json"
    certify_job(net, JOB, results=results)
    (tmp_path / "counterexamples.npz").unlink()
    watch = Watch(monkeypatch)
    found = certify_job(net, JOB, results=results, resume=True)
    assert sum(count for _, count in watch.images) == 4
    assert found.examples is not None and len(found.examples) == 4
    (tmp_path / "counterexamples.npz").write_bytes(b"nonsense")
    with pytest.raises(bl.ArgumentError, match="not a file of counterexamples"):
        certify_job(net, JOB, results=results, resume=True)


def test_counterexamples_are_never_written_over(net: bl.Net, tmp_path: Path) -> None:
    (tmp_path / "counterexamples.npz").write_bytes(b"somebody's")
    with pytest.raises(bl.ArgumentError, match="already holds results"):
        certify_job(net, JOB, results=tmp_path / "results.json")
    assert (tmp_path / "counterexamples.npz").read_bytes() == b"somebody's"


# -- the alarm -------------------------------------------------------------------------------------


def test_proved_and_falsified_is_an_alarm(
    net: bl.Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A method that proves everything, asked after the attack."""
    results = tmp_path / "results.json"
    certify_job(net, Job(IMAGES, LABELS, [0.1], [], valid=(0, 1)), results=results)
    unsound = lambda net, region, labels, **_: torch.ones(len(labels), 1)
    monkeypatch.setattr(bl.Net, "margins", unsound)
    job = Job(IMAGES, LABELS, [0.2], ["ibp"], valid=(0, 1))
    with pytest.raises(Contradiction, match=r"image \d is proved by ibp at radius 0.2 .* bug"):
        certify_job(net, job, results=results, resume=True)


def test_an_example_inside_a_smaller_ball_is_an_alarm(
    net: bl.Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong proofs at a small radius, and an attack at a larger one that finds a point in both."""

    def unsound(net: bl.Net, region: bl.Linf, labels: Tensor, **_: object) -> Tensor:
        return torch.full((len(labels), 1), 1.0 if float(region.eps) < 0.2 else -1.0)

    def near(model: nn.Module, region: bl.Linf, labels: Tensor, **kwargs: int) -> bl.Attack:
        return bl.attack(model, bl.Linf(region.centre, 0.1), labels, **kwargs)

    monkeypatch.setattr(bl.Net, "margins", unsound)
    monkeypatch.setattr(falsifying, "attack", near)
    with pytest.raises(Contradiction, match=r"proved by ibp at radius 0\.1"):
        certify_job(net, Job(IMAGES, LABELS, [0.1, 0.3], ["ibp"], valid=(0, 1)))


# -- other nets ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fixed batch", "train mode"])
def test_nets_that_are_attacked_by_their_graph(kind: str) -> None:
    if kind == "fixed batch":
        net = bl.capture(torch.export.export(line(), (IMAGES[:3],)))
    else:
        net = bl.capture(line().train(), IMAGES[:2])
    found = certify_job(net, JOB)
    assert found.verdicts(0.3).count(Verdict.FALSIFIED) == 4


@pytest.mark.parametrize("norm", ["2", "1"])
def test_norms(norm: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3)).eval()
    images = torch.rand(12, 6)
    labels = model(images).argmax(1)
    found: Certification = certify_job(
        model, Job(images, labels, [0.05, 2.0], ["crown"], norm=norm, valid=(0, 1))
    )
    kinds = found.verdicts(0.05) + found.verdicts(2.0)
    assert {Verdict.PROVED, Verdict.FALSIFIED} <= set(kinds)
