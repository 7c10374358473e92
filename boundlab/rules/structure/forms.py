"""The structures that many operators share."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from boundlab.graph.layout import Layout
from boundlab.rules.arguments import parameters
from boundlab.rules.structure.site import Meets, Site, Structure


def samples_first(site: Site) -> Layout | None:
    """What the registration of a rule states unless there is a row for its operator: dimension 0 of
    every argument with samples counts them, and the operator is parallel along it."""
    if any(layout not in (None, Layout()) for layout in map(site.layouts.get, site.tensors)):
        raise Meets("its samples do not lie in dimension 0 alone")
    return site.agreed(site.layouts.get(name) for name in site.tensors)


def broadcast(site: Site, name: str, dims: int) -> Layout | None:
    """The layout of an argument in a result of ``dims`` dimensions that it broadcasts to."""
    layout = site.layouts.get(name)
    return (
        None if layout is None else replace(layout, dim=layout.dim + dims - len(site.shapes[name]))
    )


def pointwise(site: Site) -> Layout | None:
    return site.agreed(broadcast(site, name, len(site.out)) for name in site.tensors)


def beside(site: Site, x: Any, acts: Iterable[int], kept: bool = True) -> Layout | None:
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
        return beside(site, x, acts, stays)

    return find


def trailing(count: int) -> Structure:
    """Acts along so many of the last dimensions, and reads nothing else with samples."""

    def find(site: Site) -> Layout | None:
        x = site.node.args[0]
        site.plain(*site.node.args[1:], *site.node.kwargs.values())
        dims = len(site.shape(x))
        return beside(site, x, range(dims - count, dims))

    return find


def constant(site: Site) -> Layout | None:
    """A value that is the same whatever the samples are: they may be taken to lie in a dimension
    that grows with the batch."""
    found = [dim for dim, size in enumerate(site.out) if size == site.samples]
    return Layout(found[0]) if len(found) == 1 else None
