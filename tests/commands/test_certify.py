"""Certifying a set of images: figures, interruption and resumption, refusals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.commands import journal
from boundlab.commands.certificates import Certification, Run, Task
from boundlab.commands.certify import certify, certify_job, outputs
from boundlab.commands.jobs import Job

METHODS, RADII = ("ibp", "crown"), (0.0, 0.05, 0.5)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


@pytest.fixture(scope="module")
def data(model: nn.Module) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    images = torch.rand(11, 3, 2, 2)
    labels = model(images).argmax(1)
    labels[3] = (labels[3] + 1) % 4  # one image is classified wrongly
    return images, labels


@pytest.fixture(scope="module")
def net(model: nn.Module, data: tuple[Tensor, Tensor]) -> bl.Net:
    return bl.capture(model, data[0][:2])


class Counter:
    """A net that counts the batches whose margins are asked for, and can stop like Ctrl-C."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_at: int | None = None) -> None:
        self.calls, self.stop_at = 0, stop_at
        original = bl.Net.margins

        def margins(net: bl.Net, *args: object, **kwargs: object) -> Tensor:
            if self.calls == self.stop_at:
                raise KeyboardInterrupt
            self.calls += 1
            return original(net, *args, **kwargs)

        monkeypatch.setattr(bl.Net, "margins", margins)


def test_rows_agree_with_margins(
    net: bl.Net, model: nn.Module, data: tuple[Tensor, Tensor]
) -> None:
    images, labels = data
    found = certify_job(net, Job(images, labels, RADII, METHODS, valid=(0, 1), batch=4))
    assert [(row.method, row.radius) for row in found.rows] == [
        (m, r) for m in METHODS for r in RADII
    ]
    assert torch.equal(found.predictions, model(images).argmax(1))
    for row in found.rows:
        with torch.no_grad():
            margins = net.margins(
                bl.Linf(images, row.radius, lower=0, upper=1), labels, method=row.method
            ).double()
        torch.testing.assert_close(
            found.run(row.method, row.radius).margins, margins, atol=1e-5, rtol=1e-5
        )
        correct = model(images).argmax(1) == labels
        assert (row.images, row.correct) == (11, int(correct.sum()))
        assert row.verified == int((correct & (margins > 0).all(1)).sum())
        assert row.mean_margin == pytest.approx(float(margins.amin(1).mean()), abs=1e-4)
        assert row.seconds > 0
    exact = found.rows[0]
    assert exact.verified == exact.correct == 10
    assert exact.share == pytest.approx(10 / 11)


def test_best_margins(net: bl.Net, data: tuple[Tensor, Tensor]) -> None:
    found = certify_job(net, Job(*data, [0.1], METHODS))
    best = found.best_margins(0.1)
    assert all((best >= run.margins).all() for run in found.runs)


@pytest.mark.parametrize("norm", ["inf", "2", "1"])
def test_norms(net: bl.Net, data: tuple[Tensor, Tensor], norm: str) -> None:
    images, labels = data
    ball = {"inf": bl.Linf, "2": bl.L2, "1": bl.L1}[norm]
    found = certify_job(net, Job(images, labels, [0.1], ["crown"], norm=norm))
    with torch.no_grad():
        expected = net.margins(ball(images, 0.1), labels).double()
    torch.testing.assert_close(found.runs[0].margins, expected, atol=1e-5, rtol=1e-5)


def test_bytes_are_divided_by_255(net: bl.Net, data: tuple[Tensor, Tensor]) -> None:
    images, labels = data
    pixels = (images * 255).round().to(torch.uint8)
    one = certify_job(net, Job(pixels, labels, [0.01], ["ibp"], valid=(0, 1)))
    two = certify_job(net, Job(pixels.float() / 255, labels, [0.01], ["ibp"], valid=(0, 1)))
    assert torch.equal(one.runs[0].margins, two.runs[0].margins)


def test_nan_and_infinity_are_never_verified() -> None:
    task = Task("", "", 4, 3, "inf", None)
    margins = torch.tensor(
        [[1.0, 2.0], [1.0, math.nan], [math.nan, math.nan], [math.inf, 1.0]], dtype=torch.float64
    )
    labels = torch.zeros(4, dtype=torch.long)
    found = Certification(task, labels, labels, (Run("ibp", 0.1, margins, 1.0),))
    assert found.verified(found.runs[0]).tolist() == [True, False, False, False]
    assert math.isnan(found.rows[0].mean_margin)


def test_nan_outputs_count_as_wrong() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.tensor([1.0, math.nan])

    found = certify_job(
        Broken().eval(), Job(torch.ones(2, 2), torch.tensor([0, 1]), [0.0], ["ibp"])
    )
    assert found.predictions.tolist() == [-1, -1]
    assert found.rows[0].verified == 0


def test_a_module_with_a_fixed_batch_size(
    data: tuple[Tensor, Tensor], model: nn.Module, net: bl.Net
) -> None:
    images, labels = data
    program = torch.export.export(model, (images[:4],))
    fixed = bl.capture(program)
    assert torch.allclose(outputs(fixed, images), model(images), atol=1e-6)
    one, two = (
        certify_job(any_net, Job(images, labels, [0.05], ["crown"])) for any_net in (fixed, net)
    )
    torch.testing.assert_close(one.runs[0].margins, two.runs[0].margins, atol=1e-5, rtol=1e-5)


# -- the results file ------------------------------------------------------------------------------


@pytest.mark.parametrize("stop_at", [0, 1, 3, 5, 8])
def test_resume_after_interruption(
    net: bl.Net,
    data: tuple[Tensor, Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    stop_at: int,
) -> None:
    results = tmp_path / "results.json"
    whole = certify_job(net, Job(*data, RADII, METHODS, batch=4))
    with monkeypatch.context() as patch:
        counter = Counter(patch, stop_at)
        with pytest.raises(KeyboardInterrupt):
            certify_job(net, Job(*data, RADII, METHODS, batch=4), results=results)
    done = sum(len(run["margins"]) for run in json.loads(results.read_text())["runs"])
    assert done == sum([4, 4, 3][i % 3] for i in range(stop_at))
    with monkeypatch.context() as patch:
        counter = Counter(patch)
        resumed = certify_job(
            net, Job(*data, RADII, METHODS, batch=4), results=results, resume=True
        )
        assert counter.calls == 3 * len(RADII) * len(METHODS) - stop_at
    for one, two in zip(whole.runs, resumed.runs, strict=True):
        assert (one.method, one.radius) == (two.method, two.radius)
        assert torch.equal(one.margins, two.margins)
    with monkeypatch.context() as patch:
        counter = Counter(patch)
        again = certify_job(net, Job(*data, RADII, METHODS, batch=4), results=results, resume=True)
        assert counter.calls == 0
    assert again.rows == resumed.rows
    left = sorted(path.name for path in tmp_path.iterdir())
    assert left == ["counterexamples.npz", "results.json"]


def test_resume_adds_methods(
    net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = tmp_path / "results.json"
    certify_job(net, Job(*data, [0.1], ["ibp"]), results=results)
    counter = Counter(monkeypatch)
    found = certify_job(net, Job(*data, [0.1, 0.2], ["crown"]), results=results, resume=True)
    assert counter.calls == 2
    assert found.methods == ("crown",)
    assert len(json.loads(results.read_text())["runs"]) == 3


def test_without_resume_results_are_never_written_over(
    net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path
) -> None:
    results = tmp_path / "results.json"
    certify_job(net, Job(*data, [0.1], ["ibp"]), results=results)
    old = results.read_text()
    with pytest.raises(bl.ArgumentError, match="already holds results: give --resume"):
        certify_job(net, Job(*data, [0.2], ["ibp"]), results=results)
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    assert results.read_text() == old


def test_two_at_once(net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    """A certification that begins before another one has saved anything does not write over it
    either."""
    results = tmp_path / "results.json"

    def another(*_: object) -> None:
        if not results.exists():
            certify_job(net, Job(*data, [0.2], ["ibp"]), results=results)

    with pytest.raises(bl.ArgumentError, match="another process"):
        certify_job(net, Job(*data, [0.1], ["ibp"]), results=results, progress=another)
    assert [run["radius"] for run in json.loads(results.read_text())["runs"]] == [0.2]


def test_not_a_number_survives_the_file(
    net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = torch.tensor([math.nan, -math.inf, math.inf])
    monkeypatch.setattr(
        bl.Net, "margins", lambda net, region, labels, **_: odd.expand(len(labels), 3)
    )
    for resume in (False, True):
        found = certify_job(
            net, Job(*data, [0.1], ["ibp"]), results=tmp_path / "r.json", resume=resume
        )
        assert torch.equal(
            found.runs[0].margins.nan_to_num(7.0), odd.double().nan_to_num(7.0).expand(11, 3)
        )
        assert found.rows[0].verified == 0


@pytest.mark.parametrize("change", ["model", "labels", "norm", "range", "damage", "json"])
def test_a_file_for_something_else_is_refused(
    net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path, change: str
) -> None:
    images, labels = data
    results = tmp_path / "results.json"
    certify_job(net, Job(images, labels, [0.1], ["ibp"]), results=results)
    before = results.read_bytes()
    model: bl.Net | nn.Module = net
    other = {"images": images, "labels": labels}
    expected = "made with another"
    if change == "model":
        torch.manual_seed(5)
        model = nn.Sequential(nn.Flatten(), nn.Linear(12, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    elif change == "labels":
        other["labels"], expected = labels.flip(0), "other images or labels"
    elif change == "norm":
        other["norm"] = "2"
    elif change == "range":
        other["valid"] = (0, 1)
    elif change == "damage":
        content = json.loads(before)
        content["runs"][0]["margins"] += content["runs"][0]["margins"]
        results.write_text(json.dumps(content))
        expected = "damaged"
    else:
        results.write_bytes(before[: len(before) // 2])
        expected = "not a results file"
    before = results.read_bytes()
    job = Job(**other, radii=[0.1], methods=["ibp"])  # type: ignore[arg-type]
    with pytest.raises(bl.ArgumentError, match=expected):
        certify_job(model, job, results=results, resume=True)
    assert results.read_bytes() == before


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a margin": lambda content: content["runs"][0]["margins"][3].__setitem__(1, 5.0),
    "a margin, slightly": lambda content: content["runs"][0]["margins"].__setitem__(
        3, [m + 1e-15 for m in content["runs"][0]["margins"][3]]
    ),
    "all margins": lambda content: content["runs"][0].update(margins=[[1.0] * 3] * 11),
    "a method": lambda content: content["runs"][0].update(method="crown"),
    "a radius": lambda content: content["runs"][0].update(radius=0.2),
    "seconds": lambda content: content["runs"][0].update(seconds=0.0),
    "a label": lambda content: content["labels"].__setitem__(0, 3 - content["labels"][0]),
    "another run": lambda content: content["runs"].append({**content["runs"][0], "radius": 0.5}),
    "fewer images": lambda content: content["runs"][0]["margins"].pop(),
    "no digest": lambda content: content.pop("digest"),
    "a digest of nothing": lambda content: content.update(digest=None),
}


@pytest.mark.parametrize("edit", EDITS)
def test_results_that_were_edited_are_not_believed(
    net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path, edit: str
) -> None:
    results = tmp_path / "results.json"
    certify_job(net, Job(*data, [0.1], ["ibp"]), results=results)
    content = json.loads(results.read_text())
    results.write_text(json.dumps(content, indent=2))  # how it is laid out does not matter
    certify_job(net, Job(*data, [0.1], ["ibp"]), results=results, resume=True)
    EDITS[edit](content)
    results.write_text(json.dumps(content))
    with pytest.raises(bl.ArgumentError, match=r"edited|not a results file"):
        certify_job(net, Job(*data, [0.1], ["ibp"]), results=results, resume=True)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "null",
        "[]",
        "{}",
        '{"format": 2}',
        '{"format": 3}',
        '{"format": 3, "digest": 1, "task": 3, "runs": 4}',
        "\udcff",
        "[" * 9000,
    ],
)
def test_files_that_are_no_results(
    net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path, content: str
) -> None:
    results = tmp_path / "results.json"
    results.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(bl.ArgumentError, match=r"not a results file|edited"):
        certify_job(net, Job(*data, [0.1], ["ibp"]), results=results, resume=True)


def test_long_runs_are_saved_on_the_way(
    net: bl.Net, data: tuple[Tensor, Tensor], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "SAVE_SECONDS", 0.0)
    seen = []

    def progress(method: str, radius: float, done: int, total: int) -> None:
        path = tmp_path / "r.json"
        seen.append(
            (
                done,
                len(json.loads(path.read_text())["runs"][0]["margins"]) if path.exists() else 0,
                total,
            )
        )

    job = Job(*data, [0.1], ["ibp"], batch=4, attack=None)
    certify_job(net, job, results=tmp_path / "r.json", progress=progress)
    assert seen == [(0, 0, 11), (4, 4, 11), (8, 8, 11), (11, 11, 11)]


# -- refusals --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ["crwn"]}, "no method 'crwn'"),
        ({"methods": [], "attack": None}, "at least one method"),
        ({"radii": []}, "at least one radius"),
        ({"radii": [-0.1]}, "finite number >= 0"),
        ({"radii": [math.nan]}, "finite number >= 0"),
        ({"norm": "3"}, "norm must be one of"),
        ({"batch": 0}, "batch size"),
        ({"labels": torch.full((11,), 4)}, "labels must lie in 0 ... 3; they span 4 ... 4"),
        ({"labels": torch.full((11,), -1)}, "labels must lie in"),
        ({"labels": torch.zeros(11)}, "whole numbers"),
        ({"labels": torch.zeros(10, dtype=torch.long)}, "11 images but 10 labels"),
        (
            {"images": torch.rand(11, 3, 2, 3)},
            r"shape \(3, 2, 2\), not \(3, 2, 3\)|shape \(3, 2, "
            r"2\), "
            r"but "
            r"these",
        ),
        ({"images": torch.zeros(0, 3, 2, 2)}, "N >= 1"),
        ({"images": torch.full((11, 3, 2, 2), math.nan)}, "NaN"),
        ({"images": torch.zeros(11, 3, 2, 2, dtype=torch.long)}, "uint8"),
        ({"valid": (0.2, 0.3)}, "outside the valid range 0.2 ... 0.3"),
        ({"valid": (1, 0)}, "low <= high"),
    ],
)
def test_wrong_arguments(
    net: bl.Net, data: tuple[Tensor, Tensor], change: dict[str, object], message: str
) -> None:
    arguments: dict[str, object] = {
        "images": data[0],
        "labels": data[1],
        "radii": [0.1],
        "methods": ["ibp"],
    }
    with pytest.raises(bl.ArgumentError, match=message):
        certify_job(net, Job(**(arguments | change)))  # type: ignore[arg-type]


@pytest.mark.parametrize("last", [nn.Linear(5, 1), nn.Unflatten(1, (5, 1))])
def test_models_without_classes_prove_nothing(last: nn.Module) -> None:
    model = nn.Sequential(nn.Linear(2, 5), last).eval()
    with pytest.raises(bl.ArgumentError, match="logits of shape"):
        certify_job(model, Job(torch.rand(3, 2), torch.zeros(3, dtype=torch.long), [0.1], ["ibp"]))


def test_a_job_in_one_call(net: bl.Net, data: tuple[Tensor, Tensor]) -> None:
    job = Job(*data, [0.1], ["ibp"], valid=(0, 1), batch=4, name="a job")
    found = certify(net, *data, [0.1], ["ibp"], valid=(0, 1), batch=4, name="a job")
    other = certify_job(net, job)
    assert torch.equal(found.runs[0].margins, other.runs[0].margins)
