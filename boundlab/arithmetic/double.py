"""The network that is analysed: in double precision, with the numbers that the executed one reads.

Numbers of a shorter format are numbers of double precision, so weights and inputs stay what they
are. Numbers that a program gives as such are rounded to the format of the tensors when it runs, so
they are rounded to that first. What a normalised vector cannot exceed for exact sums, a rounded one
may exceed by a little.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import Arithmetic, Format
from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError, UnsupportedOperator
from boundlab.graph.graph import Graph, Node
from boundlab.regions import Region
from boundlab.regions.base import with_tensors
from boundlab.rules.registry import aten, within
from boundlab.rules.replaced import nan_to_num_of_inputs

NUMBERS_OF_THE_TYPE = (aten.nan_to_num.default, nan_to_num_of_inputs)
"""Operators that put the largest number of the type where none is given."""
LARGEST_PLACE = 2**63 - 1
"""The end of a slice that has none."""
LIMIT = 1 + 2.0**-8
"""By how much the largest entry of a normalised vector may be rounded."""


def in_double(value: Any) -> Any:
    """A floating-point tensor in double precision, anything else as it is."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value.detach().to(torch.float64)
    return value


def values_in_double(values: Mapping[str, Any], arithmetic: Arithmetic) -> dict[str, Any]:
    """Values of independent nodes in double precision; an error for numbers that the format of the
    executed network does not hold."""
    for name, value in values.items():
        if isinstance(value, Tensor):
            check_format(f"'{name}'", value.dtype, arithmetic)
            check_whole(f"'{name}'", value, arithmetic)
    return {name: in_double(value) for name, value in values.items()}


def regions_in_double(regions: Mapping[str, Region]) -> dict[str, Region]:
    """Regions in double precision, of the same numbers."""
    return {name: with_tensors(region, in_double) for name, region in regions.items()}


def check_format(what: str, dtype: torch.dtype, arithmetic: Arithmetic) -> None:
    """Refuse numbers that the format of the executed network would round."""
    if not dtype.is_floating_point or arithmetic.executed is None:
        return
    if torch.finfo(dtype).bits > torch.finfo(arithmetic.executed.dtype).bits:
        raise ArgumentError(
            f'{what} is of type {dtype}, which a network executed in "{arithmetic.name}" would '
            f"round: convert the model and its inputs first"
        )


def check_whole(what: str, value: Tensor, arithmetic: Arithmetic) -> None:
    """Refuse whole numbers that a number of the format would have to be rounded to."""
    if value.is_floating_point() or value.dtype == torch.bool or not value.numel():
        return
    least, most = torch.aminmax(value)
    if max(-int(least), int(most)) > arithmetic.whole:
        raise UnsupportedOperator(
            f"{what} has whole numbers beyond {arithmetic.whole:.0f}, which are rounded where they "
            f'meet others; arithmetic="{arithmetic.name}" cannot tell where'
        )


def graph_in_double(graph: Graph, arithmetic: Arithmetic) -> Graph:
    """The graph with every type in it replaced by double precision."""
    nodes = {name: _node(node, arithmetic) for name, node in graph.nodes.items()}
    constants = {name: in_double(value) for name, value in graph.constants.items()}
    return replace(graph, nodes=nodes, constants=constants)


def _node(node: Node, arithmetic: Arithmetic) -> Node:
    if node.op is within:
        x, low, high, cancels = node.args
        limit = math.sqrt(max(abs(low), abs(high)) ** 2 + 1) * LIMIT
        if cancels and arithmetic.executed is not None:
            limit = math.inf  # a kernel's mean and variance need not belong to each other
        return replace(node, args=(x, -limit, limit, cancels))
    if node.op in NUMBERS_OF_THE_TYPE and arithmetic.executed is not None:
        node = _with_largest(node, arithmetic.executed)

    def changed(leaf: object) -> object:
        if isinstance(leaf, torch.dtype) and leaf.is_floating_point:
            return _type(node, leaf, arithmetic)
        if isinstance(leaf, float) and arithmetic.executed is not None:
            return float(torch.tensor(leaf, dtype=arithmetic.executed.dtype))
        if type(leaf) is int and arithmetic.whole < abs(leaf) < LARGEST_PLACE:
            raise UnsupportedOperator(
                f"{node}: {leaf} is beyond the whole numbers that arithmetic=... is exact for; "
                "write it as a floating-point number"
            )
        return leaf

    args, kwargs = pytree.tree_map(changed, (node.args, dict(node.kwargs)))
    return replace(node, args=args, kwargs=kwargs)


def _with_largest(node: Node, executed: Format) -> Node:
    """nan_to_num with the numbers of the format that take the place of infinities."""
    names = ("nan", "posinf", "neginf")
    given = dict(zip(names, node.args[1:], strict=False)) | dict(node.kwargs)
    for name, number in (("posinf", executed.largest), ("neginf", -executed.largest)):
        if given.get(name) is None:
            given[name] = number
    return replace(node, args=node.args[:1], kwargs=given)


def _type(node: Node, dtype: torch.dtype, arithmetic: Arithmetic) -> torch.dtype:
    """The type that takes the place of another one; conversions that round are refused."""
    kind = torch.finfo(dtype)
    shortest = torch.float32
    if arithmetic.executed is not None:
        shortest = arithmetic.executed.dtype
    if kind.bits < torch.finfo(shortest).bits or dtype in (torch.float16, torch.bfloat16):
        raise UnsupportedOperator(
            f"{node}: a conversion to {dtype} rounds; arithmetic=... is for networks in one format"
        )
    if arithmetic.executed is not None and dtype != shortest:
        raise UnsupportedOperator(
            f"{node}: a part of the model is executed in {dtype}, not in {arithmetic.name}; "
            "arithmetic=... is for networks in one format"
        )
    return torch.float64
