"""Elements that an index picks, and elements that are written where an index says."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from boundlab.graph.graph import Ref
from boundlab.graph.layout import Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure.forms import beside
from boundlab.rules.structure.rows import whole
from boundlab.rules.structure.site import Meets, Site
from boundlab.rules.structure.table import structure


@structure(aten.index_select)
def _index_select(site: Site) -> Layout | None:
    x, index = site["self"], site["index"]
    (dim,) = site.dims(x, site["dim"])
    picked = site.layout(index)
    return site.agreed(
        [beside(site, x, (dim,)), None if picked is None else replace(picked, dim=dim)]
    )


@structure(aten.gather, aten.take_along_dim)
def _gather(site: Site) -> Layout | None:
    x, index = site["self"], site["index" if site.node.op is aten.gather.default else "indices"]
    if site["dim"] is None or len(site.shape(x)) != len(site.shape(index)):
        return whole(site)
    return site.agreed([beside(site, x, site.dims(x, site["dim"])), site.layout(index)])


@structure(aten.scatter, aten.scatter_add, aten.index_copy, aten.index_add)
def _scatter(site: Site) -> Layout | None:
    """Writes along one dimension; what is written and where to has the samples where x has them."""
    x = site["self"]
    acts = site.dims(x, site["dim"])
    found = [beside(site, Ref(name), acts) for name in site.tensors if len(site.shapes[name]) > 0]
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
