"""What the registry holds of boundlab itself."""

from __future__ import annotations

from typing import Any

from boundlab.graph.graph import op_name
from boundlab.rules.registry import COMPOSITIONS, RULES

OTHERS = ("docs", "readme", "examples")
"""Namespaces of the operators that documents and examples register in the process that runs
them."""


def built_in(op: Any) -> bool:
    """Whether an operator is none of a document or example."""
    return op_name(op).partition(".")[0] not in OTHERS


def built_in_operators() -> list[Any]:
    """All operators that boundlab has a rule or a composition for."""
    return [op for op in (*RULES, *COMPOSITIONS) if built_in(op)]
