"""Parts of a tensor, and tensors side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from boundlab.graph.graph import Ref
from boundlab.graph.layout import Layout
from boundlab.rules.registry import aten
from boundlab.rules.structure.forms import beside, shifted, whole, without
from boundlab.rules.structure.site import Meets, Site
from boundlab.rules.structure.table import structure

LAST = 2**63 - 1
"""The end of a slice that goes to the last entry."""


@structure(aten.slice)
def _slice(site: Site) -> Layout | None:
    """Along the samples a slice may take whole blocks of all of them."""
    x = site["self"]
    layout, (dim,) = site.layout(x), site.dims(x, site["dim"])
    if layout is None or layout.dim != dim:
        return layout
    size, block = site.shape(x)[dim], layout.inner * site.samples
    start, end = _ends(site, size)
    blocks = start % block == 0 and end % block == 0 and start < end
    everything = (start, end) == (0, size)
    if not blocks or (_has_fixed_end(site) and not everything):
        raise Meets("it picks some of the samples")
    return replace(layout, outer=(end - start) // block)


def _ends(site: Site, size: int) -> tuple[int, int]:
    """Where a slice of ``size`` entries begins and ends, counted from 0."""
    start, end = site.number(site["start"], 0), site.number(site["end"], size)
    if start is None or end is None or site["step"] != 1:
        raise Meets("it picks some of the samples")
    first, last, _ = slice(start, end).indices(size)
    return first, last


def _has_fixed_end(site: Site) -> bool:
    """Whether a slice begins or ends at a number that does not grow with the batch."""
    ends = site["start"], site["end"]
    return any(isinstance(end, int) and end not in (0, LAST) for end in ends)


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


# -- side by side ----------------------------------------------------------------------------------


@structure(aten.cat, aten.concat)
def _cat(site: Site) -> Layout | None:
    """Side by side; along the samples, blocks of all samples behind each other."""
    parts = [part for part in site["tensors"] if site.shape(part) != (0,)]
    (dim,) = site.dims(parts[0], site["dim"])
    return _joined(site, parts, dim)


def _joined(site: Site, parts: Sequence[Ref], dim: int) -> Layout | None:
    layouts = [site.layout(part) for part in parts]
    carried = [layout for layout in layouts if layout is not None and layout.dim == dim]
    if not carried:
        return site.agreed(layouts)
    if len(carried) < len(layouts) or len({layout.inner for layout in carried}) > 1:
        raise Meets("it puts something else beside the samples")
    return Layout(dim, sum(layout.outer for layout in carried), carried[0].inner)


@structure(aten.vstack)
def _vstack(site: Site) -> Layout | None:
    """Along dimension 0; of tensors of at least two dimensions here."""
    parts = site["tensors"]
    if any(len(site.shape(part)) < 2 for part in parts):
        return whole(site)
    return _joined(site, parts, 0)


@structure(aten.hstack)
def _hstack(site: Site) -> Layout | None:
    """Along dimension 1, or 0 of single rows."""
    parts = site["tensors"]
    rows = len(site.shape(parts[0])) == 1
    return _joined(site, parts, int(not rows))


@structure(aten.stack)
def _stack(site: Site) -> Layout | None:
    dim = site["dim"] % len(site.out)
    return site.agreed(_making_room(site.layout(part), dim) for part in site["tensors"])


def _making_room(layout: Layout | None, dim: int) -> Layout | None:
    """The layout after a new dimension ``dim`` has come in."""
    if layout is None or layout.dim < dim:
        return layout
    return shifted(layout, 1)


# -- diagonals -------------------------------------------------------------------------------------


@structure(aten.diagonal)
def _diagonal(site: Site) -> Layout | None:
    x = site["self"]
    return beside(site, x, site.dims(x, (site["dim1"], site["dim2"])), kept=False)


@structure(aten.diagonal_scatter)
def _diagonal_scatter(site: Site) -> Layout | None:
    x, source = site["self"], site["src"]
    acts = site.dims(x, (site["dim1"], site["dim2"]))
    layout, written = beside(site, x, acts), site.layout(source)
    if written is None or layout is None:
        site.plain(source)
        return layout
    if written != without(layout, acts):
        raise Meets("what it writes carries the samples elsewhere")
    return layout
