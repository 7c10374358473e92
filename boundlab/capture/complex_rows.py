"""How operators act on complex numbers: a row for each that ``complex_pairs.py`` can write with
real numbers.

Most rows follow from what is linear. An operator that is linear in its values together (a sum, a
selection) acts on real parts and on imaginary parts alone. One that is linear in each of several
factors (a product) is a sum over all choices of one part of each factor, where k imaginary ones
bring i^k.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx

from boundlab.capture.complex_writer import Pair, Part, Writer, is_complex
from boundlab.compat.private import OpOverload
from boundlab.errors import UnsupportedOperator
from boundlab.rules.registry import aten

Row = Callable[[Writer, fx.Node], Pair | fx.Node]
"""Writes a node again: as a pair, or as a real node if its value is real."""
ROWS: dict[object, Row] = {}
"""By operator, for all of its overloads."""


def row(*ops: object) -> Callable[[Row], Row]:
    """Decorator: the row of operators."""

    def decorate(function: Row) -> Row:
        for op in ops:
            assert op not in ROWS, op
            ROWS[op] = function
        return function

    return decorate


def find_row(node: fx.Node) -> Row | None:
    """The row of a node's operator, None if it has none."""
    op: object = node.target
    if isinstance(op, OpOverload):
        op = op.overloadpacket
    return ROWS.get(op)


# -- linear in all values together -----------------------------------------------------------------


def linear_in(*names: str) -> Row:
    """The row of an operator that is linear in the arguments of these names together."""

    def write(writer: Writer, node: fx.Node) -> Pair:
        given = {name: writer.argument(node, name) for name in names}
        pairs = {name: _pairs(writer, value) for name, value in given.items()}
        parts = [_of_part(writer, node, pairs, place) for place in (0, 1)]
        return Pair(*parts)

    return write


Pairs = Pair | list[Pair]


def _pairs(writer: Writer, value: Any) -> Pairs:
    if isinstance(value, (list, tuple)):
        return [writer.pair(part) for part in value]
    return writer.pair(value)


def _of_part(writer: Writer, node: fx.Node, pairs: dict[str, Pairs], place: int) -> Part:
    """The operator of the real (place 0) or imaginary (1) parts; nothing where all are 0."""
    leaves = [pair for value in pairs.values() for pair in _as_list(value)]
    if all(_vanishes(pair.parts[place]) for pair in leaves):
        return None
    chosen = {name: _chosen(writer, value, place) for name, value in pairs.items()}
    return writer.again(node, chosen)


def _as_list(value: Pairs) -> list[Pair]:
    return value if isinstance(value, list) else [value]


def _vanishes(part: Part) -> bool:
    return part is None or (not isinstance(part, fx.Node) and part == 0)


def _chosen(writer: Writer, value: Pairs, place: int) -> Any:
    if isinstance(value, list):
        return [_chosen(writer, pair, place) for pair in value]
    if any(isinstance(part, fx.Node) for part in value.parts):
        return writer.nodes_of(value)[place]
    return value.parts[place] or 0


row(
    aten.view, aten.reshape, aten._unsafe_view, aten.flatten, aten.unflatten, aten.squeeze,
    aten.unsqueeze, aten.permute, aten.transpose, aten.t, aten.movedim, aten.swapaxes, aten.numpy_T,
    aten.mT, aten.select, aten.slice, aten.narrow, aten.split, aten.split_with_sizes, aten.chunk,
    aten.unbind, aten.expand, aten.repeat, aten.repeat_interleave, aten.tile, aten.unfold,
    aten.flip, aten.roll, aten.rot90, aten.index, aten.index_select, aten.gather, aten.diagonal,
    aten.tril, aten.triu, aten.clone, aten.contiguous, aten.alias, aten.detach,
    aten.lift_fresh_copy, aten.neg, aten.sum, aten.mean, aten.cumsum, aten.diag_embed,
)(linear_in("self"))  # fmt: skip
row(aten.constant_pad_nd)(linear_in("self", "value"))


@row(aten.pad)
def _pad(writer: Writer, node: fx.Node) -> Pair | fx.Node:
    """With a number, or with elements of the value itself."""
    if writer.argument(node, "mode") != "constant":
        return linear_in("self")(writer, node)
    x, widths = writer.pair(node.args[0]), writer.argument(node, "pad")
    number = writer.pair(writer.argument(node, "value") or 0)
    parts = zip(writer.nodes_of(x), number.parts, strict=True)
    op = aten.constant_pad_nd.default
    return Pair(*[writer.call_like(node, op, part, widths, v or 0) for part, v in parts])


row(aten.cat, aten.stack)(linear_in("tensors"))
row(aten.add, aten.sub, aten.rsub, aten.where)(linear_in("self", "other"))
row(aten.index_put)(linear_in("self", "values"))


@row(aten.masked_fill)
def _masked_fill(writer: Writer, node: fx.Node) -> Pair:
    x, mask, value = node.args
    op = aten.where.self if isinstance(value, fx.Node) else aten.where.ScalarSelf
    filled = _chosen(writer, writer.pair(value), 0), _chosen(writer, writer.pair(value), 1)
    parts = zip(filled, writer.nodes_of(writer.pair(x)), strict=True)
    return Pair(*[writer.call(op, mask, v, part) for v, part in parts])


@row(operator.getitem)
def _item(writer: Writer, node: fx.Node) -> Pair:
    several, index = node.args
    pair = writer.pair(several)
    return Pair(*[writer.apply(operator.getitem, part, index) for part in pair.parts])


# -- linear in each of several factors -------------------------------------------------------------


def product_of(*names: str, bias: str | None = None) -> Row:
    """The row of an operator that is linear in each of the arguments of these names, or in each
    element of them if they are lists. bias: the argument that is added to every channel."""

    def write(writer: Writer, node: fx.Node) -> Pair:
        pairs = {name: _pairs(writer, writer.argument(node, name)) for name in names}
        factors = [pair for value in pairs.values() for pair in _as_list(value)]
        terms: tuple[list[tuple[int, Part]], ...] = ([], [])
        for choice in itertools.product((0, 1), repeat=len(factors)):
            chosen = [pair.parts[place] for pair, place in zip(factors, choice, strict=True)]
            if any(map(_vanishes, chosen)):
                continue
            changed = _regrouped(pairs, chosen)
            if bias is not None:
                changed[bias] = None
            count = sum(choice)  # i^count is 1, i, -1, -i
            terms[count % 2].append((1 - 2 * (count // 2 % 2), writer.again(node, changed)))
        if bias is not None:
            for part, added in zip(terms, _bias(writer, node, bias), strict=True):
                part.append((1, added))
        return Pair(*[writer.total(*part) for part in terms])

    return write


def _bias(writer: Writer, node: fx.Node, name: str) -> tuple[Part, Part]:
    """A bias, (channels,), in a shape that can be added: a weight has two dimensions more than
    there are behind the channels."""
    bias = writer.argument(node, name)
    if bias is None:
        return None, None
    behind = writer.argument(node, "weight").meta["val"].dim() - 2
    shape = [-1] + [1] * behind
    real, imag = (
        writer.apply(aten.reshape.default, part, shape) for part in writer.pair(bias).parts
    )
    return real, imag


def _regrouped(pairs: dict[str, Pairs], chosen: Sequence[Part]) -> dict[str, Any]:
    """The chosen parts as arguments, in lists where there were lists."""
    parts = iter(chosen)
    found: dict[str, Any] = {}
    for name, value in pairs.items():
        taken = [next(parts) for _ in _as_list(value)]
        found[name] = taken if isinstance(value, list) else taken[0]
    return found


row(aten.matmul, aten.dot)(product_of("self", "other"))
row(aten.mm, aten.bmm)(product_of("self", "mat2"))
row(aten.mv)(product_of("self", "vec"))
row(aten.einsum)(product_of("tensors"))
row(
    aten.linear, aten.conv1d, aten.conv2d, aten.conv3d, aten.conv_transpose1d,
    aten.conv_transpose2d, aten.conv_transpose3d,
)(product_of("input", "weight", bias="bias"))  # fmt: skip


@row(aten.mul)
def _mul(writer: Writer, node: fx.Node) -> Pair:
    x, y = (writer.pair(value) for value in node.args)
    return writer.times(x, y)


@row(aten.square)
def _square(writer: Writer, node: fx.Node) -> Pair:
    z = writer.pair(node.args[0])
    return writer.times(z, z)


@row(aten.pow)
def _pow(writer: Writer, node: fx.Node) -> Pair:
    base, exponent = node.args
    if exponent != 2:
        raise UnsupportedOperator(f"{node.target}: only squares of complex numbers have a row")
    z = writer.pair(base)
    return writer.times(z, z)


@row(aten.div)
def _div(writer: Writer, node: fx.Node) -> Pair:
    x, y = node.args
    if isinstance(y, fx.Node):
        return writer.times(writer.pair(x), _reciprocal(writer, writer.pair(y)))
    return writer.times(writer.pair(x), writer.pair(1 / y))  # type: ignore[operator]


@row(aten.reciprocal)
def _one_over(writer: Writer, node: fx.Node) -> Pair:
    return _reciprocal(writer, writer.pair(node.args[0]))


def _reciprocal(writer: Writer, z: Pair) -> Pair:
    """1 / z is the conjugate of z, over |z|^2."""
    if z.imag is None:
        return Pair(writer.apply(aten.reciprocal.default, z.real))
    squares = [(1, writer.apply(aten.pow.Tensor_Scalar, part, 2)) for part in z.parts]
    size = writer.apply(aten.reciprocal.default, writer.total(*squares))
    conjugate = Pair(z.real, writer.apply(aten.neg.default, z.imag))
    return writer.times(conjugate, Pair(size))


# -- parts and polar coordinates -------------------------------------------------------------------


@row(aten.view_as_complex)
def _view_as_complex(writer: Writer, node: fx.Node) -> Pair:
    x = node.args[0]
    return Pair(*[writer.call(aten.select.int, x, -1, index) for index in (0, 1)])


@row(aten.view_as_real)
def _view_as_real(writer: Writer, node: fx.Node) -> fx.Node:
    pair = writer.pair(node.args[0])
    both = writer.call(aten.stack.default, list(writer.nodes_of(pair)), -1)
    writer.stacks[both] = pair
    return both


@row(aten.complex)
def _complex(writer: Writer, node: fx.Node) -> Pair:
    real, imag = writer.argument(node, "real"), writer.argument(node, "imag")
    if real.meta["val"].shape == imag.meta["val"].shape:
        return Pair(real, imag)
    # to the shape of both
    zeros = [writer.call(aten.zeros_like.default, part) for part in (imag, real)]
    both = zip((real, imag), zeros, strict=True)
    return Pair(*[writer.call(aten.add.Tensor, part, zero) for part, zero in both])


@row(aten.polar)
def _polar(writer: Writer, node: fx.Node) -> Pair:
    length, angle = writer.argument(node, "abs"), writer.argument(node, "angle")
    turned = [writer.call(op, angle) for op in (aten.cos.default, aten.sin.default)]
    return Pair(*[writer.call(aten.mul.Tensor, length, part) for part in turned])


@row(aten.exp)
def _exp(writer: Writer, node: fx.Node) -> Pair:
    real, imag = writer.nodes_of(writer.pair(node.args[0]))
    length = writer.call(aten.exp.default, real)
    turned = [writer.call(op, imag) for op in (aten.cos.default, aten.sin.default)]
    return Pair(*[writer.call(aten.mul.Tensor, length, part) for part in turned])


@row(aten.real)
def _real(writer: Writer, node: fx.Node) -> fx.Node:
    return writer.nodes_of(writer.pair(node.args[0]))[0]


@row(aten.imag)
def _imag(writer: Writer, node: fx.Node) -> fx.Node:
    return writer.nodes_of(writer.pair(node.args[0]))[1]


@row(aten.abs)
def _abs(writer: Writer, node: fx.Node) -> fx.Node:
    pair = writer.pair(node.args[0])
    if pair.imag is None:
        return writer.call(aten.abs.default, pair.real)
    return writer.call(aten.hypot.default, *writer.nodes_of(pair))


@row(aten.angle)
def _angle(writer: Writer, node: fx.Node) -> fx.Node:
    real, imag = writer.nodes_of(writer.pair(node.args[0]))
    return writer.call(aten.atan2.default, imag, real)


@row(aten.conj, aten._conj, aten.conj_physical, aten._conj_physical)
def _conj(writer: Writer, node: fx.Node) -> Pair:
    pair = writer.pair(node.args[0])
    return Pair(pair.real, writer.apply(aten.neg.default, pair.imag))


@row(aten.adjoint, aten.mH)
def _adjoint(writer: Writer, node: fx.Node) -> Pair:
    z = writer.pair(node.args[0])
    real, imag = (writer.apply(aten.transpose.int, part, -2, -1) for part in z.parts)
    return Pair(real, writer.apply(aten.neg.default, imag))


@row(aten.resolve_conj, aten.resolve_neg)
def _same(writer: Writer, node: fx.Node) -> Pair:
    return writer.pair(node.args[0])


@row(aten._to_copy, aten.to)
def _cast(writer: Writer, node: fx.Node) -> Pair | fx.Node:
    """To another complex type, from a real to a complex one, or to a real one: the real part."""
    pair = writer.pair(node.args[0])
    dtype = node.meta["val"].dtype
    if not dtype.is_complex:
        return writer.call(aten._to_copy.default, writer.nodes_of(pair)[0], dtype=dtype)
    return Pair(*[writer.cast(part, dtype.to_real()) for part in pair.parts])


@row(aten.zeros_like, aten.ones_like)
def _like(writer: Writer, node: fx.Node) -> Pair | fx.Node:
    real, _ = writer.nodes_of(writer.pair(node.args[0]))
    target: Any = node.target
    if is_complex(node):
        return Pair(writer.call(target, real))
    return writer.again(node, {"self": real})
