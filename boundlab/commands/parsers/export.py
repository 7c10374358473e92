"""The arguments of ``boundlab export``."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.parser import Parser
from boundlab.commands.parsers.runs import add_model


def declare(parser: Parser) -> None:
    parser.description = "Write a trained network as ONNX or as a program of torch.export."
    parser.epilog = """\
example:
  boundlab export runs/a --onnx net.onnx"""
    what = parser.add_argument_group("what to export")
    what.add_argument(
        "run", type=Path, metavar="RUN", help="the output folder of boundlab train or boundlab.fit"
    )
    add_model(what)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--onnx", type=Path, metavar="FILE", help="write an ONNX file (needs the extra onnx)"
    )
    output.add_argument("--pt2", type=Path, metavar="FILE", help="write a program of torch.export")
