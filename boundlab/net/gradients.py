"""Whether results carry gradients.

A net that was captured in train mode answers with gradients, as a model does. One that was captured
in eval mode answers without: to verify, nobody needs them, and what autograd keeps for them costs
more memory than the bounds. Where something that is given requires gradients, the centre of a
region, a radius, an input, they are kept in both. ``grad=True`` and ``grad=False`` say it outright,
and under ``torch.no_grad()`` there are none. Losses keep them always.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from boundlab.compat.private import pytree
from boundlab.net.captured import Captured
from boundlab.regions import Region


def kept(grad: bool | None, captured: Captured, *given: Any) -> torch.set_grad_enabled:
    """A context in which gradients are kept if they are asked for. given: what a question gives, in
    any structure."""
    if grad is None:
        grad = captured.training or any(map(_requires, pytree.tree_leaves(given)))
    return torch.set_grad_enabled(grad and torch.is_grad_enabled())


def _requires(leaf: object) -> bool:
    """Whether something that is given requires gradients: a tensor, or one that a region holds."""
    if isinstance(leaf, Region):
        return any(map(_requires, pytree.tree_leaves(list(vars(leaf).values()))))
    return isinstance(leaf, Tensor) and leaf.requires_grad
