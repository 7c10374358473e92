"""A certification that the tests of the report and of cross-sections share, and a folder to certify
in."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.commands.certificates import Certification
from boundlab.commands.certify import certify_job
from boundlab.commands.jobs import Job

MODELS = '''
import torch
from torch import nn

def cnn():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))

def line():
    """f_1 - f_0 = 2 (x - 0.5)."""
    model = nn.Linear(1, 2)
    weight, bias = torch.tensor([[-1.0], [1.0]]), torch.tensor([0.5, -0.5])
    model.load_state_dict({"weight": weight, "bias": bias})
    return model

class Zoo:
    small = cnn
    ready = cnn()

def none(): return None
def broken(): raise KeyError("weights")
def quitting(): raise SystemExit(3)
number = 3
'''


@pytest.fixture(scope="module")
def job() -> tuple[bl.Net, Certification, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 3)).eval()
    images = torch.rand(6, 1, 4, 4)
    net = bl.capture(model, images[:2])
    labels = model(images).argmax(1)
    labels[0] = (labels[0] + 1) % 3
    return (
        net,
        certify_job(
            net, Job(images, labels, [0.01, 0.05, 0.3], ["ibp", "crown-ibp", "crown"], valid=(0, 1))
        ),
        images,
    )


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
