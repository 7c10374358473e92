"""The arguments of ``boundlab ops``."""

from __future__ import annotations

from boundlab.commands.arguments import add_json
from boundlab.commands.parser import Parser


def declare(parser: Parser) -> None:
    parser.description = "List the operators that have rules."
    parser.epilog = """\
examples:
  boundlab ops
  boundlab ops --onnx
  boundlab ops --json | jq -r '.operators[].name'"""
    what = parser.add_argument_group("what to list")
    what.add_argument("--onnx", action="store_true", help="operators of ONNX files instead")
    form = parser.add_argument_group("output").add_mutually_exclusive_group()
    form.add_argument("--markdown", action="store_true", help="as a Markdown page")
    add_json(form, "the operators")
