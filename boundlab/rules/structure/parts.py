"""Parts of a tensor, and tensors side by side."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from boundlab.graph.graph import Ref
from boundlab.graph.layout import Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure.forms import beside
from boundlab.rules.structure.rows import whole
from boundlab.rules.structure.site import Meets, Site
from boundlab.rules.structure.table import structure


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
    return beside(site, site["self"], site.dims(site["self"], site["dim"]))


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
    return beside(site, x, site.dims(x, (site["dim1"], site["dim2"])), kept=False)


@structure(aten.diagonal_scatter)
def _diagonal_scatter(site: Site) -> Layout | None:
    x, source = site["self"], site["src"]
    acts = set(site.dims(x, (site["dim1"], site["dim2"])))
    layout, written = beside(site, x, acts), site.layout(source)
    if written is None or layout is None:
        site.plain(source)
        return layout
    if written != replace(layout, dim=layout.dim - sum(other < layout.dim for other in acts)):
        raise Meets("what it writes carries the samples elsewhere")
    return layout
