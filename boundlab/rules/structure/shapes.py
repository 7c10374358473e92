"""The same elements in another shape or order, or several times."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from boundlab.graph.layout import Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure.forms import broadcast, constant
from boundlab.rules.structure.site import Meets, Site
from boundlab.rules.structure.table import structure


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
    if layout is None:
        return None
    return replace(layout, dim=list(order).index(layout.dim))


@structure(aten.permute)
def _permute(site: Site) -> Layout | None:
    return _moved(site, site.dims(site["self"], site["dims"]))


@structure(aten.t, aten.numpy_T)
def _reversed(site: Site) -> Layout | None:
    return _moved(site, reversed(range(len(site.out))))


def _swapped(site: Site, first: int, second: int) -> Layout | None:
    count = len(site.out)
    order = list(range(count))
    if count:
        order[first % count], order[second % count] = order[second % count], order[first % count]
    return _moved(site, order)


structure(aten.transpose)(lambda site: _swapped(site, site["dim0"], site["dim1"]))
structure(aten.swapaxes)(lambda site: _swapped(site, site["axis0"], site["axis1"]))
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
    layout = broadcast(site, site.node.args[0].name)
    if layout is None:
        return None
    return replace(layout, outer=site.out[layout.dim] // (layout.inner * site.samples))


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
