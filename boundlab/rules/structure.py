"""Where an operator leaves the samples of a batch: for each operator a function from the layouts of
its arguments to that of its result, or a refusal if the operator lets samples meet.

A fact holds for every size of the batch and every value of the arguments, so that a layout that is
found here is a proof that samples do not interact. It rests on one notion: an operator is
*parallel* along a dimension if index i of the result there depends on index i of the arguments
alone. Samples stay apart exactly where the operator is parallel along the dimension that carries
them; along all others it *acts*.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from boundlab.compat.private import OpOverload, pytree
from boundlab.graph.graph import Node, Ref, op_name
from boundlab.graph.layout import Layout
from boundlab.kernels.moments import moments
from boundlab.rules.arguments import argument, parameters
from boundlab.rules.casts import cut_off, rounded, rounded_in_place
from boundlab.rules.elementwise import softsign, tanhshrink
from boundlab.rules.registry import RULES, aten, clean, within

Shape = tuple[int, ...]


class Meets(Exception):
    """Samples meet in an operator; the message says how."""


class Unknown(Exception):
    """Nothing is known of how an operator treats samples."""


@dataclass(frozen=True, eq=False)
class Site:
    """A node with what is known of its arguments: ``shapes`` of all tensors, with ``samples`` in
    the place of the batch size; ``numbers``: the values of the integers that the graph computes
    from shapes; ``masks``: the tensors of truth values; ``own``: the tensors that hold, for each
    sample, its own place in the batch."""

    node: Node
    samples: int
    shapes: Mapping[str, Shape]
    layouts: Mapping[str, Layout | None]
    numbers: Mapping[str, int] = field(default_factory=dict)
    masks: frozenset[str] = frozenset()
    own: Mapping[str, Layout] = field(default_factory=dict)

    @property
    def out(self) -> Shape:
        return self.shapes[self.node.name]

    def __getitem__(self, name: str) -> Any:
        """The argument of that name in the operator's schema, its default if it was not given."""
        return argument(self.node.op, self.node.args, self.node.kwargs, name)  # type: ignore[arg-type]

    def number(self, value: Any, default: int) -> int | None:
        """The value of an integer argument, the default if it was not given; None if the graph
        computes it and it is not known."""
        if value is None:
            return default
        return self.numbers.get(value.name) if isinstance(value, Ref) else value

    @property
    def tensors(self) -> list[str]:
        """All tensors among the arguments."""
        return self._tensors((self.node.args, dict(self.node.kwargs)))

    def _tensors(self, values: Any) -> list[str]:
        leaves = pytree.tree_leaves(values)
        return [leaf.name for leaf in leaves if isinstance(leaf, Ref) and leaf.name in self.shapes]

    def layout(self, value: Any) -> Layout | None:
        return self.layouts.get(value.name) if isinstance(value, Ref) else None

    def shape(self, value: Any) -> Shape:
        return self.shapes[value.name]

    def dims(self, value: Any, dims: Any) -> tuple[int, ...]:
        """Dimensions of an argument as numbers from 0; every one for None."""
        count = len(self.shape(value))
        if dims is None:
            return tuple(range(count))
        every = [dims] if isinstance(dims, int) else list(dims)
        return tuple(dim % max(count, 1) for dim in every)

    def plain(self, *values: Any) -> None:
        """Refuse samples in arguments that the operator reads as a whole."""
        for name in self._tensors(values):
            if self.layouts.get(name) is not None:
                raise Meets(f"it reads '{name}' for all samples at once")

    def agreed(self, found: Iterable[Layout | None]) -> Layout | None:
        """The one layout that all arguments with samples bring to the result."""
        several = {layout for layout in found if layout is not None}
        if len(several) > 1:
            raise Meets("its arguments carry the samples in different places")
        for layout in several:
            if self.out[layout.dim] != layout.outer * layout.inner * self.samples:
                raise Meets("it changes how many samples there are")
        return next(iter(several), None)


Structure = Callable[[Site], Layout | None]

STRUCTURES: dict[Any, Structure] = {}


def structure(*ops: Any) -> Callable[[Structure], Structure]:
    """Decorator: the structure of operators (packets, overloads or functions of our own)."""

    def decorate(function: Structure) -> Structure:
        for op in ops:
            assert op not in STRUCTURES, op
            STRUCTURES[op] = function
        return function

    return decorate


def find_structure(node: Node) -> Structure:
    """The structure of a node's operator; what torch itself marks as pointwise needs no row in the
    table."""
    op = node.op
    packet = op.overloadpacket if isinstance(op, OpOverload) else None
    found = STRUCTURES.get(op) or STRUCTURES.get(packet)
    if found is not None:
        return found
    if isinstance(op, OpOverload) and torch.Tag.pointwise in op.tags:
        return pointwise
    own = not isinstance(op, OpOverload) or op.namespace != "aten"
    if own and (op in RULES or packet in RULES):
        return samples_first
    raise Unknown(f"nothing is known about how {op_name(op)} treats the samples of a batch")


def samples_first(site: Site) -> Layout | None:
    """What the registration of a rule states unless there is a row for its operator: dimension 0 of
    every argument with samples counts them, and the operator is parallel along it."""
    if any(layout not in (None, Layout()) for layout in map(site.layouts.get, site.tensors)):
        raise Meets("its samples do not lie in dimension 0 alone")
    return site.agreed(site.layouts.get(name) for name in site.tensors)


# -- one index at a time ---------------------------------------------------------------------------


def _broadcast(site: Site, name: str, dims: int) -> Layout | None:
    """The layout of an argument in a result of ``dims`` dimensions that it broadcasts to."""
    layout = site.layouts.get(name)
    return (
        None if layout is None else replace(layout, dim=layout.dim + dims - len(site.shapes[name]))
    )


def pointwise(site: Site) -> Layout | None:
    return site.agreed(_broadcast(site, name, len(site.out)) for name in site.tensors)


structure(
    aten._to_copy, aten.to, aten.dropout, aten.feature_dropout, aten.alpha_dropout,
    aten.feature_alpha_dropout, aten.contiguous, aten.alias,
    aten.lift_fresh_copy, aten.detach, aten.log_sigmoid, aten.log_sigmoid_forward, aten.hardswish,
    aten.where, aten.rsub, aten.add, aten.sub,
    aten.mul, aten.multiply, aten.greater, aten.greater_equal, aten.less, aten.less_equal,
    aten.__and__, aten.__or__, aten.__xor__, aten.fix,
    aten.masked_fill, aten.expand_as, aten.broadcast_tensors, within, softsign, tanhshrink, rounded,
    rounded_in_place, cut_off,
)(pointwise)  # fmt: skip


@structure(aten.type_as, aten.expand, aten.broadcast_to, aten.fill, aten.bucketize)
def first_pointwise(site: Site) -> Layout | None:
    """Pointwise in the first argument; of the others only the shape or the type counts, or no
    samples are in them."""
    if site.node.op in (aten.fill.Tensor, aten.bucketize.Tensor):
        site.plain(*site.node.args[1:])
    return site.agreed([_broadcast(site, site.node.args[0].name, len(site.out))])


@structure(aten.prelu)
def _prelu(site: Site) -> Layout | None:
    site.plain(site["weight"])
    return site.layout(site["self"])


# -- the same elements in another shape ------------------------------------------------------------


@structure(
    aten.view, aten.reshape, aten.flatten, aten.unflatten, aten.squeeze, aten.unsqueeze,
    aten._unsafe_view, aten.view_as, aten.reshape_as, aten.ravel, aten.atleast_1d, aten.atleast_2d,
)  # fmt: skip
def reshape(site: Site) -> Layout | None:
    """The order of elements stays. Element k belongs to sample ``k // distance % samples``; in a
    dimension with ``rest`` elements behind it that is the layout with ``inner = distance / rest``,
    if both divisions come out even."""
    source = site.node.args[0]
    layout = site.layout(source)
    if layout is None:
        return None
    if 0 in site.out:
        return site.agreed([constant(site) or layout])
    distance = layout.inner * math.prod(site.shape(source)[layout.dim + 1 :])
    found = []
    for dim, size in enumerate(site.out):
        rest = math.prod(site.out[dim + 1 :])
        inner = distance // rest
        if inner * rest == distance and inner and size % (inner * site.samples) == 0:
            found.append(Layout(dim, size // (inner * site.samples), inner))
    if found:  # more than one only for a single sample
        return min(found, key=lambda layout: layout.outer)
    raise Meets("it puts parts of several samples into one")


def _moved(site: Site, order: Iterable[int]) -> Layout | None:
    """The dimensions of the first argument in another order."""
    layout = site.layout(site.node.args[0])
    return None if layout is None else replace(layout, dim=list(order).index(layout.dim))


def _swapped(site: Site, first: int, second: int) -> Layout | None:
    count = len(site.out)
    order = list(range(count))
    if count:
        order[first % count], order[second % count] = order[second % count], order[first % count]
    return _moved(site, order)


structure(aten.permute)(lambda site: _moved(site, site.dims(site["self"], site["dims"])))
structure(aten.transpose)(lambda site: _swapped(site, site["dim0"], site["dim1"]))
structure(aten.swapaxes)(lambda site: _swapped(site, site["axis0"], site["axis1"]))
structure(aten.t)(lambda site: _moved(site, reversed(range(len(site.out)))))
structure(aten.numpy_T)(lambda site: _moved(site, reversed(range(len(site.out)))))
structure(aten.mT, aten.adjoint)(lambda site: _swapped(site, -2, -1))


@structure(aten.movedim)
def _movedim(site: Site) -> Layout | None:
    x = site["self"]
    source, target = site.dims(x, site["source"]), site.dims(x, site["destination"])
    order = [dim for dim in range(len(site.out)) if dim not in source]
    for place, dim in sorted(zip(target, source, strict=True)):
        order.insert(place, dim)
    return _moved(site, order)


@structure(aten.repeat, aten.tile)
def _repeat(site: Site) -> Layout | None:
    """Copies of the whole dimension behind each other: as many more blocks of all samples."""
    layout = _broadcast(site, site.node.args[0].name, len(site.out))
    return (
        None
        if layout is None
        else replace(layout, outer=site.out[layout.dim] // (layout.inner * site.samples))
    )


@structure(aten.repeat_interleave.self_int, aten.repeat_interleave.self_Tensor)
def _repeat_interleave(site: Site) -> Layout | None:
    x, repeats = site["self"], site["repeats"]
    site.plain(repeats)
    layout = site.layout(x)
    if layout is None or site["dim"] is None:
        site.plain(x)
        return None
    if site.dims(x, site["dim"]) != (layout.dim,):
        return layout
    if not isinstance(repeats, int):
        raise Meets("it repeats samples as often as an index says")
    return replace(layout, inner=layout.inner * repeats)


# -- along some dimensions -------------------------------------------------------------------------


def _beside(site: Site, x: Any, acts: Iterable[int], kept: bool = True) -> Layout | None:
    """The layout of x, if the operator acts along other dimensions; these stay where they are, or
    are dropped."""
    layout = site.layout(x)
    if layout is None:
        return None
    acts = set(acts)
    if layout.dim in acts:
        raise Meets("it acts along the dimension that carries the samples")
    dim = layout.dim if kept else layout.dim - sum(other < layout.dim for other in acts)
    return site.agreed([replace(layout, dim=dim)])


def along(dim: str, *, kept: bool = True, whole: tuple[Any, ...] = (None,)) -> Structure:
    """Acts along the dimensions that an argument names, and reads nothing else with samples. kept:
    whether they stay; ``keepdim`` decides if the operator has it. whole: the values of that
    argument that stand for all dimensions."""

    def find(site: Site) -> Layout | None:
        x = site.node.args[0]
        site.plain(*site.node.args[1:], *site.node.kwargs.values())
        given = site[dim]
        acts = site.dims(x, None if given in whole else given)
        stays = bool(site["keepdim"]) if "keepdim" in parameters(site.node.op) else kept  # type: ignore[arg-type]
        return _beside(site, x, acts, stays)

    return find


structure(
    aten._softmax, aten.softmax, aten._log_softmax, aten.log_softmax, aten.cumsum, aten.cumprod,
    aten.cummax, aten.cummin, aten.logcumsumexp,
    aten.sort, aten.argsort, aten.topk, aten.diff, aten.split.sizes, aten.split_with_sizes,
    aten.chunk, aten.tensor_split, aten.index_fill,
)(along("dim"))  # fmt: skip
structure(aten.flip, aten.rot90)(along("dims"))
structure(aten.fliplr)(lambda site: _beside(site, site["self"], (1,)))
structure(aten.flipud)(lambda site: _beside(site, site["self"], (0,)))
structure(aten.roll)(along("dims", whole=([], ())))
structure(aten.unfold)(along("dimension"))
structure(aten.select, aten.unbind)(along("dim", kept=False))
structure(
    aten.sum.dim_IntList, aten.mean.dim, aten.amax, aten.amin, aten.argmax, aten.argmin,
    aten.logsumexp, aten.var.dim, aten.var.correction,
    aten.std.dim, aten.std.correction, aten.prod.dim_int, aten.max.dim, aten.min.dim,
    aten.median.dim, aten.nanmedian.dim, aten.mode,
    aten.kthvalue, aten.any.dim, aten.any.dims, aten.all.dim, aten.all.dims,
    aten.linalg_vector_norm, aten.nansum, aten.aminmax,
)(along("dim", whole=(None, [], ())))  # fmt: skip
structure(aten.count_nonzero.dim_IntList)(along("dim", kept=False))


@structure(
    aten.sum.default, aten.mean.default, aten.any.default, aten.all.default, aten.max.default,
    aten.min.default, aten.prod.default, aten.trace, aten.diag, aten.median.default,
    aten.count_nonzero.default, aten.take, aten.masked_select, aten.nonzero, aten.repeat_interleave,
    moments,
)  # fmt: skip
def whole(site: Site) -> Layout | None:
    """Reads everything at once."""
    site.plain(*map(Ref, site.tensors))
    return None


@structure(aten.slice)
def _slice(site: Site) -> Layout | None:
    """Along the samples a slice may take whole blocks of all of them."""
    x = site["self"]
    layout, (dim,) = site.layout(x), site.dims(x, site["dim"])
    if layout is None or layout.dim != dim:
        return layout
    size, block = site.shape(x)[dim], layout.inner * site.samples
    start, end = site.number(site["start"], 0), site.number(site["end"], size)
    if start is None or end is None or site["step"] != 1:
        raise Meets("it picks some of the samples")
    start, end = (min(max(at + size if at < 0 else at, 0), size) for at in (start, end))
    fixed = any(
        isinstance(given, int) and given not in (0, 2**63 - 1)
        for given in (site["start"], site["end"])
    )
    if start % block or end % block or end <= start or (fixed and (start, end) != (0, size)):
        raise Meets("it picks some of the samples")
    return replace(layout, outer=(end - start) // block)


@structure(aten.split.Tensor)
def _split(site: Site) -> Layout | None:
    """Along the samples it may take whole blocks of all of them apart."""
    x, size = site["self"], site["split_size"]
    layout = site.layout(x)
    if layout is None or site.dims(x, site["dim"]) != (layout.dim,):
        return layout
    block = layout.inner * site.samples
    if not isinstance(size, Ref) or site.numbers.get(size.name, 1) % block:
        raise Meets("it takes the samples apart")
    return replace(layout, outer=site.out[layout.dim] // block)


@structure(aten.narrow)
def _narrow(site: Site) -> Layout | None:
    return _beside(site, site["self"], site.dims(site["self"], site["dim"]))


@structure(aten.cat, aten.concat)
def _cat(site: Site) -> Layout | None:
    """Side by side; along the samples, blocks of all samples behind each other."""
    parts = [part for part in site["tensors"] if site.shape(part) != (0,)]
    (dim,) = site.dims(parts[0], site["dim"])
    return _joined(site, parts, dim)


def _joined(site: Site, parts: list[Any], dim: int) -> Layout | None:
    layouts = [site.layout(part) for part in parts]
    if not any(layout is not None and layout.dim == dim for layout in layouts):
        return site.agreed(layouts)
    carried = [layout for layout in layouts if layout is not None and layout.dim == dim]
    if len(carried) < len(layouts) or len({layout.inner for layout in carried}) > 1:
        raise Meets("it puts something else beside the samples")
    return Layout(dim, sum(layout.outer for layout in carried), carried[0].inner)


@structure(aten.vstack, aten.hstack)
def _side_by_side(site: Site) -> Layout | None:
    """vstack along dimension 0, hstack along dimension 1, or 0 of single rows; of tensors of at
    least two dimensions here."""
    parts = site["tensors"]
    dim = 0 if site.node.op is aten.vstack.default or len(site.shape(parts[0])) == 1 else 1
    if any(len(site.shape(part)) < 2 for part in parts) and site.node.op is aten.vstack.default:
        return whole(site)
    return _joined(site, parts, dim)


@structure(aten.stack)
def _stack(site: Site) -> Layout | None:
    dim = site["dim"] % len(site.out)
    found = [site.layout(part) for part in site["tensors"]]
    return site.agreed(
        None if layout is None else replace(layout, dim=layout.dim + (layout.dim >= dim))
        for layout in found
    )


@structure(aten.diagonal)
def _diagonal(site: Site) -> Layout | None:
    x = site["self"]
    return _beside(site, x, site.dims(x, (site["dim1"], site["dim2"])), kept=False)


@structure(aten.diagonal_scatter)
def _diagonal_scatter(site: Site) -> Layout | None:
    x, source = site["self"], site["src"]
    acts = set(site.dims(x, (site["dim1"], site["dim2"])))
    layout, written = _beside(site, x, acts), site.layout(source)
    if written is None or layout is None:
        site.plain(source)
        return layout
    if written != replace(layout, dim=layout.dim - sum(other < layout.dim for other in acts)):
        raise Meets("what it writes carries the samples elsewhere")
    return layout


def trailing(count: int) -> Structure:
    """Acts along so many of the last dimensions, and reads nothing else with samples."""

    def find(site: Site) -> Layout | None:
        x = site.node.args[0]
        site.plain(*site.node.args[1:], *site.node.kwargs.values())
        dims = len(site.shape(x))
        return _beside(site, x, range(dims - count, dims))

    return find


structure(aten.tril, aten.triu)(trailing(2))
structure(
    aten.avg_pool1d,
    aten.adaptive_avg_pool1d,
    aten.max_pool1d,
    aten.reflection_pad1d,
    aten.replication_pad1d,
)(trailing(1))
structure(
    aten.avg_pool2d, aten.adaptive_avg_pool2d, aten._adaptive_avg_pool2d, aten.max_pool2d,
    aten.reflection_pad2d, aten.replication_pad2d,
)(trailing(2))  # fmt: skip
structure(
    aten.avg_pool3d, aten.adaptive_avg_pool3d, aten._adaptive_avg_pool3d, aten.max_pool3d,
    aten.reflection_pad3d, aten.replication_pad3d,
)(trailing(3))  # fmt: skip
structure(aten.upsample_nearest1d, aten._upsample_nearest_exact1d, aten.upsample_linear1d)(
    trailing(1)
)
structure(
    aten.upsample_nearest2d,
    aten._upsample_nearest_exact2d,
    aten.upsample_bilinear2d,
    aten.upsample_bicubic2d,
)(trailing(2))
structure(aten.upsample_nearest3d, aten._upsample_nearest_exact3d, aten.upsample_trilinear3d)(
    trailing(3)
)
structure(aten.pixel_shuffle, aten.pixel_unshuffle)(trailing(3))


@structure(aten.diag_embed)
def _diag_embed(site: Site) -> Layout | None:
    """Into the last two dimensions, of other places nothing is said."""
    return trailing(1)(site) if (site["dim1"], site["dim2"]) == (-2, -1) else whole(site)


@structure(aten.im2col, aten.col2im)
def _blocks(site: Site) -> Layout | None:
    """(samples, channels and places) to (samples, others): only dimension 0 is parallel."""
    return _beside(site, site["self"], range(1, len(site.shape(site["self"]))))


@structure(aten.channel_shuffle)
def _channel_shuffle(site: Site) -> Layout | None:
    return _beside(site, site["self"], (1,))


@structure(aten.constant_pad_nd, aten.pad, aten._pad_circular)
def _pad(site: Site) -> Layout | None:
    """Pairs of widths for the last dimensions, the last one first."""
    x, widths = site["self"], site["pad"]
    dims = len(site.shape(x))
    return _beside(
        site,
        x,
        [
            dims - 1 - i // 2
            for i, width in enumerate(widths)
            if isinstance(width, Ref) or width != 0
        ],
    )


# -- sums of products ------------------------------------------------------------------------------


@structure(aten.linear)
def _linear(site: Site) -> Layout | None:
    x, weight = site["input"], site["weight"]
    site.plain(site["bias"])
    last = len(site.out) - 1
    found = _beside(site, x, [len(site.shape(x)) - 1])
    other = site.layout(weight)
    if other is not None and other.dim != 0:
        raise Meets("it sums over the samples")
    return site.agreed([found, None if other is None else replace(other, dim=last)])


def _product(site: Site, x: Any, y: Any) -> Layout | None:
    """(..., n, k) times (..., k, m)."""
    shapes, found = (site.shape(x), site.shape(y)), []
    for value, shape, summed in ((x, shapes[0], -1), (y, shapes[1], -2)):
        layout = site.layout(value)
        if layout is None:
            continue
        count = len(shape)
        if count == 1 or layout.dim == count + summed:
            raise Meets("it sums over the samples")
        if layout.dim < count - 2:  # a leading dimension, which broadcasts
            leading = len(site.out) - sum(len(other) > 1 for other in shapes)
            found.append(replace(layout, dim=layout.dim + leading - (count - 2)))
        elif value is x:  # the rows of x, in front of the columns of y if it has any
            found.append(replace(layout, dim=len(site.out) - (2 if len(shapes[1]) > 1 else 1)))
        else:
            found.append(replace(layout, dim=len(site.out) - 1))
    return site.agreed(found)


structure(aten.matmul, aten.dot)(lambda site: _product(site, *site.node.args[:2]))
structure(aten.mm, aten.bmm)(lambda site: _product(site, site["self"], site["mat2"]))
structure(aten.mv)(lambda site: _product(site, site["self"], site["vec"]))


@structure(aten.inner)
def _inner(site: Site) -> Layout | None:
    """(*a, k), (*b, k) -> (*a, *b)."""
    x, y = site.node.args[:2]
    first, second = _beside(site, x, [len(site.shape(x)) - 1]), site.layout(y)
    if second is not None and second.dim == len(site.shape(y)) - 1:
        raise Meets("it sums over the samples")
    return site.agreed(
        [
            first,
            None if second is None else replace(second, dim=second.dim + len(site.shape(x)) - 1),
        ]
    )


@structure(aten.outer)
def _outer(site: Site) -> Layout | None:
    second = site.layout(site["vec2"])
    return site.agreed(
        [site.layout(site["self"]), None if second is None else replace(second, dim=1)]
    )


@structure(aten.einsum.default)
def _einsum(site: Site) -> Layout | None:
    equation, operands = site["equation"].replace(" ", ""), site["tensors"]
    left, arrow, right = equation.partition("->")
    letters = [
        _letters(part, len(site.shape(x)))
        for part, x in zip(left.split(","), operands, strict=True)
    ]
    if not arrow:
        every = [c for part in letters for c in part]
        dots = sorted({c for c in every if c.isdigit()}, key=int, reverse=True)
        right = "".join(dots) + "".join(
            sorted(c for c in set(every) if every.count(c) == 1 and not c.isdigit())
        )
    result = _letters(right, len(site.out))
    found = []
    for part, x in zip(letters, operands, strict=True):
        layout = site.layout(x)
        if layout is not None:
            if part[layout.dim] not in result or part.count(part[layout.dim]) > 1:
                raise Meets("it sums over the samples")
            found.append(replace(layout, dim=result.index(part[layout.dim])))
    return site.agreed(found)


def _letters(part: str, dims: int) -> str:
    """The indices of one operand; dimensions that dots stand for get digits, which count from the
    right."""
    count = dims - len(part.replace("...", ""))
    return part.replace("...", "".join(str(i) for i in reversed(range(count))))


@structure(
    aten.conv1d, aten.conv2d, aten.conv3d,
    aten.conv_transpose1d, aten.conv_transpose2d, aten.conv_transpose3d, aten.convolution,
)  # fmt: skip
def _convolution(site: Site) -> Layout | None:
    """Only a dimension in front of the channels is parallel."""
    x, weight = site["input"], site["weight"]
    site.plain(weight, site["bias"])
    dims = len(site.shape(x))
    return _beside(site, x, range(dims - len(site.shape(weight)) + 1, dims))


# -- picking and placing ---------------------------------------------------------------------------


@structure(aten.index_select)
def _index_select(site: Site) -> Layout | None:
    x, index = site["self"], site["index"]
    (dim,) = site.dims(x, site["dim"])
    picked = site.layout(index)
    return site.agreed(
        [_beside(site, x, (dim,)), None if picked is None else replace(picked, dim=dim)]
    )


@structure(aten.gather, aten.take_along_dim)
def _gather(site: Site) -> Layout | None:
    x, index = site["self"], site["index" if site.node.op is aten.gather.default else "indices"]
    if site["dim"] is None or len(site.shape(x)) != len(site.shape(index)):
        return whole(site)
    return site.agreed([_beside(site, x, site.dims(x, site["dim"])), site.layout(index)])


@structure(aten.scatter, aten.scatter_add, aten.index_copy, aten.index_add)
def _scatter(site: Site) -> Layout | None:
    """Writes along one dimension; what is written and where to has the samples where x has them."""
    x = site["self"]
    acts = site.dims(x, site["dim"])
    found = [_beside(site, Ref(name), acts) for name in site.tensors if len(site.shapes[name]) > 0]
    layout = site.agreed(found)
    sizes = (
        {
            site.shapes[name][layout.dim]
            for name in site.tensors
            if len(site.shapes[name]) > layout.dim
        }
        if layout is not None
        else set()
    )
    if (
        layout is not None
        and len(sizes) > 1
        and site.node.op not in (aten.index_copy.default, aten.index_add.default)
    ):
        raise Meets("it writes to some of the samples")
    return layout


def _indexed(site: Site, x: Any, indices: Any) -> tuple[list[Layout | None], Callable[[int], int]]:
    """Of ``x[indices]`` with whole numbers: the layouts that x and the indices bring, and where a
    dimension of x that has no index comes to lie."""
    chosen = {dim: index for dim, index in enumerate(indices) if index is not None}
    wide = max(len(site.shape(index)) for index in chosen.values())
    together = max(chosen) - min(chosen) + 1 == len(chosen)
    first = min(chosen) if together else 0

    def place(dim: int) -> int:
        behind = dim >= first or not together
        return dim - sum(other < dim for other in chosen) + (wide if behind else 0)

    def brought(layout: Layout, index: Any) -> Layout:
        return replace(layout, dim=layout.dim + first + wide - len(site.shape(index)))

    found = [
        None if (layout := site.layout(index)) is None else brought(layout, index)
        for index in chosen.values()
    ]
    layout = site.layout(x)
    if layout is not None and layout.dim in chosen:
        index = chosen[layout.dim]
        own = site.own.get(index.name)
        if own is None or (layout.outer, layout.inner) != (1, 1):
            raise Meets("it picks samples by an index")
        found.append(brought(own, index))
    elif layout is not None:
        found.append(replace(layout, dim=place(layout.dim)))
    return found, place


@structure(aten.index.Tensor)
def _index(site: Site) -> Layout | None:
    x, indices = site["self"], site["indices"]
    if any(index is not None and index.name in site.masks for index in indices):
        return _masked(site, x, indices)
    return site.agreed(_indexed(site, x, indices)[0])


def _masked(site: Site, x: Any, indices: Any) -> Layout | None:
    """Of ``x[:, mask]`` with one mask that has no samples: the dimensions that it covers become
    one."""
    chosen = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    (first, mask), *others = chosen
    site.plain(mask)
    if others:
        return whole(site)
    covered = range(first, first + len(site.shape(mask)))
    layout = site.layout(x)
    if layout is None:
        return None
    if layout.dim in covered:
        raise Meets("it picks samples by a mask")
    return replace(layout, dim=layout.dim if layout.dim < first else layout.dim - len(covered) + 1)


@structure(aten.index_put)
def _index_put(site: Site) -> Layout | None:
    """``x[mask] = number`` is pointwise; else the samples must lie in a dimension of x without an
    index, and what is written carries them in the same place as ``x[indices]``."""
    x, values = site["self"], site["values"]
    indices = site["indices"]
    chosen = [index for index in indices if index is not None]
    masks = [index for index in chosen if index.name in site.masks]
    if masks and len(indices) == 1 and math.prod(site.shape(values)) == 1:
        site.plain(values)
        return site.agreed([site.layout(x), site.layout(masks[0])])
    site.plain(*chosen)
    layout, written = site.layout(x), site.layout(values)
    if layout is None:
        site.plain(values)
        return None
    if masks:
        found, dims = _masked(site, x, indices), len(site.shape(x)) - len(site.shape(masks[0])) + 1
    else:
        (found, *_), dims = (
            _indexed(site, x, indices)[0][::-1],
            len(site.shape(x)) - len(chosen) + max(len(site.shape(i)) for i in chosen),
        )
    if written is not None and (
        found is None or replace(written, dim=written.dim + dims - len(site.shape(values))) != found
    ):
        raise Meets("what it writes carries the samples elsewhere")
    return layout


# -- values that do not depend on the perturbation -------------------------------------------------


def constant(site: Site) -> Layout | None:
    """A value that is the same whatever the samples are: they may be taken to lie in a dimension
    that grows with the batch."""
    found = [dim for dim, size in enumerate(site.out) if size == site.samples]
    return Layout(found[0]) if len(found) == 1 else None


structure(aten.zeros_like, aten.ones_like, aten.full_like, aten.empty_like)(first_pointwise)
structure(aten.new_zeros, aten.new_ones, aten.new_full, aten.new_empty)(constant)
structure(clean)(lambda site: None)
