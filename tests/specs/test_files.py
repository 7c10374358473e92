"""VNN-LIB files that are not ours: points in, at the ends of and beside their unsafe sets are
judged as by an evaluator that shares nothing with the parser."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.specs.property import Case, Clause
from tests.helpers.shared import SHARED
from tests.helpers.vnnlib import Judge

FOLDER = SHARED / "vnncomp"
SETS = sorted(path.parent.name for path in FOLDER.glob("*/vnnlib")) or ["none"]
FEW = 2
"""How many files of each set the ordinary run takes."""
POINTS = 1000


def inputs_of(case: Case, count: int, generator: np.random.Generator) -> np.ndarray:
    """Inputs (count, in): two of five anywhere in the box, one at its ends, one a step outside of
    it at one place, one that has left it by little."""
    box = case.region.hull()
    low, up = box.lower.double().numpy(), box.upper.double().numpy()
    share = generator.random((count, low.size))
    kind = np.arange(count) % 5
    share[kind == 2] = share[kind == 2].round()
    x = np.clip(low + share * (up - low), low, up)
    for point in np.flatnonzero(kind == 3):
        place = generator.integers(low.size)
        outside = np.nextafter(low, -np.inf), np.nextafter(up, np.inf)
        x[point, place] = outside[point % 2][0, place]
    x[kind == 4] += 1e-3 * generator.standard_normal(x[kind == 4].shape)
    return x


def outputs_of(clause: Clause, x: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Outputs (count, out) for inputs (count, in), most of them near the ends of a clause: random
    ones, moved into one inequality after the other by margins down to 0, or a little out of one."""
    rows, constant = clause.outputs.numpy(), clause.constant.numpy()
    shift = np.broadcast_to(constant, (len(x), len(rows)))
    if clause.inputs is not None:
        shift = shift + x @ clause.inputs.numpy().T
    y = generator.standard_normal((len(x), rows.shape[1]))
    y += generator.choice([0.0, 1.0], (len(x), 1)) * np.abs(constant).max(initial=0.0)
    margin = generator.choice([0.0, 1e-12, 1e-3, 1.0], len(x))
    for _ in range(30):
        for row, moved in zip(rows, shift.T, strict=True):
            if row.any():
                excess = np.maximum(y @ row + moved + margin, 0)
                y -= np.outer(excess, row) / (row @ row)
    some = np.flatnonzero(np.arange(len(x)) % 3 == 0)
    chosen = rows[generator.integers(len(rows), size=len(some))] if len(rows) else 0
    y[some] += generator.choice([0.0, 1e-12, 1e-3], (len(some), 1)) * chosen
    return y


def points_of(prop: bl.Property, outputs: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and outputs around the cases and clauses of a property, in turn."""
    generator = np.random.default_rng(0)
    pairs = [(case, clause) for case in prop.cases(outputs) for clause in case.clauses]
    chosen = [pairs[i] for i in generator.permutation(len(pairs))[: count // 10]]
    found = []
    for part, (case, clause) in enumerate(chosen):
        x = inputs_of(case, len(range(part, count, len(chosen))), generator)
        found.append((x, outputs_of(clause, x, generator)))
    xs, ys = zip(*found, strict=True)
    return np.concatenate(xs), np.concatenate(ys)


def unsafe_share(path: Path) -> float:
    """Check the points of one file; returns which share of them is unsafe."""
    prop = bl.load_vnnlib(path)
    judge = Judge(gzip.decompress(path.read_bytes()).decode())
    x, y = points_of(prop, judge.outputs, POINTS)
    assert x.shape == (POINTS, judge.inputs)
    found = prop.violated(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    expected = judge.holds(x, y)
    assert (found == expected).all(), f"{path.name}: points {np.flatnonzero(found != expected)}"
    return float(expected.mean())


def assert_judged_alike(name: str, count: int | None) -> None:
    files = sorted((FOLDER / name / "vnnlib").rglob("*.vnnlib.gz"))
    if not files:
        pytest.skip(f"no properties in BOUNDLAB_SHARED ({SHARED})")
    for path in files[:count]:
        assert 0.1 < unsafe_share(path) < 0.9, path.name


@pytest.mark.parametrize("name", SETS)
def test_points_of_some_files(name: str) -> None:
    assert_judged_alike(name, FEW)


@pytest.mark.slow
@pytest.mark.parametrize("name", SETS)
def test_points_of_all_files(name: str) -> None:
    assert_judged_alike(name, None)
