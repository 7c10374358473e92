"""What the registry holds of boundlab itself."""

from __future__ import annotations

from typing import Any

from boundlab.graph.graph import op_name
from boundlab.rules.registry import COMPOSITIONS, RULES


def built_in(op: Any) -> bool:
    """Whether an operator is one of torch's, or a function of boundlab: tests, documents and
    examples register others in the process that runs them."""
    namespace, dot, _ = op_name(op).partition(".")
    return not dot or namespace == "aten"


def built_in_operators() -> list[Any]:
    """All operators that boundlab has a rule or a composition for."""
    return [op for op in (*RULES, *COMPOSITIONS) if built_in(op)]
