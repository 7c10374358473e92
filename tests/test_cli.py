"""The command line, run in this process with a few images."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.cli import main
from boundlab.commands.operators import KINDS, supported
from boundlab.demo import load_digits, load_model
from boundlab.rules.registry import COMPOSITIONS, RULES
from tests.helpers.commands import run

MODELS = """
import torch
from torch import nn

def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))

class Zoo:
    small = cnn
    ready = cnn()

def none(): return None
def broken(): raise KeyError("weights")
def quitting(): raise SystemExit(3)
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in with models and data, made the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "zoo.py").write_text(MODELS)
    (tmp_path / "bad_syntax.py").write_text("def f(:\n")
    (tmp_path / "needs_more.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.delitem(sys.modules, "zoo", raising=False)
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (5, 1, 6, 6), dtype=np.uint8)
    np.savez("data.npz", images=images, labels=np.array([0, 1, 2, 1, 0]))
    np.savetxt(
        "data.csv",
        np.hstack([np.array([[0], [1], [2], [1], [0]]), images.reshape(5, -1)]),
        fmt="%d",
        delimiter=",",
        header="label,pixels",
        comments="",
    )
    return tmp_path


def results(output: str = "boundlab-report") -> list[dict[str, object]]:
    return list(json.loads((Path(output) / "results.json").read_text())["runs"])


# -- demo and ops ----------------------------------------------------------------------------------


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
        "verified",
        "mean margin",
        "seconds per image",
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


def test_ops(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("ops") == 0
    assert "aten.relu" in capsys.readouterr().out
    assert run("ops", "--markdown") == 0
    text = capsys.readouterr().out
    rows = [line for line in text.splitlines() if line.startswith("| `")]
    assert len(rows) == len(supported())
    assert len(rows) > 100
    assert "| `aten.tanh` | elementwise | `boundlab.rules.elementwise` |" in rows
    assert any(row.startswith("| `aten.lstm` ") for row in rows)
    assert all(op.kind in KINDS for op in supported())
    assert len({op.name for op in supported()}) <= len(RULES) + len(COMPOSITIONS)


def test_version_and_module() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "boundlab", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"boundlab {bl.__version__}"


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
        "ibp",
        "--norm",
        "2",
        "--limit",
        "3",
    ]
    assert run(*common) == 1
    assert run(*common, "--range", "none", "--output", "a") == 0
    assert run(*common, "--range", "-10", "10", "--output", "b") == 0
    assert len(results("a")[0]["margins"]) == 3  # type: ignore[arg-type]


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
        patch.setattr("boundlab.commands.certifying.load_data", None)
        assert ("boundlab-report already holds results: give --resume") in error(
            capsys, *command, "--eps", "0.1"
        )
    assert "give another --output" in error(capsys, "demo", "--images", "1", "--methods", "ibp")
    assert {path.name: path.read_bytes() for path in Path("boundlab-report").iterdir()} == before
    assert run(*command, "--eps", "0.1", "--resume") == 0


def test_demo_twice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo", "--images", "2", "--methods", "ibp") == 0
    assert run("demo", "--images", "1", "--methods", "ibp") == 0
    assert len(results()[0]["margins"]) == 1  # type: ignore[arg-type]
    assert "already holds results" in error(capsys, "certify", "zoo:cnn", "data.npz")


# -- what goes wrong -------------------------------------------------------------------------------


def error(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """The one line that a failing command prints."""
    capsys.readouterr()
    assert run(*argv) == 1
    lines = capsys.readouterr().err.splitlines()
    lines = [line for line in lines if "divided by 255" not in line]
    assert len(lines) == 1
    assert lines[0].startswith("boundlab: ")
    return lines[0]


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("zoo", "package.module:factory"),
        ("nowhere.models:cnn", "ModuleNotFoundError"),
        ("bad_syntax:f", "SyntaxError"),
        ("needs_more:f", "a_package_that_is_not_there"),
        ("zoo:missing", "zoo has no 'missing'; it has: cnn"),
        ("zoo:none", "must return a torch.nn.Module, not NoneType"),
        ("zoo:broken", "zoo:broken() failed: KeyError: 'weights' (zoo.py, line"),
        ("zoo:quitting", "SystemExit"),
        ("zoo:number", "is a int"),
        ("missing.pt2", "there is no file missing.pt2"),
        ("data.npz.pt2", "is not a program saved with torch.export.save"),
    ],
)
def test_bad_models(
    folder: Path, model: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "data.npz.pt2").write_bytes((folder / "data.npz").read_bytes())
    assert message in error(capsys, "certify", model, "data.npz", "--methods", "ibp")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("gone.npz", None, "there is no data file gone.npz"),
        ("data.txt", b"", "neither .npz nor .csv"),
        ("text.npz", b"hello", "is not an .npz file"),
        ("empty.csv", b"", "has no rows"),
        ("ragged.csv", b"1,2,3\n1,2\n", "rows of 2, 3 fields"),
        ("words.csv", b"1,2,3\n1,x,3\n", "not a number"),
        ("half.csv", b"0.5,2,3\n", "whole numbers"),
        ("nan.csv", b"1,nan,3\n", "NaN"),
        ("short.csv", b"1,2,3\n", "does not run on images of shape (1, 2)"),
    ],
)
def test_bad_data_files(
    folder: Path, name: str, content: bytes | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if content is not None:
        (folder / name).write_bytes(content)
    model = "zoo:cnn"
    if name == "nan.csv":
        (folder / "flat.py").write_text("from torch import nn\ndef f(): return nn.Linear(2, 2)\n")
        model = "flat:f"
    assert message in error(capsys, "certify", model, name, "--methods", "ibp", "--range", "none")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"pictures": np.zeros(3)}, "has no array 'images' (or 'x'); it has: pictures"),
        ({"x": np.zeros((2, 1, 6, 6), np.uint8)}, "has no array 'labels'"),
        ({"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.zeros(3, int)}, "2 images but 3 labels"),
        (
            {"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.array([0, 7])},
            "labels must lie in 0 ... 2",
        ),
        ({"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.array([0.5, 1])}, "whole numbers"),
        (
            {"x": np.zeros((2, 1, 6, 6), np.uint8), "y": np.zeros((2, 3))},
            "one class number per image",
        ),
        ({"x": np.zeros((2, 1, 6, 6), complex), "y": np.zeros(2, int)}, "must be numbers"),
        (
            {"x": np.zeros((2, 1, 9, 9), np.uint8), "y": np.zeros(2, int)},
            "does not run on images of shape (2, 1, 9, 9)",
        ),
        (
            {"x": np.full((2, 1, 6, 6), 2.0), "y": np.zeros(2, int)},
            "outside the valid range 0 ... 1",
        ),
        ({"x": np.array([{}, {}]), "y": np.zeros(2, int)}, "plain arrays"),
    ],
)
def test_bad_arrays(
    folder: Path, arrays: dict[str, np.ndarray], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("bad.npz", **arrays)
    assert message in error(capsys, "certify", "zoo:cnn", "bad.npz", "--methods", "ibp")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--methods", "crwn"], "no method 'crwn'; there are: ibp"),
        (["--eps=-0.1"], ">= 0"),
        (["--range", "0"], "--range takes two numbers"),
        (["--range", "a", "b"], "--range takes two numbers"),
        (["--range", "1", "0"], "low <= high"),
        (["--shape", "1,7,7"], "has 49 values, but the images in data.npz have 36"),
        (["--mean", "1", "2"], "--mean takes one number or one per channel (1), not 2"),
        (["--std", "0"], "--std must be positive"),
        (["--weights", "gone.pt"], "there is no weights file gone.pt"),
        (["--weights", "data.csv"], "cannot read data.csv"),
        (["--weights", "other.pt"], "do not fit the model: missing: 0.weight"),
        (["--weights", "shape.pt"], "of another shape: 3.bias (7,) instead of (3,)"),
        (["--weights", "number.pt"], "holds no state dict"),
        (["--device", "nonsense"], "the device 'nonsense' cannot be used"),
        (["--limit", "0"], "--limit must be at least 1"),
        (["--batch", "0"], "batch size"),
        (["--output", "data.csv/sub"], "cannot write"),
    ],
)
def test_bad_options(
    folder: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import zoo

    torch.save({"weight": torch.zeros(1)}, "other.pt")
    torch.save({**zoo.cnn().state_dict(), "3.bias": torch.zeros(7)}, "shape.pt")
    torch.save(3, "number.pt")
    methods = [] if "--methods" in options else ["--methods", "ibp"]
    assert message in error(capsys, "certify", "zoo:cnn", "data.npz", *methods, *options)


def test_weights_of_a_program(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "leave out --weights" in error(
        capsys, "certify", "model.pt2", "data.npz", "--weights", "data.npz"
    )


def test_demo_checks_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert "between 1 and 100" in error(capsys, "demo", "--images", "0")
    assert "no method 'x'" in error(capsys, "demo", "--methods", "x")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["frobnicate"],
        ["demo", "--radii", "abc"],
        ["certify"],
        ["certify", "a:b", "c.npz", "--shape", "0,1"],
        ["ops", "x"],
    ],
)
def test_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage: boundlab" in capsys.readouterr().err


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--help"], ["demo", "--help"], ["certify", "--help"], ["ops", "--help"]):
        assert main(argv) == 0
        assert "usage: boundlab" in capsys.readouterr().out


def test_interrupt_before_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("boundlab.commands.certifying.load_net", stop)
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
