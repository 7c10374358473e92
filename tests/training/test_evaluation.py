"""Errors of a trained network."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import nn

import boundlab as bl
from boundlab.attacks import AttackSettings
from boundlab.data import Images
from boundlab.training.evaluation import evaluate, read_errors, wilson


def test_confidence_intervals() -> None:
    assert wilson(0.0, 100)[0] == 0.0 and wilson(0.0, 100)[1] == pytest.approx(0.037, abs=1e-3)
    low, high = wilson(0.5, 10_000)
    assert low == pytest.approx(0.4902, abs=1e-4) and high == pytest.approx(0.5098, abs=1e-4)
    assert wilson(0.3, 0) == (0.0, 1.0)


def line() -> tuple[nn.Module, Images]:
    """f_1 - f_0 = 2 (x - 0.5): a radius of 0.1 flips exactly the points within 0.1 of the middle.
    The last label is wrong."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=True))
    with torch.no_grad():
        model[1].weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model[1].bias.copy_(torch.tensor([0.5, -0.5]))
    pixels = torch.tensor([76, 104, 115, 150, 180, 230], dtype=torch.uint8).reshape(-1, 1, 1, 1)
    return model, Images(pixels, torch.tensor([0, 0, 0, 1, 1, 0]), 2, "points")


def test_errors_are_what_is_there() -> None:
    """Everything that is not flipped is proved."""
    model, data = line()
    found = evaluate(model, data, 0.1, ("ibp",), AttackSettings(20, 1))
    assert (found.clean, found.attacked, found.verified["ibp"]) == (1 / 6, 4 / 6, 2 / 6)
    found = evaluate(model, data, 0.1, ("ibp",), AttackSettings(20, 0))
    assert (found.clean, found.attacked) == (1 / 6, 1 / 6)
    found = evaluate(model, data, 0.0, ("ibp",), AttackSettings(20, 1))
    assert (found.clean, found.attacked, found.verified["ibp"]) == (1 / 6, 1 / 6, 5 / 6)
    assert found.open == 0


# -- the method complete ---------------------------------------------------------------------------


def test_the_verifier_falsifies() -> None:
    """Without an attack it finds what the attack would, and that is an error under attack."""
    model, data = line()
    done: list[int] = []
    found = evaluate(
        model,
        data,
        0.1,
        ("ibp", "complete"),
        AttackSettings(20, 0),
        timeout=60,
        batch=4,
        watch=done.append,
    )
    assert (found.clean, found.attacked, found.open) == (1 / 6, 4 / 6, 0)
    assert found.verified == {"ibp": 2 / 6, "complete": 2 / 6}
    assert found.proved == pytest.approx(2 / 6)
    # after each of the three that were verified, and the rest of both batches
    assert done == [1, 1, 1, 1, 2] and not found.open


def test_the_verifier_proves() -> None:
    """An image that is safe though crown does not prove it."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Flatten(), nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)
    )
    pixels = (torch.rand(30, 1, 2, 2) * 255).byte()
    labels = model(pixels / 255).argmax(1)
    ball = bl.Linf(pixels / 255, 0.1, 0.0, 1.0)
    with torch.no_grad():
        proved = (bl.capture(model, pixels / 255).margins(ball, labels) > 0).all(1)
    hard = (~(proved | bl.attack(model, ball, labels).violated)).nonzero().flatten()[:1]
    data = Images(pixels[hard], labels[hard], 3, "points")
    methods, settings = ("crown", "complete"), AttackSettings(20, 1)
    found = evaluate(model, data, 0.1, methods, settings, timeout=60)
    assert (found.verified, found.open) == ({"crown": 0.0, "complete": 1.0}, 0.0)
    found = evaluate(model, data, 0.1, methods, settings, timeout=1e-9)
    assert (found.verified, found.open) == ({"crown": 0.0, "complete": 0.0}, 1.0)
    assert (found.attacked, found.proved) == (0.0, 0.0)


def test_files_of_earlier_versions(tmp_path: Path) -> None:
    path = tmp_path / "errors.json"
    path.write_text('{"clean": 0.25, "verified": {"ibp": 0.75, "crown": 0.5}}')
    old = read_errors(path)
    assert old == {"format": 2, "clean": 0.25, "verified": {"ibp": 0.25, "crown": 0.5}}
    path.write_text(json.dumps(old))
    assert read_errors(path) == old


def test_times_that_are_none() -> None:
    model, data = line()
    with pytest.raises(bl.ArgumentError, match="positive number of seconds"):
        evaluate(model, data, 0.1, ("complete",), timeout=0.0)
    with pytest.raises(bl.ArgumentError, match="not among the methods"):
        evaluate(model, data, 0.1, ("ibp",), timeout=5.0)
