"""``boundlab ops``: the table of supported operators, read from the registry; with ``--onnx`` that
of the ONNX operators."""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, fields, is_dataclass

from rich.console import Console
from rich.table import Table

from boundlab.capture.decompose import RECURRENT
from boundlab.commands import onnx_operators
from boundlab.commands.speaking import write_json
from boundlab.graph.graph import op_name
from boundlab.rules.facts import Facts
from boundlab.rules.registry import COMPOSITIONS, RULES, Rule

KINDS = {
    "affine": "affine in its perturbed arguments: exact in every method",
    "bilinear": "a product: affine where one factor is perturbed, McCormick planes where both are",
    "elementwise": "a function of one number: tangents and chords of its curve",
    "relaxed": "a relaxation of its own",
    "logic": "comparisons and choices",
    "lookup": "what an index picks: affine for a constant one, else the hull of what is in reach",
    "composition": "expressed by other operators when a model is captured",
}


@dataclass(frozen=True, order=True)
class Supported:
    """An operator by its public name, how it is treated, the module that says so, and the facts
    that its row states."""

    name: str
    kind: str
    module: str
    facts: tuple[str, ...] = ()


def supported() -> list[Supported]:
    """Every operator with a rule or a composition, once for all its overloads that are treated
    alike, by name."""
    # others are our own
    found = {
        Supported(op_name(op), rule.kind, _declared(rule), tuple(rule.facts.stated))
        for op, rule in RULES.items()
        if "." in op_name(op)
    }
    found |= {
        Supported(op_name(op), "composition", str(function.__module__))
        for op, function in COMPOSITIONS.items()
    }
    found |= {Supported(op_name(op), "composition", "torch") for op in RECURRENT}
    return sorted(found)


def _declared(rule: Rule) -> str:
    """The module of the functions that a rule is made of, or of its class."""
    # functions of those only name indices and signs
    if rule.kind not in ("bilinear", "lookup") and is_dataclass(rule):
        for field in fields(rule):
            part = getattr(rule, field.name)
            if callable(part) and hasattr(part, "__module__"):
                return str(part.__module__)
    return type(rule).__module__


def _facts(rows: list[Supported]) -> list[str]:
    """A table with one column for each fact (:class:`boundlab.rules.facts.Facts`)."""
    names = [part.name for part in fields(Facts)]
    lines = [
        "",
        "## Facts",
        "",
        "What is known of an operator y = J x + c where it is affine, each checked numerically by "
        "`tests/rules/test_facts.py`.",
        "`boundlab/rules/facts.py` says what each means.",
        "",
        "| operator | " + " | ".join(name.replace("_", " ") for name in names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for row in rows:
        marks = ["x" if name in row.facts else "" for name in names]
        lines.append(f"| {row.name} | " + " | ".join(marks) + " |")
    return lines


def markdown() -> str:
    """A page for the documentation."""
    rows = supported()
    kinds = [kind for kind in KINDS if any(row.kind == kind for row in rows)]
    kinds += sorted({row.kind for row in rows} - set(KINDS))
    lines = [
        "# Supported operators",
        "",
        f"{len({row.name for row in rows})} operators. Made by `boundlab ops --markdown`; do not "
        "edit.",
        "",
    ]
    lines += ["| kind | meaning | operators |", "|---|---|---|"]
    lines += [
        (f"| {kind} | {KINDS.get(kind, '')} | {sum(row.kind == kind for row in rows)} |")
        for kind in kinds
    ]
    lines += ["", "| operator | kind | declared in |", "|---|---|---|"]
    lines += [f"| `{row.name}` | {row.kind} | `{row.module}` |" for row in rows]
    lines += _facts([row for row in rows if row.facts])
    return "\n".join(lines) + "\n"


def ops(options: argparse.Namespace) -> None:
    """List operators."""
    if options.markdown:
        print(onnx_operators.markdown() if options.onnx else markdown(), end="")
        return
    rows = onnx_operators.listed() if options.onnx else supported()
    if options.json is None:
        Console(quiet=options.quiet).print(onnx_operators.table() if options.onnx else _table())
    write_json(options, {"operators": [asdict(row) for row in rows]})


def _table() -> Table:
    table = Table(title="Supported operators", title_justify="left")
    for name in ("operator", "kind", "declared in", "facts"):
        table.add_column(name, overflow="fold")
    for op in supported():
        facts = ", ".join(fact.replace("_", " ") for fact in op.facts)
        table.add_row(op.name, op.kind, op.module, facts)
    return table
