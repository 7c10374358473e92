"""Comparing a loaded network with onnxruntime."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.onnx.network import Value
from boundlab.onnx.reading import is_packed

TRIALS = 10
TOLERANCE = 1e-4
"""How far outputs may differ, relative to the largest one: both round."""


def session(path: Path) -> Any:
    """onnxruntime's reading of a file, packed or not, on one thread."""
    try:
        import onnxruntime
    except ImportError:
        raise ArgumentError(
            "load_onnx(check=True) needs onnxruntime: pip install onnxruntime"
        ) from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    try:
        source: str | bytes = str(path)
        if is_packed(path):
            source = gzip.decompress(path.read_bytes())
        return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime has types of its own
        raise ArgumentError(f"{path}: onnxruntime does not read it: {error}") from None


class Loaded(Protocol):
    """What is asked of a loaded network."""

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]

    def example(self, samples: int) -> tuple[Tensor, ...]: ...

    def __call__(self, *inputs: Tensor) -> Any: ...


def check_against_onnxruntime(model: Loaded, path: Path) -> None:
    """Compare a loaded network with onnxruntime on random inputs, sample by sample and together;
    ArgumentError where they differ."""
    other = session(path)
    inputs = [_of_both_signs(x) for x in model.example(TRIALS)]
    with torch.no_grad():
        ours = _outputs(model(*inputs))
    for sample in range(TRIALS):
        try:
            theirs = run(other, [x[sample : sample + 1] for x in inputs], model.inputs)
        except Exception as error:  # onnxruntime has types of its own
            raise ArgumentError(f"{path}: onnxruntime does not run it: {error}") from None
        for name, one, all_of in zip(model.outputs, theirs, ours, strict=True):
            _compare(f"{path}: output {name!r}", all_of[sample].reshape(-1), one.reshape(-1))


def _of_both_signs(x: Tensor) -> Tensor:
    """Numbers between 0 and 1, every other sample between -1 and 1."""
    if not x.is_floating_point():
        return x
    x[::2] = 2 * x[::2] - 1
    return x


def run(other: Any, inputs: list[Tensor], declared: tuple[Value, ...]) -> list[Tensor]:
    """onnxruntime's outputs for one sample."""
    feed = {
        of.name: x.reshape([size or 1 for size in of.shape]).numpy()
        for of, x in zip(declared, inputs, strict=True)
    }
    return [torch.as_tensor(one) for one in other.run(None, feed)]


def _outputs(found: Any) -> list[Tensor]:
    return list(found.values()) if isinstance(found, dict) else [found]


def _compare(what: str, ours: Tensor, theirs: Tensor) -> None:
    ours, theirs = ours.double(), theirs.double()
    scale = float(torch.nan_to_num(theirs, 0.0, 0.0, 0.0).abs().max()) if len(theirs) else 0.0
    if not torch.allclose(ours, theirs, TOLERANCE, TOLERANCE * scale, equal_nan=True):
        worst = float((ours - theirs).abs().max())
        raise ArgumentError(f"{what} differs from onnxruntime's by {worst:.3g} of {scale:.3g}")
