"""The structures that many operators share."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from boundlab.graph.graph import Ref
from boundlab.graph.layout import Layout
from boundlab.rules.arguments import parameters
from boundlab.rules.structure.site import Meets, Site, Structure

# -- layouts in other places -----------------------------------------------------------------------


def placed(layout: Layout | None, dim: int) -> Layout | None:
    """The layout with its samples in dimension ``dim``; None without samples."""
    if layout is None:
        return None
    return replace(layout, dim=dim)


def shifted(layout: Layout | None, by: int) -> Layout | None:
    """The layout with its samples so many dimensions further back; None without samples."""
    if layout is None:
        return None
    return replace(layout, dim=layout.dim + by)


def without(layout: Layout, dims: Iterable[int]) -> Layout:
    """The layout after other dimensions than that of the samples have been dropped."""
    return replace(layout, dim=layout.dim - sum(dim < layout.dim for dim in set(dims)))


# -- forms -----------------------------------------------------------------------------------------


def samples_first(site: Site) -> Layout | None:
    """What the registration of a rule states unless there is a row for its operator: dimension 0 of
    every argument with samples counts them, and the operator is parallel along it."""
    if any(layout not in (None, Layout()) for layout in map(site.layouts.get, site.tensors)):
        raise Meets("its samples do not lie in dimension 0 alone")
    return site.agreed(site.layouts.get(name) for name in site.tensors)


def broadcast(site: Site, name: str) -> Layout | None:
    """The layout of an argument in the result, which it broadcasts to."""
    layout = site.layouts.get(name)
    if layout is None:
        return None
    return shifted(layout, len(site.out) - len(site.shapes[name]))


def pointwise(site: Site) -> Layout | None:
    return site.agreed(broadcast(site, name) for name in site.tensors)


def beside(site: Site, x: Ref, acts: Iterable[int], kept: bool = True) -> Layout | None:
    """The layout of x, if the operator acts along other dimensions; these stay where they are, or
    are dropped."""
    layout = site.layout(x)
    if layout is None:
        return None
    acts = set(acts)
    if layout.dim in acts:
        raise Meets("it acts along the dimension that carries the samples")
    if not kept:
        layout = without(layout, acts)
    return site.agreed([layout])


def along(dim: str, *, kept: bool = True, whole: Collection[object] = (None,)) -> Structure:
    """Acts along the dimensions that an argument names, and reads nothing else with samples. kept:
    whether they stay; ``keepdim`` decides if the operator has it. whole: the values of that
    argument that stand for all dimensions."""

    def find(site: Site) -> Layout | None:
        x = site.node.args[0]
        site.plain(*site.node.args[1:], *site.node.kwargs.values())
        given = site[dim]
        if given in whole:
            given = None
        stays = kept
        if "keepdim" in parameters(site.node.op):
            stays = bool(site["keepdim"])
        return beside(site, x, site.dims(x, given), stays)

    return find


def trailing(count: int) -> Structure:
    """Acts along so many of the last dimensions, and reads nothing else with samples."""

    def find(site: Site) -> Layout | None:
        x = site.node.args[0]
        site.plain(*site.node.args[1:], *site.node.kwargs.values())
        dims = len(site.shape(x))
        return beside(site, x, range(dims - count, dims))

    return find


def whole(site: Site) -> Layout | None:
    """Reads everything at once."""
    site.plain(*map(Ref, site.tensors))
    return None


def constant(site: Site) -> Layout | None:
    """A value that is the same whatever the samples are: they may be taken to lie in a dimension
    that grows with the batch."""
    found = [dim for dim, size in enumerate(site.out) if size == site.samples]
    if len(found) != 1:
        return None
    return Layout(found[0])
