"""Networks of the table, captured once, and what is asked of them."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from tests.networks import NETWORKS

CPU = torch.device("cpu")


@functools.cache
def captured(name: str, device: torch.device = CPU) -> tuple[nn.Module, bl.Net]:
    """The network and its graph, captured from a batch of 2."""
    case = NETWORKS[name]
    model = case.model().to(device)
    return model, bl.capture(model, *(x.to(device) for x in case.inputs(2)))


_NETS: dict[Hashable, bl.Net] = {}


def net_of(key: Hashable, module: nn.Module, *inputs: Tensor) -> bl.Net:
    """The net of a module, captured once for all modules of the same kind, which ``key`` names:
    parameters are read from the module at every question."""
    if key not in _NETS:
        _NETS[key] = bl.capture(module, *inputs)
    return bl.Net(replace(_NETS[key].captured, source=module))


def bounds_of(value: Any) -> list[bl.Bounds]:
    leaves = pytree.tree_leaves(value, is_leaf=lambda leaf: isinstance(leaf, bl.Bounds))
    return [leaf for leaf in leaves if isinstance(leaf, bl.Bounds)]


def boxes(name: str, batch: int, scale: float = 1.0) -> tuple[bl.Linf, ...]:
    case = NETWORKS[name]
    return tuple(bl.Linf(x, scale * case.eps) for x in case.inputs(batch, seed=5))


def tensors_of(value: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, Tensor)]
