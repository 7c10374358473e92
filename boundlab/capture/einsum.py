"""einsum, written so that no node has more than two operands, nor dots: what ``...`` stands for
gets letters, and the operands are taken in from the left, one after the other."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace

import sympy

from boundlab.capture.values import Values
from boundlab.graph.graph import Node, Ref

DOTS = "..."


def in_pairs(node: Node, values: Values) -> list[Node]:
    """The nodes that take the place of an einsum, itself last; the einsum as it is where an operand
    has an index twice, or dimensions of one letter differ."""
    equation, operands = node.args[0].replace(" ", ""), node.args[1]
    if len(operands) < 3 and DOTS not in equation:
        return [node]
    shapes = [values.shapes[operand.name] for operand in operands]
    terms, result = _without_dots(equation, [len(shape) for shape in shapes])
    sizes = _sizes(terms, shapes)
    if sizes is None or any(len(set(term)) < len(term) for term in terms):
        return [node]
    found: list[Node] = []
    term, operand = terms[0], operands[0]
    for i in range(1, len(terms) - 1):
        later = "".join([result, *terms[i + 1 :]])
        kept = "".join(letter for letter in dict.fromkeys(term + terms[i]) if letter in later)
        name = f"{node.name}_of_{i}"
        values.note_tensor(name, [sizes[letter] for letter in kept], values.dtypes[node.name])
        both = (f"{term},{terms[i]}->{kept}", [operand, operands[i]])
        found.append(Node(name, node.op, both, origin=node.origin))
        term, operand = kept, Ref(name)
    if len(terms) == 1:
        last = (f"{term}->{result}", [operand])
    else:
        last = (f"{term},{terms[-1]}->{result}", [operand, operands[-1]])
    return [*found, replace(node, args=last, kwargs={})]


def _without_dots(equation: str, dims: Sequence[int]) -> tuple[list[str], str]:
    """The letters of each operand, which has so many dimensions, and those of the result."""
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    free = [letter for letter in string.ascii_letters if letter not in equation]
    hidden = [
        count - len(term.replace(DOTS, "")) if DOTS in term else 0
        for term, count in zip(terms, dims, strict=True)
    ]
    dots = "".join(free[: max(hidden)])  # aligned at their last dimensions
    terms = [
        term.replace(DOTS, dots[len(dots) - count :])
        for term, count in zip(terms, hidden, strict=True)
    ]
    if arrow:
        return terms, result.replace(DOTS, dots)
    every = "".join(terms)
    once = sorted(c for c in set(every) if every.count(c) == 1 and c not in dots)
    return terms, dots + "".join(once)


def _sizes(
    terms: Sequence[str], shapes: Sequence[Sequence[sympy.Expr]]
) -> dict[str, sympy.Expr] | None:
    """The size of each letter; None if operands do not agree on one."""
    sizes: dict[str, sympy.Expr] = {}
    for term, shape in zip(terms, shapes, strict=True):
        for letter, size in zip(term, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                return None
    return sizes
