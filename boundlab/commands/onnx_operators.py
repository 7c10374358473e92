"""``boundlab ops --onnx``: the table of ONNX operators, read from their rows."""

from __future__ import annotations

from dataclasses import dataclass

from rich.table import Table

from boundlab.onnx import rows as _rows  # fills the table
from boundlab.onnx.table import ROWS, Parameter, Row

COLUMNS = ("operator", "since opset", "inputs", "attributes", "declared in")


@dataclass(frozen=True)
class Listed:
    """A row for people. inputs: what may be left out stands in brackets, what must be known when
    the file is loaded has a star, what may be given many times dots. attributes: by name."""

    name: str
    since: int
    inputs: str
    attributes: str
    module: str

    @staticmethod
    def of(row: Row) -> Listed:
        inputs = [_shown(one) for one in row.parameters if not one.by_name_only]
        attributes = [one.name for one in row.parameters if one.by_name_only]
        module = str(row.function.__module__)
        return Listed(row.name, row.since, ", ".join(inputs), ", ".join(attributes), module)


def _shown(one: Parameter) -> str:
    name = one.name
    if one.kind in ("number", "numbers"):
        name += "*"
    if one.variadic:
        return f"{name}..."
    return name if one.required else f"[{name}]"


def listed() -> list[Listed]:
    """Every row of the table, by name and opset."""
    return [Listed.of(row) for name in sorted(ROWS) for row in ROWS[name]]


def markdown() -> str:
    """A page for the documentation."""
    lines = [
        "# ONNX operators",
        "",
        f"{len(ROWS)} operators that `bl.load_onnx` reads ([onnx.md](onnx.md)). Made by "
        "`boundlab ops --onnx --markdown`; do not edit.",
        "",
        "Inputs in brackets may be left out. Those with a star must be known when the file is "
        "loaded: they are constants of the file, or follow",
        "from constants and shapes; they may also be attributes, as in older opsets. An operator "
        "that changed its meaning has a row for each.",
        "",
        f"| {' | '.join(COLUMNS)} |",
        "|" + "---|" * len(COLUMNS),
    ]
    lines += [
        f"| `{one.name}` | {one.since} | {one.inputs} | {one.attributes} | `{one.module}` |"
        for one in listed()
    ]
    return "\n".join(lines).replace("*", "\\*") + "\n"


def table() -> Table:
    """The same for a terminal."""
    found = Table(title="ONNX operators (*: known at load)", title_justify="left")
    for name in COLUMNS:
        found.add_column(name, overflow="fold")
    for one in listed():
        found.add_row(one.name, str(one.since), one.inputs, one.attributes, one.module)
    return found


del _rows
