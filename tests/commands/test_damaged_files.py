"""Files that are cut, empty, of something else, or cannot be read: every command says so in one
line."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from boundlab.cli import main
from tests.helpers.commands import FLAGS
from tests.helpers.data import write_mnist, write_treebank

IMAGE_TRAINING = ["train", "mnist-0.1-ibp", *FLAGS, "--epochs", "1"]
WORD_TRAINING = ["train", "sst-transformer", "--epochs", "1", "--batch", "8", "--phrases", "0"]
LONG = "x" * 300


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of images and sentences, and a run on each."""
    folder = tmp_path_factory.mktemp("trained")
    write_mnist(folder / "mnist")
    write_treebank(folder)
    assert (
        main(
            [*IMAGE_TRAINING, "--files", str(folder / "mnist"), "--output", str(folder / "images")]
        )
        == 0
    )
    assert main([*WORD_TRAINING, "--files", str(folder), "--output", str(folder / "words")]) == 0
    return folder


@pytest.fixture
def runs(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of them in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True)
    return tmp_path


def refused(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    """The one line in which a command says what is wrong."""
    capsys.readouterr()
    assert main(list(command)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("boundlab: ")
    assert "Traceback" not in line
    return line


# -- checkpoints -----------------------------------------------------------------------------------

COMMANDS = {
    "train": [
        *IMAGE_TRAINING,
        "--epochs",
        "2",
        "--files",
        "mnist",
        "--output",
        "images",
        "--resume",
    ],
    "evaluate": ["evaluate", "images", "--files", "mnist", "--limit", "4", "--restarts", "0"],
    "flatness": ["flatness", "images", "--files", "mnist", "--limit", "4"],
    "train words": [
        *WORD_TRAINING,
        "--epochs",
        "2",
        "--files",
        ".",
        "--output",
        "words",
        "--resume",
    ],
    "evaluate words": ["evaluate", "words", "--files", ".", "--limit", "2", "--budgets", "0"],
    "words": ["words", "a fine film", "--model", "words", "--files", ".", "--budgets", "1"],
}


def packed(content: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


def changed(change: Callable[[dict[str, Any]], object]) -> Callable[[bytes], bytes]:
    def made(content: bytes) -> bytes:
        state = torch.load(io.BytesIO(content), weights_only=True)
        change(state)
        return packed(state)

    return made


def flipped(content: bytes) -> bytes:
    """One bit of one weight."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        largest = max(archive.infolist(), key=lambda member: member.file_size)
        with archive.open(largest) as member:
            start = content.index(member.read())
    place = start + largest.file_size // 2
    return content[:place] + bytes([content[place] ^ 64]) + content[place + 1 :]


def reshape(state: dict[str, Any]) -> None:
    name = next(
        name for name, value in state["model"].items() if value.dim() > 1 and len(value) > 1
    )
    state["model"][name] = state["model"][name][:1]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "text": lambda content: b"hello",
    "cut": lambda content: content[: len(content) // 2],
    "begins late": lambda content: content[1000:],
    "zeros": lambda content: bytes(len(content)),
    "a flipped bit": flipped,
    "a list": lambda content: packed([1, 2]),
    "a number": lambda content: packed(3),
    "nothing": lambda content: packed({}),
    "no recipe": changed(lambda state: state.pop("recipe")),
    "a recipe of another type": changed(lambda state: state.update(recipe=[1])),
    "a recipe with another key": changed(
        lambda state: state["recipe"].update(colour="red", eps="much")
    ),
    "a recipe with another model": changed(
        lambda state: state["recipe"].update(model="mlp" if "size" in state else "lstm")
    ),
    "no parameters": changed(lambda state: state.pop("model")),
    "a parameter less": changed(lambda state: state["model"].popitem()),
    "parameters of another type": changed(
        lambda state: state["model"].update(dict.fromkeys(state["model"], "text"))
    ),
    "a parameter of another shape": changed(reshape),
    "classes": changed(lambda state: state.update(classes="ten")),
    "more classes": changed(lambda state: state.update(classes=11)),
}


@pytest.mark.parametrize("command", ["train", "evaluate", "flatness", "words"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_checkpoints(
    runs: Path, command: str, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = runs / ("words" if "words" in command else "images") / "checkpoint.pt"
    content = DAMAGES[damage](path.read_bytes())
    path.write_bytes(content)
    assert "checkpoint" in refused(capsys, *COMMANDS[command])
    assert path.read_bytes() == content


RUN_DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    **{
        f"no {key}": lambda state, key=key: state.pop(key)
        for key in ("data", "epoch", "step", "optimiser", "sums", "seconds")
    },  # type: ignore[misc]
    "nothing of the data": lambda state: state.update(data={}),
    "an epoch below 0": lambda state: state.update(epoch=-1),
    "sums of another shape": lambda state: state.update(sums=torch.zeros(2)),
    "files that are no text": lambda state: state.update(source={"files": [1]}),
    "a source that is a number": lambda state: state.update(source=3),
    "an empty optimiser": lambda state: state.update(optimiser={}),
    "moments of another shape": lambda state: state["optimiser"]["state"][0].update(
        exp_avg=torch.zeros(3)
    ),
}


@pytest.mark.parametrize("damage", RUN_DAMAGES)
def test_damaged_runs(runs: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = runs / "images" / "checkpoint.pt"
    path.write_bytes(changed(RUN_DAMAGES[damage])(path.read_bytes()))
    assert "checkpoint.pt" in refused(capsys, *COMMANDS["train"])


def test_checkpoints_of_the_other_kind(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    refused(capsys, "flatness", "words", "--files", "mnist")
    refused(capsys, "words", "a film", "--model", "images", "--files", ".")


def test_undamaged_runs_go_on(runs: Path) -> None:
    for command in COMMANDS.values():
        assert main(command) == 0


@pytest.mark.parametrize("content", [b"\xff\xfe", b"", b"epoch\n1\n", b"epoch,loss\nx,1\n"])
def test_damaged_metrics(runs: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines that cannot be read are lost, the run is not."""
    (runs / "images" / "metrics.csv").write_bytes(content)
    assert main(COMMANDS["train"]) == 0


# -- what belongs together -------------------------------------------------------------------------


@pytest.mark.parametrize(("first", "then"), [("64", "80"), (None, "64")])
def test_resume_with_another_limit(
    runs: Path, first: str | None, then: str, capsys: pytest.CaptureFixture[str]
) -> None:
    limit = lambda n: [] if n is None else ["--limit", n]
    base = [*IMAGE_TRAINING, "--files", "mnist", "--output", "limited"]
    assert main([*base, *limit(first)]) == 0
    before = Path("limited/checkpoint.pt").read_bytes()
    line = refused(capsys, *base, *limit(then), "--epochs", "2", "--resume")
    assert f"limit ({first or 'none'}, now {then})" in line
    assert Path("limited/checkpoint.pt").read_bytes() == before
    assert main([*base, "--epochs", "2", "--resume"]) == 0  # with the stored limit


def test_resume_with_other_data(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = runs / "mnist" / "train-labels-idx1-ubyte"
    content = labels.read_bytes()
    labels.write_bytes(content[:8] + content[9:] + content[8:9])
    assert "other training data, digest" in refused(capsys, *COMMANDS["train"])
    neighbours = runs / "counterfitted_neighbors.json"
    neighbours.write_text(json.dumps({}))
    assert "other training data, digest" in refused(capsys, *COMMANDS["train words"])


def test_resume_with_another_recipe_names_both_values(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "lr (0.001, now 0.25), seed (3, now 4)" in refused(
        capsys, *COMMANDS["train"], "--lr", "0.25", "--seed", "4"
    )


def test_an_existing_run_is_refused_before_any_work(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree("mnist")
    assert "already holds a checkpoint" in refused(
        capsys, *[word for word in COMMANDS["train"] if word != "--resume"]
    )


# -- paths -----------------------------------------------------------------------------------------


@pytest.fixture
def models(runs: Path) -> Path:
    Path("net.py").write_text(
        "from torch import nn\ndef f(): return nn.Sequential(nn.Flatten(), nn.Linear(4, 3))\n"
    )
    np.savez("data.npz", images=np.zeros((2, 2, 2), np.float32), labels=np.array([0, 1]))
    Path("folder.pt2").mkdir()
    Path("folder.npz").mkdir()
    Path("folder.toml").mkdir()
    Path("loop").symlink_to("loop")
    Path("images/sub").mkdir()
    return runs


CERTIFY = ["certify", "net:f", "data.npz", "--methods", "ibp"]
PATHS = {
    "model": ["certify", f"{LONG}.pt2", "data.npz"],
    "model, a folder": ["certify", "folder.pt2", "data.npz"],
    "model, below a file": ["certify", "net.py/model.pt2", "data.npz"],
    "data": ["certify", "net:f", f"{LONG}.npz"],
    "data, a folder": ["certify", "net:f", "folder.npz"],
    "data, a loop": ["certify", "net:f", "loop"],
    "weights": [*CERTIFY, "--weights", LONG],
    "weights, a folder": [*CERTIFY, "--weights", "images"],
    "output": [*CERTIFY, "--output", LONG],
    "output, a file": [*CERTIFY, "--output", "net.py"],
    "output, a loop": [*CERTIFY, "--output", "loop/a"],
    "output to resume": [*CERTIFY, "--output", LONG, "--resume"],
    "demo": ["demo", "--images", "1", "--methods", "ibp", "--output", LONG],
    "recipe": ["train", f"{LONG}.toml", "--files", "mnist", "--output", "new"],
    "recipe, a folder": ["train", "folder.toml", "--files", "mnist", "--output", "new"],
    "training files": [*IMAGE_TRAINING, "--files", LONG, "--output", "new"],
    "training files, a file": [*IMAGE_TRAINING, "--files", "net.py", "--output", "new"],
    "training output": [*IMAGE_TRAINING, "--files", "mnist", "--output", LONG],
    "training output, a file": [*IMAGE_TRAINING, "--files", "mnist", "--output", "net.py"],
    "training output to resume": [
        *IMAGE_TRAINING,
        "--files",
        "mnist",
        "--output",
        LONG,
        "--resume",
    ],
    "sentences": [*WORD_TRAINING, "--files", LONG, "--output", "new"],
    "checkpoint": ["evaluate", LONG, "--files", "mnist"],
    "checkpoint, an empty folder": ["evaluate", "images/sub", "--files", "mnist"],
    "files to evaluate": ["evaluate", "images", "--files", LONG],
    "flatness": ["flatness", LONG, "--files", "mnist"],
    "surface": [
        "flatness",
        "images",
        "--files",
        "mnist",
        "--limit",
        "2",
        "--steps",
        "1",
        "--surface",
        f"{LONG}.svg",
    ],
    "surface of an unknown form": [
        "flatness",
        "images",
        "--files",
        "mnist",
        "--limit",
        "2",
        "--steps",
        "1",
        "--surface",
        "a.txt",
    ],
    "words": ["words", "a film", "--model", LONG, "--files", "."],
    "files of words": ["words", "a film", "--model", "words", "--files", LONG],
}


@pytest.mark.parametrize("command", PATHS)
def test_paths_that_cannot_be(
    models: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(capsys, *PATHS[command])


def test_checkpoints_that_are_folders(models: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("images/checkpoint.pt").unlink()
    Path("images/checkpoint.pt").mkdir()
    for command in ("train", "evaluate", "flatness"):
        refused(capsys, *COMMANDS[command])


@pytest.mark.parametrize(
    "target",
    [
        "pathlib.Path.open",
        "pathlib.Path.read_bytes",
        "pathlib.Path.read_text",
        "io.open",
        "zipfile.ZipFile",
    ],
)
def test_permissions(
    models: Path, target: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As if nothing could be read (the super user can read everything)."""

    def denied(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    Path("data.csv").write_text("1,2,3,4,5\n")
    Path("recipe.toml").write_text("epochs = 1\n")
    commands = {
        "pathlib.Path.open": ["certify", "net:f", "data.csv"],
        "pathlib.Path.read_bytes": [*IMAGE_TRAINING, "--files", "mnist", "--output", "new"],
        "pathlib.Path.read_text": ["train", "recipe.toml", "--files", "mnist", "--output", "new"],
        "io.open": ["certify", "net:f", "data.npz"],
        "zipfile.ZipFile": COMMANDS["evaluate"],
    }
    monkeypatch.setattr(target, denied)
    if target == "io.open":
        monkeypatch.setattr("builtins.open", denied)
        monkeypatch.setattr("zipfile.is_zipfile", lambda _: True)
    assert "Permission denied" in refused(capsys, *commands[target])


# -- data and weights ------------------------------------------------------------------------------


def npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()


GOOD = npz(
    images=np.random.default_rng(0).random((2, 2, 2)).astype(np.float32), labels=np.array([0, 1])
)
ARRAYS = {
    "cut": GOOD[: len(GOOD) // 2],
    "a flipped byte": GOOD[:90] + bytes([GOOD[90] ^ 255]) + GOOD[91:],
    "a number for images": npz(images=np.float32(3), labels=np.array([0])),
    "a number for labels": npz(images=np.zeros((1, 2, 2), np.float32), labels=np.int64(3)),
    "no images": npz(images=np.zeros((0, 2, 2), np.float32), labels=np.zeros(0, int)),
    "texts": npz(images=np.array(["a", "b"]), labels=np.array([0, 1])),
    "endless labels": npz(images=np.zeros((2, 2, 2), np.float32), labels=np.array([np.inf, 1])),
    "labels that are texts": npz(
        images=np.zeros((2, 2, 2), np.float32), labels=np.array(["a", "b"])
    ),
}


@pytest.mark.parametrize("damage", ARRAYS)
def test_damaged_arrays(models: Path, damage: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.npz").write_bytes(ARRAYS[damage])
    assert "bad.npz" in refused(capsys, "certify", "net:f", "bad.npz") or damage == "no images"


@pytest.mark.parametrize(
    "content",
    [b"", b"hello", packed([1]), packed({})[:300], bytes(500), GOOD, b"PK\x03\x04" + bytes(90)],
)
def test_damaged_weights(models: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("weights.pt").write_bytes(content)
    assert "weights.pt" in refused(capsys, *CERTIFY, "--weights", "weights.pt")


@pytest.mark.parametrize(
    "content", [b"", b"hello", b"PK\x05\x06" + bytes(18), b"PK\x03\x04" + bytes(90), GOOD]
)
def test_damaged_programs(models: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("model.pt2").write_bytes(content)
    assert "model.pt2" in refused(capsys, "certify", "model.pt2", "data.npz")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("counterfitted_neighbors.json", b"{"),
        ("counterfitted_neighbors.json", b"[1]"),
        ("counterfitted_neighbors.json", b'{"film": 3}'),
        ("counterfitted_neighbors.json", b"\xff"),
        ("trees_train.txt", b"\xff\xfe"),
        ("trees_train.txt", b""),
        ("trees_dev.txt", b"(4"),
    ],
)
def test_damaged_sentences(
    models: Path, name: str, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(name).write_bytes(content)
    refused(capsys, *WORD_TRAINING, "--files", ".", "--output", "new")


@pytest.mark.parametrize("content", [b"\xff\xfe", b"epochs = ", b"epochs = 'x'"])
def test_damaged_recipes(models: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipe.toml").write_bytes(content)
    refused(capsys, "train", "recipe.toml", "--files", "mnist", "--output", "new")
