"""Fourteen networks against the bounds of an independent implementation (tests/reference)."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from tests.helpers.contract import METHODS, assert_inside, members
from tests.reference import zoo

FOLDER = Path(__file__).parent / "reference"
REGIONS = {"inf": bl.Linf, "2": bl.L2, "1": bl.L1}
RELU = ("mlp_relu", "mlp_leaky", "cnn", "cnn_maxpool", "residual", "dense", "grouped", "generator")
UNSOUND = {
    ("mlp_leaky", "inf", "forward"),
    ("attention", "2", "ibp"),
    ("attention", "2", "crown-ibp"),
}
"""Where the reference is narrower than ours because it is wrong; the tests below show each."""


@functools.cache
def case(name: str) -> tuple[nn.Module, Tensor, bl.Net]:
    data = arrays()
    module = zoo.build(name)
    prefix = f"{name}/w/"
    module.load_state_dict(
        {
            key.removeprefix(prefix): torch.from_numpy(data[key])
            for key in data
            if key.startswith(prefix)
        }
    )
    x = torch.from_numpy(data[f"{name}/x"])
    return module.eval(), x, bl.capture(module, x)


@functools.cache
def arrays() -> dict[str, Any]:
    with np.load(FOLDER / "cases.npz") as file:
        return dict(file)


def reference(name: str, norm: str, method: str) -> tuple[Tensor, Tensor] | None:
    key = f"{name}/{norm}/{method}"
    data = arrays()
    return (
        (torch.from_numpy(data[f"{key}/lower"]), torch.from_numpy(data[f"{key}/upper"]))
        if f"{key}/lower" in data
        else None
    )


ALL = [
    (name, norm, method)
    for name, (_, _, norms) in zoo.CASES.items()
    for norm in norms
    for method in METHODS
]


@pytest.mark.parametrize(("name", "norm", "method"), ALL)
def test_sound_and_no_wider_than_the_reference(name: str, norm: str, method: str) -> None:
    module, x, net = case(name)
    region = REGIONS[norm](x, zoo.CASES[name][2][norm])
    with torch.no_grad():
        bounds = net.bounds(region, method=method)
        for point in members(region, 20, seed=1):
            assert_inside(module(point), bounds.lower, bounds.upper, f"{name}, {norm}, {method}")
    known = reference(name, norm, method)
    if known is None or (name, norm, method) in UNSOUND:
        return
    lower, upper = (end.reshape(bounds.shape) for end in known)
    assert bounds.width.mean() <= 1.001 * (upper - lower).mean()
    if method == "ibp" and norm == "inf" and name in RELU:
        torch.testing.assert_close(bounds.lower, lower, atol=1e-4, rtol=0)
        torch.testing.assert_close(bounds.upper, upper, atol=1e-4, rtol=0)


def test_every_case_of_the_reference_is_covered() -> None:
    cases = json.loads((FOLDER / "cases.json").read_text())
    assert {(name, norm) for name, entry in cases.items() for norm in entry["norms"]} == {
        (name, norm) for name, norm, _ in ALL
    }


def test_the_reference_is_unsound_for_leaky_relu_in_forward_mode() -> None:
    """Gradient ascent inside the ball leaves the reference's interval, and stays in ours."""
    module, x, net = case("mlp_leaky")
    eps = zoo.CASES["mlp_leaky"][2]["inf"]
    known = reference("mlp_leaky", "inf", "forward")
    assert known is not None
    ours = net.bounds(bl.Linf(x, eps), method="forward")
    starts, broken = 16, 0.0
    torch.manual_seed(0)
    for sign, theirs, bound in (
        (1, known[1], ours.upper.detach()),
        (-1, known[0], ours.lower.detach()),
    ):
        for output in range(10):
            centre = x.repeat(starts, 1)
            z = centre + eps * (2 * torch.rand_like(centre) - 1)
            for _ in range(40):
                z = z.detach().requires_grad_()
                (gradient,) = torch.autograd.grad((sign * module(z)[:, output]).sum(), z)
                z = torch.clamp(z + 0.01 * gradient.sign(), centre - eps, centre + eps)
            best = (sign * module(z)[:, output]).detach().reshape(starts, -1).amax(0)
            broken = max(broken, float((best - sign * theirs[:, output]).max()))
            assert (best <= sign * bound[:, output] + 1e-5).all()
    assert broken > 1e-3


def test_the_reference_forgets_the_shortcut_of_attention_under_l2() -> None:
    """Its interval bounds under L2 are exactly those of a network whose shortcut adds a constant
    instead of the input."""
    module, x, _ = case("attention")

    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = module
            self.register_buffer("x0", x)

        def forward(self, x: Tensor) -> Tensor:
            net: Any = self.net
            q, k, v = (net.split(layer(x)) for layer in (net.q, net.k, net.v))
            w = torch.softmax(torch.matmul(q, k.transpose(-1, -2)) / net.dim**0.5, -1)
            h = self.x0 + net.o(torch.matmul(w, v).permute(0, 2, 1, 3).reshape(x.shape))
            h = h - h.mean(-1, keepdim=True)
            h = h + net.down(torch.relu(net.up(h)))
            h = h - h.mean(-1, keepdim=True)
            return net.head(h.mean(1))

    eps = zoo.CASES["attention"][2]["2"]
    bounds = bl.capture(Constant(), x).bounds(bl.L2(x, eps), method="ibp")
    known = reference("attention", "2", "ibp")
    assert known is not None
    torch.testing.assert_close(bounds.lower, known[0], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(bounds.upper, known[1], atol=1e-4, rtol=1e-4)
