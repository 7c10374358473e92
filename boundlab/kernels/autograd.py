"""What the steps with gradients written out share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

Context = Any
"""What autograd hands to ``setup_context`` and ``backward`` of a function: its own class, which
takes whatever attributes a function leaves on it and states the type of none."""


def step_of(
    function: type[torch.autograd.Function], *inputs: Tensor | bool
) -> tuple[Tensor, Tensor]:
    """Two results of a function; without gradients of its ``forward`` itself, which spares
    autograd's bookkeeping."""
    if torch.is_grad_enabled():
        return function.apply(*inputs)
    return function.forward(*inputs)
