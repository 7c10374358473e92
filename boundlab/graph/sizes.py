"""For which batch sizes a captured graph computes what the model does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import sympy

BATCH = sympy.Symbol("batch", integer=True)


@dataclass(frozen=True, eq=False)
class Sizes:
    """What the front end assumed of free sizes when it followed one path through the model's code.

    symbols: input -> the symbol of its free dimension 0. assumptions: relations between these
    symbols (sympy). numbers: node that is an integer made from shapes -> its expression.
    """

    symbols: Mapping[str, sympy.Symbol] = field(default_factory=dict)
    assumptions: tuple[sympy.Basic, ...] = ()
    numbers: Mapping[str, sympy.Expr] = field(default_factory=dict)

    def _values(self, batch: Mapping[str, int]) -> dict[sympy.Symbol, int]:
        return {self.symbols[name]: size for name, size in batch.items() if name in self.symbols}

    def known(self, batch: Mapping[str, int]) -> dict[str, int]:
        """The integers made from shapes, as far as the sizes of inputs decide them."""
        values = self._values(batch)
        found = {name: expression.subs(values) for name, expression in self.numbers.items()}
        return {name: int(number) for name, number in found.items() if number.is_Integer}

    def broken(self, batch: Mapping[str, int]) -> str | None:
        """The first assumption that does not surely hold for the given sizes of inputs, in words;
        None if all hold."""
        values = self._values(batch)
        for relation in self.assumptions:
            if relation.subs(values) != sympy.true:  # false, or not decided
                return str(relation.subs(dict.fromkeys(self.symbols.values(), BATCH)))
        return None
