"""The life of a network of one's own: trained by a script that is killed, gone on with by the same
script, certified, exported, and certified again from the ONNX file with the same verdicts."""

from __future__ import annotations

import csv
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from boundlab.demo import load_digits
from boundlab.training.checkpoints import CHECKPOINT
from boundlab.training.metrics import METRICS
from tests.helpers.commands import run
from tests.helpers.documentation import ROOT

MODEL = "examples.train_your_own:resnet"


def script(images: Path, folder: Path) -> list[str]:
    return [sys.executable, "-m", "examples.train_your_own", str(images), str(folder)]


def killed_after_an_epoch(command: list[str], folder: Path) -> None:
    """Run a training script until it has written its second epoch, and kill it."""
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL)
    metrics = folder / METRICS
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        assert process.poll() is None, "the script ended before it could be killed"
        time.sleep(0.02)
    process.kill()
    assert process.wait() < 0


def verdicts(folder: Path) -> list[tuple[str, ...]]:
    with (folder / "results.csv").open() as lines:
        columns = ("image", "label", "method", "radius", "class", "verdict")
        return [tuple(row[name] for name in columns) for row in csv.DictReader(lines)]


@pytest.mark.slow
def test_killed_resumed_certified_exported_and_certified_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxscript")
    monkeypatch.chdir(tmp_path)
    images, labels = load_digits(100)
    many = {"images": images.repeat(4, 1, 1, 1).numpy(), "labels": labels.repeat(4).numpy()}
    np.savez("train.npz", **many)
    np.savez("test.npz", images=images[:10].numpy(), labels=labels[:10].numpy())

    killed_after_an_epoch(script(tmp_path / "train.npz", tmp_path / "run"), tmp_path / "run")
    for folder in ("run", "whole"):
        subprocess.run(script(tmp_path / "train.npz", tmp_path / folder), cwd=ROOT, check=True)
    saved = [torch.load(Path(name, CHECKPOINT), weights_only=True) for name in ("run", "whole")]
    first, second = (held["model"] for held in saved)
    assert first.keys() == second.keys() and all(torch.equal(first[k], second[k]) for k in first)

    question = ["test.npz", "--eps", 0.01, 0.03, "--methods", "ibp", "crown"]
    assert run("certify", MODEL, *question, "--weights", "run", "--output", "trained") == 0
    assert run("export", "run", "--model", MODEL, "--onnx", "net.onnx") == 0
    assert run("certify", "net.onnx", *question, "--output", "exported") == 0
    found = verdicts(Path("trained"))
    assert found == verdicts(Path("exported"))
    assert {row[-1] for row in found} >= {"proved", "open"}
