"""Steps and signs."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.rules.compositions.arithmetic import as_tensor
from boundlab.rules.registry import aten, composition


@composition(aten.heaviside.default)
def heaviside(x: Tensor, values: Tensor) -> Tensor:
    """0 below 0, 1 above, and the other argument at 0 itself."""
    zero, one = as_tensor(0.0, x), as_tensor(1.0, x)
    return torch.where(x > 0, one, torch.where(x == 0, values, zero))


@composition(aten.copysign.Tensor, aten.copysign.Scalar)
def copysign(x: Tensor, y: Tensor | float) -> Tensor:
    size = x.abs()
    return torch.where(torch.signbit(as_tensor(y, x)), -size, size)
