"""Elements that an index picks, and elements that are written where an index says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from boundlab.graph.graph import Ref
from boundlab.graph.layout import Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure.forms import beside, placed, shifted, whole
from boundlab.rules.structure.site import Meets, Site
from boundlab.rules.structure.table import structure

Indices = Sequence[Ref | None]
"""The index of each dimension, None for those that have none."""

# -- along one dimension ---------------------------------------------------------------------------


@structure(aten.index_select)
def _index_select(site: Site) -> Layout | None:
    x, index = site["self"], site["index"]
    (dim,) = site.dims(x, site["dim"])
    return site.agreed([beside(site, x, (dim,)), placed(site.layout(index), dim)])


@structure(aten.gather)
def _gather(site: Site) -> Layout | None:
    return _picked(site, site["index"])


@structure(aten.take_along_dim)
def _take_along_dim(site: Site) -> Layout | None:
    return _picked(site, site["indices"])


def _picked(site: Site, index: Ref) -> Layout | None:
    """Along one dimension, with an index for every element of the result."""
    x = site["self"]
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
    if layout is None or site.node.op in (aten.index_copy.default, aten.index_add.default):
        return layout
    shapes = [site.shapes[name] for name in site.tensors]
    sizes = {shape[layout.dim] for shape in shapes if len(shape) > layout.dim}
    if len(sizes) > 1:
        raise Meets("it writes to some of the samples")
    return layout


@structure(aten.searchsorted.Tensor)
def _searchsorted(site: Site) -> Layout | None:
    """Each value alone, in a sequence for all or in one for each of the leading dimensions."""
    sequence, sorter = site["sorted_sequence"], site["sorter"]
    layout = site.layout(site["self"])
    site.plain(sorter)
    dims = len(site.shape(sequence))
    if dims == 1:
        site.plain(sequence)
        return layout
    return site.agreed([layout, beside(site, sequence, (dims - 1,))])


# -- x[indices] ------------------------------------------------------------------------------------


@structure(aten.index.Tensor)
def _index(site: Site) -> Layout | None:
    x, indices = site["self"], site["indices"]
    if any(index is not None and index.name in site.masks for index in indices):
        return _masked(site, x, indices)
    return site.agreed(_indexed(site, x, indices))


def _indexed(site: Site, x: Ref, indices: Indices) -> list[Layout | None]:
    """Of ``x[indices]`` with whole numbers: the layouts that the indices bring, and last that of
    x, if it has samples."""
    chosen = {dim: index for dim, index in enumerate(indices) if index is not None}
    wide = max(len(site.shape(index)) for index in chosen.values())
    # the dimensions of the indices stand where the first of them stood, if they were together
    together = max(chosen) - min(chosen) + 1 == len(chosen)
    first = 0
    if together:
        first = min(chosen)

    def brought(layout: Layout | None, index: Ref) -> Layout | None:
        return shifted(layout, first + wide - len(site.shape(index)))

    found = [brought(site.layout(index), index) for index in chosen.values()]
    layout = site.layout(x)
    if layout is None:
        return found
    if layout.dim in chosen:
        index = chosen[layout.dim]
        own = site.own.get(index.name)
        if own is None or (layout.outer, layout.inner) != (1, 1):
            raise Meets("it picks samples by an index")
        return [*found, brought(own, index)]
    place = layout.dim - sum(dim < layout.dim for dim in chosen)
    if layout.dim >= first:
        place += wide
    return [*found, replace(layout, dim=place)]


def _masked(site: Site, x: Ref, indices: Indices) -> Layout | None:
    """Of ``x[:, mask]`` with one mask that has no samples: the dimensions that it covers become
    one."""
    chosen = [(dim, index) for dim, index in enumerate(indices) if index is not None]
    (first, mask), *others = chosen
    site.plain(mask)
    if others:
        return whole(site)
    covered = range(first, first + len(site.shape(mask)))
    layout = site.layout(x)
    if layout is None or layout.dim < first:
        return layout
    if layout.dim in covered:
        raise Meets("it picks samples by a mask")
    return shifted(layout, 1 - len(covered))


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
    # where x[indices] has the samples, and of how many dimensions it is
    if masks:
        found = _masked(site, x, indices)
        dims = len(site.shape(x)) - len(site.shape(masks[0])) + 1
    else:
        found = _indexed(site, x, indices)[-1]
        wide = max(len(site.shape(index)) for index in chosen)
        dims = len(site.shape(x)) - len(chosen) + wide
    if written is not None and shifted(written, dims - len(site.shape(values))) != found:
        raise Meets("what it writes carries the samples elsewhere")
    return layout
