"""Clipping: boxes shrunk to where a counterexample may be.

At a counterexample every row is at most 0, and so is a linear function below it: ``a x + b <= 0``.
With the least value v of a x + b over the box [l, u], coordinate i alone may use up what is left:

    a_i > 0:  x_i <= l_i - v / a_i        a_i < 0:  x_i >= u_i - v / a_i

and where v is positive, no point of the box is a counterexample.
"""

from __future__ import annotations

import torch
from torch import Tensor

PASSES = 3
"""How often the rows of a clause are gone through."""
OUTWARD = 1e-9
"""By how much of its width, and of its ends, a clipped box is left wider than computed."""


def least(a: Tensor, b: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The least values of a x + b over boxes: a (domains, rows, in), b (domains, rows) -> (domains,
    rows)."""
    positive, negative = a.clamp(min=0), a.clamp(max=0)
    found = torch.einsum("dri,di->dr", positive, lower)
    return found + torch.einsum("dri,di->dr", negative, upper) + b


def clip(a: Tensor, b: Tensor, lower: Tensor, upper: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes (domains, in) shrunk by lines a, b below the rows of their clauses; and which are
    empty: (domains,)."""
    room = OUTWARD * (upper - lower + torch.maximum(lower.abs(), upper.abs()))
    first = (lower, upper)
    empty = torch.zeros(len(lower), dtype=torch.bool)
    steep = a.abs() > 0
    for _ in range(PASSES):
        left = -least(a, b, lower, upper)  # (domains, rows)
        left = torch.where(left.isfinite(), left, torch.inf)  # clips nothing
        empty |= (left < 0).any(1)
        step = torch.where(steep, left.clamp(min=0).unsqueeze(2) / a.abs(), torch.inf)
        up = torch.where(a > 0, lower.unsqueeze(1) + step, torch.inf).amin(1)
        low = torch.where(a < 0, upper.unsqueeze(1) - step, -torch.inf).amax(1)
        # nor does NaN, as of infinite slopes
        upper = torch.minimum(upper, (up + room).nan_to_num(torch.inf, torch.inf))
        lower = torch.maximum(lower, (low - room).nan_to_num(-torch.inf, neginf=-torch.inf))
        empty |= (lower > upper).any(1)
        crossed = empty.unsqueeze(1)
        lower, upper = torch.where(crossed, first[0], lower), torch.where(crossed, first[1], upper)
    return lower, upper, empty
