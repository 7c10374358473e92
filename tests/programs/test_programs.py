"""Programs of the kind that users write, attacked: every method, every output."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.methods.method import METHODS as ROWS
from tests.helpers.contract import assert_all_inside
from tests.programs import PROGRAMS
from tests.programs.attack import Attacked

METHODS = tuple(name for name in ROWS if name != "beta-crown")
"""All but what needs splits."""
REFUSED = [name for name, program in PROGRAMS.items() if program.refused]
RAW = [name for name, program in PROGRAMS.items() if program.raw]
BOUNDED = [name for name in PROGRAMS if name not in {*REFUSED, *RAW}]
SLOW = frozenset(
    (
        "recurrent-gru", "transformer-block", "pendulum-saturated", "recurrent-minimal",
        "attention-normalised", "attention-rotary", "attention-grouped", "attention-plain",
        "attention-einsum", "attention-added", "attention-softcap", "attention-where", "unicycle",
        "cart-pole", "loss-gaussian", "heat-roll", "loss-soft-cross-entropy", "norm-layer",
        "norm-layer-std", "norm-group", "norm-module", "loss-dice", "loss-evidential",
        "loss-entropy", "loss-focal", "graph-einsum", "graph-one-hot", "graph-scatter-add",
        "set-masked", "gate-geglu", "gate-highway", "hypernetwork-vmap", "hypernetwork-baddbmm",
        "siren", "quaternion", "flow-planar", "loss-smoothed-cross-entropy", "loss-nll",
        "loss-quantile", "loss-contrastive", "patches", "pool-generalised", "pool-adaptive",
        "pool-lp", "dead-zone", "prototypes-cosine", "quadratic-bilinear", "compiled", "looped",
        "siamese-l1", "attention-linear", "state-space", "order-descending", "order-trimmed",
        "order-quantiles", "order-nanmedian", "spectrum-parts", "spectrum-magnitude",
        "spectrum-angle", "warp-bicubic", "warp-nearest", "loss-poisson", "loss-soft-margin",
        "loss-bce", "loss-cosine-embedding", "turned-complex", "turned-magnitude",
        "spline-searchsorted", "tree", "graph-edge-softmax", "siamese-cosine",
        "survival-logsigmoid", "output-named", "output-ordered", "output-nested",
        "fourier-features", "heat-conv",
        "experts-where", "loss-log-cosh", "loss-mse", "norm-local", "weights-standardised",
        "quantised-straight-through",
    )
)  # fmt: skip
"""Variants of programs that the ordinary run has in another form, and the longest."""


def test_slow_programs_exist() -> None:
    assert set(PROGRAMS) >= SLOW


def named(names: list[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in names]


def few_steps(method: str) -> bl.Alpha | None:
    if ROWS[method].optimize:
        return bl.Alpha(iterations=2, inner=1)
    return None


@pytest.mark.parametrize("name", named(BOUNDED))
@torch.no_grad()
def test_bounds_hold(name: str) -> None:
    with torch.enable_grad():
        attacked = Attacked(PROGRAMS[name])
    net = attacked.capture()
    for method in METHODS:
        bounds = attacked.bounds(net, method, alpha=few_steps(method))
        for values, bound in zip(attacked.values, bounds, strict=True):
            ends = torch.stack([bound.lower, bound.upper])
            assert not torch.isnan(ends).any(), f"{method}: NaN"
            assert method != "crown" or torch.isfinite(ends).all(), "crown is infinite"
            in_its_type = partial(as_computed, dtype=PROGRAMS[name].dtype)
            assert_all_inside(*map(in_its_type, (values, bound.lower, bound.upper)), method)


def as_computed(value: Tensor, dtype: torch.dtype) -> Tensor:
    """Numbers in the type that the program computes in, where they are of a longer one: its own
    rounding is that of the shorter type."""
    if value.dtype.is_floating_point and value.dtype.itemsize > dtype.itemsize:
        return value.to(dtype)
    return value


def bounded_by_all(name: str) -> None:
    attacked = Attacked(PROGRAMS[name], count=1, elements=0)
    net = attacked.capture()
    for method in METHODS:
        attacked.bounds(net, method, alpha=few_steps(method))


@pytest.mark.parametrize("name", named(REFUSED))
def test_what_is_refused_is_named(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    program = PROGRAMS[name]
    with pytest.raises(bl.BoundlabError, match=re.escape(program.refused or "")):
        bounded_by_all(name)
    assert not capfd.readouterr().err


@pytest.mark.parametrize("name", RAW)
def test_errors_that_are_not_ours(name: str) -> None:
    """Defects: each should be bounded, or refused by an error of boundlab's family. When one is
    mended, this test says so."""
    words = re.escape(PROGRAMS[name].raw or "")
    with pytest.raises((RuntimeError, ValueError, TypeError), match=words) as caught:
        bounded_by_all(name)
    assert not isinstance(caught.value, bl.BoundlabError)
