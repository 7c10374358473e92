"""The same question on the host and on a second device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import boundlab as bl
from tests.second_device import DEVICE, HOST

Ask = Callable[[torch.device], Any]


def labels(batch: int, device: torch.device) -> Tensor:
    return (torch.arange(batch) % 2).to(device)


def tensors(found: Any) -> list[Tensor]:
    ends = lambda leaf: [leaf.lower, leaf.upper] if isinstance(leaf, bl.Bounds) else [leaf]
    leaves = pytree.tree_leaves(found, is_leaf=lambda leaf: isinstance(leaf, bl.Bounds))
    return [tensor for leaf in leaves for tensor in ends(leaf) if isinstance(tensor, Tensor)]


def check(ask: Ask, within: float = 1e-4) -> None:
    """The same numbers, on the device."""
    expected, found = tensors(ask(HOST)), tensors(ask(DEVICE))
    assert expected and all(tensor.device == DEVICE for tensor in found)
    for one, other in zip(expected, found, strict=True):
        torch.testing.assert_close(
            other.detach().cpu(), one.detach(), rtol=within, atol=within, equal_nan=True
        )


def with_gradients(net: bl.Net, loss: Tensor) -> list[Tensor]:
    names, parameters = zip(*net.parameters().items(), strict=True)
    return [
        loss,
        *torch.autograd.grad(loss.sum(), parameters, allow_unused=True, materialize_grads=True),
    ]


def slowly(*names: str) -> list[Any]:
    """The first one in the quick run, all with ``slow``."""
    return [
        pytest.param(name, marks=() if name == names[0] else pytest.mark.slow) for name in names
    ]
