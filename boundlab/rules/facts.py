"""What is known of an operator that is affine in its perturbed arguments, in one row.

Only ``monotone`` is needed for bounds: it says how interval arithmetic goes. All others make
something faster or tighter; one that is missing costs time, one that is wrong costs soundness. So
each is checked numerically for every operator that states it (tests/rules/test_facts.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from boundlab.coefficients.outer import Outer
from boundlab.coefficients.window import Window

if TYPE_CHECKING:
    from boundlab.rules.registry import Call

Transpose = Callable[[Tensor], list[Tensor]]
"""(rows, *shape of the result) -> (rows, *shape) of every perturbed argument."""
WindowTranspose = Callable[[Window], list[Window] | None]
"""The same for coefficients that vanish outside a window; None: it needs dense ones."""
PerSample = Callable[[Tensor], Tensor | Outer]
"""(rows, samples, ...) of the result -> one coefficient a sample, (rows, samples, *shape), of an
argument without a batch."""


@dataclass(frozen=True, eq=False)
class Facts:
    """The facts of one operator, y = J x + c in its perturbed arguments x. Functions of the call
    return None for calls of which they know nothing.

    monotone: J >= 0. linear: c = 0. moves: every row of J is a row of the identity or 0.
    one_to_one: J has one entry in each row and at most one in each column, 1 or -1. reads_once: J
    has at most one entry in each column, always or for some calls. indexed: some arguments are
    indices. overwrites: it writes elements to given places, of which two may be the same. casts: it
    may turn numbers into truth values. constant: c, 0.0 if there is none.
    transpose, window: J^T for dense coefficients and for windows. weight_per_sample,
    bias_per_sample: J^T of a weight or bias, one sample at a time.
    """

    monotone: bool = False
    linear: bool = False
    moves: bool = False
    one_to_one: bool = False
    reads_once: bool | Callable[[Call], bool] = False
    indexed: bool = False
    overwrites: bool | Callable[[Call], bool] = False
    casts: bool = False
    constant: Callable[[Call], Tensor | float | None] | None = None
    transpose: Callable[[Call], Transpose | None] | None = None
    window: Callable[[Call], WindowTranspose | None] | None = None
    weight_per_sample: Callable[[Call, Tensor, torch.Size], PerSample | None] | None = None
    bias_per_sample: PerSample | None = None

    @property
    def stated(self) -> list[str]:
        """The names of the facts that the row states."""
        return [part.name for part in fields(self) if getattr(self, part.name)]

    def constant_of(self, call: Call) -> Tensor | float | None:
        """c for a call: a tensor that broadcasts to the result, 0.0 if there is none, None if
        nothing is known of it."""
        if self.linear:
            return 0.0
        if self.constant is None:
            return None
        return self.constant(call)

    def transpose_of(self, call: Call) -> Transpose | None:
        if self.transpose is None:
            return None
        return self.transpose(call)

    def window_of(self, call: Call) -> WindowTranspose | None:
        if self.window is None:
            return None
        return self.window(call)

    def reads_once_in(self, call: Call) -> bool:
        """Whether the call reads every element of its argument at most once."""
        if isinstance(self.reads_once, bool):
            return self.reads_once
        return self.reads_once(call)

    def overwrites_in(self, call: Call) -> bool:
        """Whether the call may write two elements to one place, of which one stays."""
        return self.overwrites if isinstance(self.overwrites, bool) else self.overwrites(call)


UNKNOWN = Facts()
"""Nothing is known."""
