"""Trained networks as files that other programs read. What is written is read back and compared
with the network before it gets its name."""

from __future__ import annotations

import importlib.util
import io
import logging
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn

from boundlab.errors import ArgumentError, BoundlabError, CaptureError
from boundlab.models.code import describe
from boundlab.onnx import load_onnx
from boundlab.storage.files import write_atomically

BATCH = 3
"""Samples of the example: neither one nor two, which exporters may take for the only size."""
BATCHES = (1, 2, 7)
"""Numbers of samples that a file is tried with."""
CLOSE = 1e-4
"""The difference that the order of sums may make, relative to the largest output."""


def export_onnx(model: nn.Module, shape: tuple[int, ...], path: Path) -> float:
    """Write a network (samples, *shape) -> (samples, classes) as an ONNX file for any number of
    samples; the largest difference between its outputs and the file's."""
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ArgumentError(
                f"writing ONNX files needs the {package} package: pip install 'boundlab[onnx]'"
            )
    example = torch.rand(BATCH, *shape)
    with _without_warnings():
        try:
            program = torch.onnx.export(
                model.eval(),
                (example,),
                dynamo=True,
                verbose=False,
                input_names=["input"],
                output_names=["output"],
                dynamic_shapes=({0: torch.export.Dim("samples")},),
                external_data=False,
            )
            assert program is not None
            content = program.model_proto.SerializeToString()
        except BoundlabError:
            raise
        except Exception as error:  # of torch.onnx, which raises many types of its own
            raise CaptureError(
                f"torch.onnx cannot export this network: {describe(error)}"
            ) from error
    return _written(content, path, model, shape, lambda file: load_onnx(file))


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Nothing is said of torch's own code, and of packages that it could do with."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def export_program(model: nn.Module, shape: tuple[int, ...], path: Path) -> float:
    """Write a network as a program of torch.export for any number of samples; the largest
    difference between its outputs and the file's."""
    samples = torch.export.Dim("samples")
    try:
        program = torch.export.export(
            model.eval(),
            (torch.rand(BATCH, *shape),),
            dynamic_shapes=({0: samples},),
            strict=False,  # torch 2.6 cannot read back all that it exports strictly, its default
        )
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
    except Exception as error:  # torch.export raises many types of its own
        raise CaptureError(f"torch.export cannot take this network: {describe(error)}") from error
    return _written(
        buffer.getvalue(), path, model, shape, lambda file: torch.export.load(file).module()
    )


def _written(
    content: bytes,
    path: Path,
    model: nn.Module,
    shape: tuple[int, ...],
    read: Callable[[Path], Callable[[Tensor], Tensor]],
) -> float:
    """Write a file if what is read back from it computes what the network does."""
    with tempfile.TemporaryDirectory() as folder:
        trial = Path(folder) / path.name
        trial.write_bytes(content)
        difference = _difference(model, read(trial), shape)
    write_atomically(path, content)
    return difference


@torch.no_grad()
def _difference(
    model: nn.Module, other: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> float:
    """The largest difference of outputs; an error if it is no rounding."""
    generator, most = torch.Generator().manual_seed(0), 0.0
    for count in BATCHES:
        x = torch.rand(count, *shape, generator=generator)
        wanted, found = model(x), other(x)
        size = float(wanted.abs().max())
        difference = float((wanted - found).abs().max())
        if wanted.shape != found.shape or not difference <= CLOSE * max(size, 1.0):
            raise CaptureError(
                f"the exported network gives other outputs than the trained one: they differ by "
                f"{difference:.3g}, of outputs up to {size:.3g}; nothing was written"
            )
        most = max(most, difference)
    return most
