"""The cases, captured many at once, and the sets that they are attacked in."""

from __future__ import annotations

import copy
import functools
import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from boundlab.graph.graph import Ref
from tests.operator_cases import BATCH, CASES, OperatorCase

DTYPES = (torch.float32, torch.float64)


RADII = (1e-3, 0.3, 2.0)


dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def _groups() -> dict[str, tuple[str, ...]]:
    """Name of a case -> the names of all that are captured together with it."""

    def key(name: str) -> tuple[Any, ...]:
        case = CASES[name]
        return case.shape, case.low, case.high, case.batched, name if case.alone else ""

    alike = [tuple(names) for _, names in itertools.groupby(sorted(CASES, key=key), key)]
    groups = [names[start : start + 40] for names in alike for start in range(0, len(names), 40)]
    return {name: names for names in groups for name in names}


GROUPS = _groups()


every_case = pytest.mark.parametrize("name", GROUPS)  # neighbours share a capture


# -- capturing many cases at once ------------------------------------------------------------------


class Bundle(nn.Module):
    """Several cases with the same input as one model: capturing it once is much faster than
    capturing each."""

    def __init__(self, names: tuple[str, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.names = names
        self.models = nn.ModuleList(copy.deepcopy(CASES[name].model).to(dtype) for name in names)

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {name: model(x) for name, model in zip(self.names, self.models, strict=True)}


ModelAndNet = tuple[nn.Module, bl.Net]


def model_and_net(name: str, dtype: torch.dtype) -> ModelAndNet:
    found = _together(GROUPS[name], dtype)[name]
    if isinstance(found, Exception):
        raise found
    return found


@functools.cache
def _together(names: tuple[str, ...], dtype: torch.dtype) -> dict[str, ModelAndNet | Exception]:
    """Each case and its net; if one of them cannot be captured, the halves are tried."""
    bundle = Bundle(names, dtype)
    try:
        case = CASES[names[0]]
        net = bl.capture(bundle, centre(case, dtype), batched=None if case.batched else False)
    except Exception as error:  # whatever it is, it belongs to one case
        if len(names) == 1:
            return {names[0]: error}
        middle = len(names) // 2
        return _together(names[:middle], dtype) | _together(names[middle:], dtype)
    return {
        name: (model, _only(net, name)) for name, model in zip(names, bundle.models, strict=True)
    }


def _only(net: bl.Net, name: str) -> bl.Net:
    """The part of a bundle's net that computes one of its cases."""
    graph = net.graph
    structured = pytree.tree_unflatten(graph.outputs, net.captured.outputs)
    outputs, tree = pytree.tree_flatten(structured[name])
    needed = graph.ancestors(
        tuple(output.name for output in outputs if isinstance(output, Ref))
    ) | set(graph.inputs)
    keep = lambda table: {key: value for key, value in table.items() if key in needed}
    part = replace(
        graph,
        nodes=keep(graph.nodes),
        parameters=keep(graph.parameters),
        constants=keep(graph.constants),
        outputs=tuple(outputs),
    )
    return bl.Net(replace(net.captured, graph=part, outputs=tree))


# -- regions ---------------------------------------------------------------------------------------


def centre(case: OperatorCase, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Samples near zero and away from it, in turn, inside the range of the case."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, *case.shape, generator=generator, dtype=torch.float64)
    x = x if case.batched else x[0]
    near = (torch.arange(len(x)) % 2 == 0).reshape(-1, *[1] * (x.dim() - 1))
    return torch.where(near, 0.2 * x, 1.5 * x + 2 * x.sign()).clamp(case.low, case.high).to(dtype)


def valid_range(case: OperatorCase) -> tuple[float | None, float | None]:
    return (None if case.low == -torch.inf else case.low), (
        None if case.high == torch.inf else case.high
    )


def radii(case: OperatorCase, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """One per sample: every radius for samples near zero and away from it."""
    eps = torch.tensor(RADII, dtype=dtype)[torch.arange(BATCH) // 2 % len(RADII)]
    return scale * (eps if case.batched else eps[2])


def region(case: OperatorCase, dtype: torch.dtype, seed: int = 0, scale: float = 1.0) -> bl.Region:
    return bl.Linf(centre(case, dtype, seed), radii(case, dtype, scale), *valid_range(case))


def ball(kind: str, case: OperatorCase, dtype: torch.dtype, seed: int = 0) -> bl.Region:
    """Another set of the same size."""
    x, eps, ends = centre(case, dtype, seed), radii(case, dtype), valid_range(case)
    some = torch.arange(x.numel()).reshape(x.shape) % 3 == 0
    wide = eps.reshape(-1, *[1] * (x.dim() - 1)).expand(x.shape)
    if kind == "L0":
        return bl.L0(x, 2, max(case.low, -1.5), min(case.high, 1.5))
    if kind == "box":  # lopsided, every third element fixed
        box = bl.Linf(x, torch.where(some, 0, wide), *ends).hull()
        return bl.Box(torch.where(some, box.lower, (x + 2 * box.lower) / 3), box.upper)
    return {
        "L2": lambda: bl.L2(x, 2 * eps, *ends),
        "L1": lambda: bl.L1(x, 3 * eps, *ends),
        "L3": lambda: bl.Lp(x, 3.0, 2 * eps, *ends),
        "part": lambda: bl.Linf(x, torch.where(some, wide, 0), *ends),
        "L2, part": lambda: bl.L2(x, torch.where(some, wide, 0), *ends),
    }[kind]()


KINDS = ("L2", "L1", "L3", "L0", "box", "part", "L2, part")


SOME = (
    "linear", "conv2d, dilated depthwise", "batch_norm 2d", "avg_pool2d, count_include_pad",
    "pad, constant", "repeat", "gather",
    "constant with the batch dimension, added", "relu", "leaky_relu, -0.5", "gelu", "tanh",
    "pow, 4", "log", "sin", "mul, two variables", "maximum",
    "div, two variables", "matmul, two variables", "max_pool2d, padding", "softmax", "layer_norm",
    "attention", "comparison, where", "experts", "index, with neighbours",
)  # fmt: skip
"""Cases that are attacked under every norm in the ordinary run."""
