"""Gradients that lead out of dead regions.

Where a ReLU is off, its gradient says nothing of how it could be turned on. In some rounds of an
attack a part of the gradient goes through such ReLUs all the same: outputs stay those of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

SHARE = 0.1
"""How much of the gradient goes through a ReLU that is off."""
RELUS = (torch.relu, torch.relu_, F.relu, Tensor.relu, Tensor.relu_)


def _leaky(x: Tensor) -> Tensor:
    """The ReLU, with the gradient of a leaky one: what is added is 0."""
    off = x.clamp(max=0)
    return x.clamp(min=0) + SHARE * (off - off.detach())


class LeakyGradients(TorchFunctionMode):
    """Within it, ReLUs have leaky gradients."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in RELUS and isinstance(args[0], Tensor):
            return _leaky(args[0])
        return func(*args, **(kwargs or {}))
