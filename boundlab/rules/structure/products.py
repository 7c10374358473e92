"""Sums of products: matrix products, einsum, convolutions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boundlab.graph.layout import Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure.forms import beside
from boundlab.rules.structure.site import Meets, Site
from boundlab.rules.structure.table import structure


@structure(aten.linear)
def _linear(site: Site) -> Layout | None:
    x, weight = site["input"], site["weight"]
    site.plain(site["bias"])
    last = len(site.out) - 1
    found = beside(site, x, [len(site.shape(x)) - 1])
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
    first, second = beside(site, x, [len(site.shape(x)) - 1]), site.layout(y)
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
    return beside(site, x, range(dims - len(site.shape(weight)) + 1, dims))
