"""``boundlab export``: a trained network as an ONNX file, or as a program of torch.export."""

from __future__ import annotations

import argparse

from boundlab.commands.speaking import busy, out, say
from boundlab.errors import ArgumentError
from boundlab.training.exporting import export_onnx, export_program
from boundlab.training.runs import read_run

SUFFIXES = {"onnx": ".onnx", "pt2": ".pt2"}


def export(options: argparse.Namespace) -> None:
    """Write a trained network into files."""
    wanted = {kind: getattr(options, kind) for kind in SUFFIXES if getattr(options, kind)}
    if not wanted:
        raise ArgumentError("give --onnx FILE, --pt2 FILE, or both")
    for kind, path in wanted.items():
        if path.suffix != SUFFIXES[kind]:
            raise ArgumentError(
                f"--{kind} {path}: the name must end with {SUFFIXES[kind]}, by which it is read"
            )
    run = read_run(options.run, options.model)
    if not run.shape:
        raise ArgumentError(
            f"{options.run} is a classifier of sentences, whose inputs are words: only networks of "
            "images and other tensors are exported"
        )
    for kind, path in wanted.items():
        write = {"onnx": export_onnx, "pt2": export_program}[kind]
        with busy(options, f"writing {path}"):
            difference = write(run.model, run.shape, path)
        said = f"Exported: {path}; outputs differ by at most {difference:.2g} from the network's"
        say(out(options), said)
