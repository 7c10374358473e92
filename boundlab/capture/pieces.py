"""Functions of tensors as graphs: what takes the place of one operator in a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from boundlab.compat.private import is_fake, pytree, size_expression
from boundlab.errors import BoundlabError

Function = Callable[..., Any]


class NotPlain(Exception):
    """A program has something else than plain calls, or a function cannot be traced alone."""


class Whole(Exception):
    """A function leaves its operator whole."""


@dataclass(frozen=True, eq=False)
class Piece:
    """A graph that stands for a call: its inputs are the nodes among the arguments, each once."""

    graph: fx.Graph
    constants: Mapping[str, Tensor]


def piece_of(module: fx.GraphModule) -> Piece:
    """A graph with its constants; NotPlain if it holds anything else than tensors."""
    constants = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            value = getattr(module, str(node.target))
            if not isinstance(value, Tensor) or is_fake(value):
                raise NotPlain(f"{node.target} is no tensor with values")
            constants[str(node.target)] = value
    return Piece(module.graph, constants)


def traced(function: Function, args: Any, kwargs: Any, keeping: bool) -> Piece:
    """A function of nodes and numbers. keeping: record the operators that it calls as they are,
    instead of what torch makes of them. Whole if it returns NotImplemented."""
    nodes = nodes_in((args, kwargs))

    def of_nodes(*values: object) -> Any:
        known = dict(zip(nodes, values, strict=True))
        own_args, own_kwargs = mapped((args, kwargs), known)
        result = function(*own_args, **own_kwargs)
        if result is NotImplemented:
            raise Whole
        return result

    try:
        given = [_unstrided(node.meta["val"]) for node in nodes]
        return piece_of(make_fx(of_nodes, pre_dispatch=keeping)(*given))
    except (BoundlabError, NotPlain, Whole):
        raise
    except Exception as error:  # whatever a function raises
        raise NotPlain(f"{function} cannot be traced alone: {error}") from error


def _unstrided(value: Any) -> Any:
    """A tensor of that shape and type which lies in memory in order: functions may look at strides,
    which would leave assumptions on sizes, but what they compute does not depend on them."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided:
        return value
    return torch.empty(value.shape, dtype=value.dtype, device=value.device)


# -- arguments -------------------------------------------------------------------------------------


def mapped(arguments: Any, values: Mapping[fx.Node, Any]) -> Any:
    """Arguments with the values of nodes in their places."""
    return fx.node.map_aggregate(
        arguments, lambda leaf: values[leaf] if isinstance(leaf, fx.Node) else leaf
    )


def nodes_in(arguments: Any) -> list[fx.Node]:
    """The nodes among arguments, each once."""
    leaves = pytree.tree_leaves(arguments)
    return list(dict.fromkeys(leaf for leaf in leaves if isinstance(leaf, fx.Node)))


def kind(arguments: Any) -> object:
    """All of arguments that a traced function may look at: of nodes their shapes and types, and
    which are the same."""
    places = {node: place for place, node in enumerate(nodes_in(arguments))}
    leaves, tree = pytree.tree_flatten(arguments)
    found: list[object] = []
    for leaf in leaves:
        if isinstance(leaf, fx.Node):
            found.append((places[leaf], kind_of_value(leaf.meta["val"])))
        elif isinstance(leaf, (float, complex)):
            found.append(repr(leaf))  # 0.0 and -0.0 are equal
        else:
            found.append((type(leaf), leaf))
    return str(tree), tuple(found)


def kind_of_value(value: Any) -> object:
    """The shape and type of a tensor, or a size; NotPlain for anything else."""
    if isinstance(value, torch.SymInt):
        return size_expression(value)
    if not isinstance(value, Tensor):
        raise NotPlain(f"an argument is {value}")
    sizes = tuple(map(size_expression, value.shape))
    return sizes, value.dtype, value.device, value.layout
