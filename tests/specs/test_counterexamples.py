"""Counterexamples that others found: the inputs, with what onnxruntime makes of them, violate the
properties as they are read here."""

from __future__ import annotations

import csv
import gzip
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import boundlab as bl
from tests.helpers.shared import SHARED

FOLDER = SHARED / "vnncomp"
SETS = sorted(path.parent.name for path in FOLDER.glob("*/cex")) or ["none"]


def instances(folder: Path) -> dict[str, tuple[str, str]]:
    """The network and the property of each instance of a set, by the name of the instance."""
    found = {}
    with (folder / "instances.csv").open() as file:
        for network, prop, *_ in csv.reader(file):
            inside = "_".join(Path(network).with_suffix("").parts[1:])
            found[f"{inside}_{Path(prop).stem}"] = (network, prop)
    return found


@cache
def session(path: Path) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return runtime.InferenceSession(gzip.decompress(path.read_bytes()), options)


def outputs(path: Path, x: np.ndarray) -> np.ndarray:
    """What a network makes of one flat input, in single precision: (1, out)."""
    network = session(path)
    declared = network.get_inputs()[0]
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in declared.shape]
    found = network.run(None, {declared.name: x.astype(np.float32).reshape(shape)})
    return np.concatenate([one.reshape(1, -1) for one in found], 1)


def input_of(path: Path) -> np.ndarray:
    """The input of a counterexample, in double precision: (in,)."""
    text = gzip.decompress(path.read_bytes()).decode()
    found = {int(i): float(v) for i, v in re.findall(r"\(X_(\d+)\s+([^\s()]+)\)", text)}
    return np.array([found[i] for i in range(len(found))])


def is_violation(network: Path, prop: bl.Property, x: np.ndarray) -> bool:
    """Whether the input, moved into the box of a case, is a violation."""
    for region in prop.regions:
        box = region.hull()
        inside = x.clip(box.lower[0].numpy(), box.upper[0].numpy())[None]
        y = torch.from_numpy(outputs(network, inside))
        if prop.violated(torch.from_numpy(inside), y).all():
            return True
    return False


@pytest.mark.parametrize("name", SETS)
def test_counterexamples_violate_their_properties(name: str) -> None:
    pytest.importorskip("onnxruntime")
    folder = FOLDER / name
    files = sorted((folder / "cex").glob("*.gz"))
    if not files:
        pytest.skip(f"no counterexamples in BOUNDLAB_SHARED ({SHARED})")
    known = instances(folder)
    for path in files:
        network, prop = known[path.name.removesuffix(".counterexample.gz")]
        found = bl.load_vnnlib(folder / f"{prop}.gz")
        assert is_violation(folder / f"{network}.gz", found, input_of(path)), path.name
