"""Sums of products: matrix products, einsum, convolutions."""

from __future__ import annotations

from dataclasses import replace

from boundlab.graph.graph import Ref
from boundlab.graph.layout import Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure.forms import beside, placed, shifted
from boundlab.rules.structure.site import Meets, Site
from boundlab.rules.structure.table import structure


@structure(aten.linear)
def _linear(site: Site) -> Layout | None:
    x, weight = site["input"], site["weight"]
    site.plain(site["bias"])
    found = beside(site, x, [len(site.shape(x)) - 1])
    other = site.layout(weight)
    if other is not None and other.dim != 0:
        raise Meets("it sums over the samples")
    return site.agreed([found, placed(other, len(site.out) - 1)])


def _product(site: Site, x: Ref, y: Ref) -> Layout | None:
    """(..., n, k) times (..., k, m)."""
    matrices = sum(len(site.shape(value)) > 1 for value in (x, y))
    leading = len(site.out) - matrices
    rows = _factor(site, x, summed=-1, leading=leading, kept=leading)
    columns = _factor(site, y, summed=-2, leading=leading, kept=len(site.out) - 1)
    return site.agreed([rows, columns])


def _factor(site: Site, x: Ref, *, summed: int, leading: int, kept: int) -> Layout | None:
    """The layout that a factor brings to a product of matrices. summed: its dimension that is
    summed over, from the end; leading: how many dimensions the result has in front of rows and
    columns; kept: where the other dimension of its matrices comes to lie."""
    layout = site.layout(x)
    if layout is None:
        return None
    count = len(site.shape(x))
    if count == 1 or layout.dim == count + summed:
        raise Meets("it sums over the samples")
    if layout.dim < count - 2:  # a leading dimension, which broadcasts
        return shifted(layout, leading - (count - 2))
    return placed(layout, kept)


structure(aten.matmul, aten.dot)(lambda site: _product(site, *site.node.args[:2]))
structure(aten.mm, aten.bmm)(lambda site: _product(site, site["self"], site["mat2"]))
structure(aten.mv)(lambda site: _product(site, site["self"], site["vec"]))


@structure(aten.inner)
def _inner(site: Site) -> Layout | None:
    """(*a, k), (*b, k) -> (*a, *b)."""
    x, y = site.node.args[:2]
    last = len(site.shape(x)) - 1
    first, second = beside(site, x, [last]), site.layout(y)
    if second is not None and second.dim == len(site.shape(y)) - 1:
        raise Meets("it sums over the samples")
    return site.agreed([first, shifted(second, last)])


@structure(aten.outer)
def _outer(site: Site) -> Layout | None:
    return site.agreed([site.layout(site["self"]), placed(site.layout(site["vec2"]), 1)])


@structure(aten.einsum.default)
def _einsum(site: Site) -> Layout | None:
    equation, operands = site["equation"].replace(" ", ""), site["tensors"]
    left, arrow, right = equation.partition("->")
    terms = zip(left.split(","), operands, strict=True)
    letters = [_letters(part, len(site.shape(x))) for part, x in terms]
    if not arrow:
        right = _implied("".join(letters))
    result = _letters(right, len(site.out))
    found = []
    for part, x in zip(letters, operands, strict=True):
        layout = site.layout(x)
        if layout is None:
            continue
        letter = part[layout.dim]
        if letter not in result or part.count(letter) > 1:
            raise Meets("it sums over the samples")
        found.append(replace(layout, dim=result.index(letter)))
    return site.agreed(found)


def _implied(letters: str) -> str:
    """The indices of the result of an equation without an arrow, from those of all operands: what
    the dots stand for, then in order the letters that occur once."""
    dots = {letter for letter in letters if letter.isdigit()}
    once = {letter for letter in letters if letters.count(letter) == 1}
    return "".join(sorted(dots, key=int, reverse=True)) + "".join(sorted(once - dots))


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
