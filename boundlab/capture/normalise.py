"""Operators whose meaning hangs on the shape or the type of their argument, written so that it does
not: a squeeze with its dimensions, casts that round under names of their own, products of many
operands as products of two, and nan_to_num by what its argument is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import sympy

from boundlab.capture.einsum import in_pairs
from boundlab.capture.values import Values
from boundlab.graph.graph import Node, Ref
from boundlab.rules.casts import cut_off, keeps_values, rounded, rounded_in_place
from boundlab.rules.registry import RULES, aten
from boundlab.rules.replaced import nan_to_num_of_inputs

SQUEEZES = (aten.squeeze.default, aten.squeeze.dim, aten.squeeze.dims)
SUMS = (
    aten.sum.dim_IntList,
    aten.sum.default,
    aten.mean.dim,
    aten.mean.default,
    aten.cumsum.default,
)
CASTS = (aten._to_copy, aten.to, aten.type_as)


def normalise(node: Node, nodes: Mapping[str, Node], values: Values) -> list[Node]:
    """The nodes that take the place of one, itself last. nodes: those before it."""
    if node.op in SQUEEZES:
        return [_with_dimensions(node, values)]
    if node.op in SUMS:
        return _summed_as(node, nodes, values)
    if node.packet in CASTS:
        return [_cast(node, nodes, values)]
    if node.op is aten.einsum.default:
        return in_pairs(node, values)
    if node.op is aten.nan_to_num.default and _hides_no_infinity(node.inputs[0], nodes):
        return [replace(node, op=nan_to_num_of_inputs)]
    return [node]


def _hides_no_infinity(name: str, nodes: Mapping[str, Node]) -> bool:
    """Whether a node is made from the inputs by sums and products with fixed factors alone, none of
    which makes finite ends of infinite ones."""
    node = nodes[name]
    if node.op is None:
        return True
    rule = RULES.get(node.op) or RULES.get(node.packet)
    if rule is None or rule.kind not in ("affine", "bilinear"):
        return False
    made = [one for one in node.inputs if nodes[one].op is not None]
    if rule.kind == "bilinear" and len(made) > 1:
        return False
    return all(_hides_no_infinity(one, nodes) for one in made)


def _with_dimensions(node: Node, values: Values) -> Node:
    """A squeeze with its dimensions written out: whether it drops a free one too depends on the
    batch size, and is assumed not to."""
    source, *given = node.args
    shape = values.shapes[source.name]
    dims = given[0] if given else range(len(shape))
    if isinstance(dims, int):
        dims = [dims]
    if not shape:
        return replace(node, op=aten.squeeze.dims, args=(source, []))
    sizes = {dim % len(shape): shape[dim] for dim in dims}
    values.assumptions.extend(sympy.Ne(size, 1) for size in sizes.values() if size.free_symbols)
    ones = [dim for dim, size in sizes.items() if size == 1]
    return replace(node, op=aten.squeeze.dims, args=(source, ones))


def _summed_as(node: Node, nodes: Mapping[str, Node], values: Values) -> list[Node]:
    """A sum of values that are converted first, as a cast and a plain sum."""
    source = node.args[0]
    dtype = node.kwargs.get("dtype")
    if dtype is None or dtype == values.dtypes[source.name]:
        return [node]
    name = f"{node.name}_of"
    values.note_tensor(name, values.shapes[source.name], dtype)
    cast = Node(name, aten._to_copy.default, (source,), {"dtype": dtype}, origin=node.origin)
    kwargs = {key: value for key, value in node.kwargs.items() if key != "dtype"}
    total = replace(node, args=(Ref(name), *node.args[1:]), kwargs=kwargs)
    return [_cast(cast, nodes, values), total]


def _cast(node: Node, nodes: Mapping[str, Node], values: Values) -> Node:
    """A cast that rounds or cuts off under a name of its own; one that goes back at once where it
    came from as one step."""
    source = node.args[0]
    target = values.dtypes[node.name]
    if not isinstance(source, Ref):  # torch.vmap casts numbers as well
        return replace(node, op=aten.scalar_tensor.default, kwargs={"dtype": target})
    dtype = values.dtypes[source.name]
    where = {key: value for key, value in node.kwargs.items() if key == "device"}
    if not keeps_values(dtype, target):
        op = rounded if target.is_floating_point or target.is_complex else cut_off
        return replace(node, op=op, args=(source,), kwargs={"dtype": target, **where})
    before = nodes[source.name]
    if before.op is not rounded or where or before.kwargs.keys() != {"dtype"}:
        return node
    if values.dtypes[before.args[0].name] != target:
        return node
    return replace(node, op=rounded_in_place, args=before.args, kwargs={"dtype": dtype})
