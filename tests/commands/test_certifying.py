"""``boundlab demo`` and ``boundlab certify``, run in this process with a few images."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.demo import load_digits, load_model
from tests.helpers.commands import error, results, run

# -- demo ------------------------------------------------------------------------------------------


def test_demo(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / "out"
    code = run(
        "demo",
        "--images",
        "4",
        "--radii",
        "0.05",
        "0.1",
        "--methods",
        "ibp",
        "crown-ibp,crown",
        "--output",
        str(output),
    )
    printed = capsys.readouterr()
    assert code == 0
    assert printed.err == ""
    for word in (
        "ibp",
        "crown-ibp",
        "crown",
        "0.05",
        "proved",
        "falsified",
        "open",
        "together",
        "margin",
        "s/image",
        "classified correctly",
        "index.html",
    ):
        assert word in printed.out
    assert len(results(str(output))) == 6
    page = (output / "index.html").read_text()
    assert "http" not in page
    assert page.count("<article") == 4


def test_the_shipped_network_is_certified() -> None:
    images, labels = load_digits()
    assert images.shape == (100, 1, 28, 28)
    assert images.dtype == torch.uint8
    assert torch.equal(labels.bincount(), torch.full((10,), 10))
    assert load_digits(10)[1].tolist() == list(range(10))
    model, pixels = load_model(), images / 255
    assert not model.training
    net = bl.capture(model, pixels[:2])
    with torch.no_grad():
        correct = model(pixels).argmax(1) == labels
        verified = correct & (
            net.margins(bl.Linf(pixels, 0.1, lower=0, upper=1), labels, method="ibp") > 0
        ).all(1)
    assert correct.sum() >= 95
    assert verified.sum() > 60


# -- certify ---------------------------------------------------------------------------------------


@cache
def reference_net() -> bl.Net:
    """The model of the zoo, captured once."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)
    ).eval()
    return bl.capture(model, torch.rand(2, 1, 6, 6))


def reference(
    radius: float, method: str, change: Callable[[nn.Module], object] = lambda model: None
) -> torch.Tensor:
    """The margins of data.npz, with the model's parameters changed for once."""
    x, labels = (
        torch.from_numpy(np.load("data.npz")["images"]).float() / 255,
        torch.tensor([0, 1, 2, 1, 0]),
    )
    net = reference_net()
    assert isinstance(net.source, nn.Module)
    before = deepcopy(net.source.state_dict())
    with torch.no_grad():
        change(net.source)
        margins = net.margins(
            bl.Linf(x, radius, lower=0.0, upper=1.0), labels, method=method
        ).double()
    net.source.load_state_dict(before)
    return margins


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("zoo:cnn", ["data.npz"]),
        ("zoo:Zoo.small", ["data.csv", "--shape", "1,6,6"]),
        ("zoo:Zoo.ready", ["data.npz"]),
    ],
)
def test_certify(
    folder: Path, data: list[str], model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("certify", model, *data, "--eps", "2/255", "0.05", "--methods", "ibp", "crown") == 0
    printed = capsys.readouterr()
    assert "divided by 255" in printed.err
    assert [(run["method"], run["radius"]) for run in results()] == [
        ("ibp", 2 / 255),
        ("ibp", 0.05),
        ("crown", 2 / 255),
        ("crown", 0.05),
    ]
    for entry in results():
        expected = reference(float(str(entry["radius"])), str(entry["method"]))
        torch.testing.assert_close(
            torch.tensor(entry["margins"], dtype=torch.float64), expected, atol=1e-5, rtol=1e-5
        )
    assert Path("boundlab-report/index.html").exists()


def test_normalisation_is_inside(folder: Path) -> None:
    assert (
        run(
            "certify",
            "zoo:cnn",
            "data.npz",
            "--mean",
            "0.4",
            "--std",
            "0.3",
            "--eps",
            "0.02",
            "--methods",
            "crown",
        )
        == 0
    )

    def fold(model: nn.Module) -> None:  # without padding, normalisation folds into the first layer
        first = model[0]  # type: ignore[index]
        first.bias -= 0.4 / 0.3 * first.weight.sum((1, 2, 3))
        first.weight /= 0.3

    expected = reference(0.02, "crown", fold)
    torch.testing.assert_close(
        torch.tensor(results()[0]["margins"], dtype=torch.float64), expected, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("free", [True, False])
@pytest.mark.parametrize("normalise", [[], ["--mean", "0", "--std", "1"]])
def test_exported_program(folder: Path, free: bool, normalise: list[str]) -> None:
    import zoo

    x = torch.rand(2, 1, 6, 6)
    program = torch.export.export(
        zoo.cnn().eval(), (x,), dynamic_shapes=({0: torch.export.Dim.DYNAMIC},) if free else None
    )
    torch.export.save(program, folder / "model.pt2")
    assert (
        run("certify", "model.pt2", "data.npz", "--eps", "0.02", "--methods", "crown", *normalise)
        == 0
    )
    expected = reference(0.02, "crown")
    torch.testing.assert_close(
        torch.tensor(results()[0]["margins"], dtype=torch.float64), expected, atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("wrap", ["plain", "dict", "list", "parallel"])
def test_weights(folder: Path, wrap: str) -> None:
    import zoo

    model = zoo.cnn()
    state = {name: value * 0.5 for name, value in model.state_dict().items()}
    content = {
        "plain": state,
        "dict": {"state_dict": state, "epoch": 3},
        "list": [{"other": torch.zeros(1)}, state],
        "parallel": {"model": {f"module.{name}": value for name, value in state.items()}},
    }[wrap]
    torch.save(content, folder / "weights.pt")
    assert (
        run(
            "certify",
            "zoo:cnn",
            "data.npz",
            "--weights",
            "weights.pt",
            "--eps",
            "0.02",
            "--methods",
            "ibp",
        )
        == 0
    )
    expected = reference(0.02, "ibp", lambda model: model.load_state_dict(state))
    torch.testing.assert_close(
        torch.tensor(results()[0]["margins"], dtype=torch.float64), expected, atol=1e-5, rtol=1e-4
    )


def test_range_limit_norm(folder: Path) -> None:
    generator = np.random.default_rng(0)
    np.savez(
        "wide.npz",
        x=generator.normal(size=(4, 36)).astype(np.float64),
        y=np.array([[0.0], [1.0], [2.0], [1.0]]),
    )
    common = [
        "certify",
        "zoo:cnn",
        "wide.npz",
        "--shape",
        "1,6,6",
        "--eps",
        "0.1",
        "--methods",
        "IBP",
        "--norm",
        "l2",
        "--limit",
        "3",
    ]
    assert run(*common) == 1
    assert run(*common, "--range", "none", "--output", "a") == 0
    assert run(*common, "--range", "-10", "10", "--output", "b") == 0
    assert len(results("a")[0]["margins"]) == 3  # type: ignore[arg-type]
    assert results("a")[0]["method"] == "ibp"
    assert '"norm": "2"' in Path("a/results.json").read_text()


def test_interrupt_and_resume(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "certify",
        "zoo:cnn",
        "data.npz",
        "--eps",
        "0.02",
        "0.05",
        "--methods",
        "ibp",
        "crown",
        "--batch",
        "2",
    ]
    assert run(*command, "--output", "whole") == 0
    original, calls = bl.Net.margins, []

    def margins(net: bl.Net, *args: object, **kwargs: object) -> torch.Tensor:
        calls.append(kwargs["method"])
        if len(calls) == 6:
            raise KeyboardInterrupt
        return original(net, *args, **kwargs)

    monkeypatch.setattr(bl.Net, "margins", margins)
    capsys.readouterr()
    assert run(*command) == 130
    assert "--resume" in capsys.readouterr().err
    calls.clear()
    calls.extend(["already interrupted"] * 6)
    assert run(*command, "--resume") == 0
    assert len(calls) == 6 + 12 - 5
    for one, two in zip(results("whole"), results(), strict=True):
        assert {**one, "seconds": 0} == {**two, "seconds": 0}
    assert run(*command, "--resume", "--norm", "2") == 1
    assert "another norm" in capsys.readouterr().err


def test_certify_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["certify", "zoo:cnn", "data.npz", "--eps", "0.02", "--methods", "ibp"]
    assert run(*command) == 0
    before = {path.name: path.read_bytes() for path in Path("boundlab-report").iterdir()}
    with monkeypatch.context() as patch:  # refused before any work
        patch.setattr("boundlab.commands.subjects.load_data", None)
        assert ("boundlab-report already holds results: give --resume") in error(
            capsys, *command, "--eps", "0.1"
        )
    assert "give another --output" in error(capsys, "demo", "--images", "1", "--methods", "ibp")
    assert {path.name: path.read_bytes() for path in Path("boundlab-report").iterdir()} == before
    assert run(*command, "--eps", "0.1", "--resume") == 0


def test_tables_are_never_written_over(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("boundlab-report").mkdir()
    Path("boundlab-report/results.csv").write_text("mine")
    assert "already holds results" in error(capsys, "certify", "zoo:cnn", "data.npz")
    assert Path("boundlab-report/results.csv").read_text() == "mine"


def test_demo_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo", "--images", "2", "--methods", "ibp") == 0
    assert run("demo", "--images", "1", "--methods", "ibp") == 0
    assert len(results()[0]["margins"]) == 1  # type: ignore[arg-type]
    assert "already holds results" in error(capsys, "certify", "zoo:cnn", "data.npz")


def test_interrupt_before_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("boundlab.commands.subjects.load_net", stop)
    assert run("certify", "zoo:cnn", "data.npz") == 130
    assert capsys.readouterr().err.splitlines()[-1] == "boundlab: interrupted"


def test_out_of_memory(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def starve(*_: object, **__: object) -> None:
        raise RuntimeError(
            "[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory: you tried "
            "to allocate 9 bytes"
        )

    monkeypatch.setattr(bl.Net, "margins", starve)
    assert "smaller --batch" in error(capsys, "certify", "zoo:cnn", "data.npz", "--methods", "ibp")
