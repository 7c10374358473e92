"""The operators that the soundness tests attack: name -> a small model, its input shape and the
range of its inputs.

An entry of a table is a module, a function of x, or a tuple (function of x and constants,
constants); a constant is a tensor, or the shape of a random one. Constants become buffers, so that
a case can be asked in any dtype.
"""

from __future__ import annotations

import torch

from tests.operator_cases import (
    elementwise,
    linear,
    lookups,
    maps,
    orders,
    pairs,
    reductions,
    seldom,
    several,
    special,
)
from tests.operator_cases.case import BATCH, CASES, ELEMENTWISE, Applied, OperatorCase

__all__ = ["BATCH", "CASES", "ELEMENTWISE", "Applied", "OperatorCase"]

with torch.random.fork_rng():
    torch.manual_seed(0)
    for module in (
        linear, elementwise, pairs, reductions, seldom, lookups, several, special, orders, maps
    ):  # fmt: skip
        module.fill()
