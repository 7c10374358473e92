"""The soundness contract (what every bound must satisfy), as functions that attack a captured
model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import boundlab as bl
from boundlab.methods.engine import METHODS
from boundlab.relaxations.interval import Interval

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def slack(*tensors: Tensor) -> Tensor:
    """What rounding may cost: relative to the size of the values, absolute below 1."""
    size = torch.stack(
        [
            t.detach().abs().nan_to_num(0, 0, 0).amax()
            if t.numel()
            else torch.zeros((), dtype=t.dtype)
            for t in tensors
        ]
    ).amax()
    return TOLERANCE[tensors[0].dtype] * (1 + size)


def members(region: bl.Region, count: int, seed: int, batched: bool = True) -> list[Tensor]:
    """Members of a region: its centre, random ones, and for boxes vertices and the two extreme
    corners."""
    generator = torch.Generator().manual_seed(seed)
    found = [region.centre]
    found += [region.sample(generator, batched) for _ in range(count)]
    if region.is_box:
        box = region.hull()
        found += [box.lower, box.upper]
        for _ in range(count):
            pick = torch.rand(box.shape, generator=generator) < 0.5
            found.append(torch.where(pick, box.lower, box.upper))
    else:
        found += boundary_members(region, count, generator, batched)
    return [point.detach() for point in found]


def boundary_members(
    region: bl.Region, count: int, generator: torch.Generator, batched: bool
) -> list[Tensor]:
    """Points of a norm ball's boundary: along one axis (extreme for L1), along signs, and in random
    directions."""
    if not hasattr(region, "order") or region.lower is not None or region.upper is not None:  # type: ignore[attr-defined]
        return []
    x, p = region.centre, region.order  # type: ignore[attr-defined]
    eps = torch.as_tensor(region.eps, dtype=x.dtype)  # type: ignore[attr-defined]
    eps = (
        eps.reshape(-1, *[1] * (x.dim() - 1))
        if eps.dim() == 1 and x.dim() > 1 and eps.shape[0] == x.shape[0]
        else eps
    )
    samples = x.shape[0] if batched and x.dim() else 1
    found = []
    for i in range(count):
        flat = torch.zeros(samples, x.numel() // max(samples, 1), dtype=x.dtype)
        if i % 2 and flat.shape[1]:
            axis = torch.randint(flat.shape[1], (samples, 1), generator=generator)
            flat.scatter_(
                1,
                axis,
                torch.where(torch.rand(samples, 1, generator=generator) < 0.5, -1.0, 1.0).to(
                    x.dtype
                ),
            )
        else:
            flat = torch.randn(flat.shape, generator=generator, dtype=x.dtype)
        norm = (
            torch.linalg.vector_norm(flat, p, dim=1, keepdim=True)
            if flat.shape[1]
            else torch.ones(samples, 1, dtype=x.dtype)
        )
        step = (flat / norm.clamp(min=1e-30)).reshape(x.shape) * eps
        found.append(x + step * (1 - 4 * torch.finfo(x.dtype).eps))
    return found


def extremes(f: Callable[[Tensor], Tensor], region: bl.Region, steps: int = 5) -> list[Tensor]:
    """Members of a box that gradient ascent finds for random directions of the output."""
    if not region.is_box:
        return []
    box, found = region.hull(), []
    for sign in (1.0, -1.0):
        x = region.centre.detach().clone()
        for _ in range(steps):
            x = x.detach().requires_grad_()
            y = pytree.tree_leaves(f(x))[0]
            if not y.requires_grad:
                return found
            (gradient,) = torch.autograd.grad(sign * y.sum(), x, allow_unused=True)
            if gradient is None:
                return found
            x = torch.minimum(torch.maximum(x + box.radius * gradient.sign(), box.lower), box.upper)
        found.append(x.detach())
    return found


def assert_inside(value: Tensor, lower: Tensor, upper: Tensor, what: str) -> None:
    """lower <= value <= upper up to rounding; NaN bounds fail, infinite bounds claim nothing."""
    assert value.shape == lower.shape == upper.shape, (
        f"{what}: shapes {value.shape}, {lower.shape}, {upper.shape}"
    )
    if value.numel() == 0:
        return
    if not value.dtype.is_floating_point:
        assert bool((lower <= value).all() and (value <= upper).all()), what
        return
    finite = torch.isfinite(value)
    assert not (torch.isnan(lower) | torch.isnan(upper))[finite].any(), f"{what}: NaN bounds"
    room = slack(value, lower, upper)
    below = torch.where(finite, lower - value, -1).max()
    above = torch.where(finite, value - upper, -1).max()
    assert below <= room, f"{what}: value below the lower bound by {float(below):.3e}"
    assert above <= room, f"{what}: value above the upper bound by {float(above):.3e}"


def assert_close(a: Tensor, b: Tensor, factor: float = 3.0) -> None:
    """Equal up to some times what rounding may cost."""
    assert a.shape == b.shape, f"shapes {a.shape}, {b.shape}"
    apart = (a - b).detach().abs().max()
    assert apart <= factor * slack(a.detach(), b.detach()), f"apart by {float(apart):.3e}"


def steps(method: str) -> bl.Alpha | None:
    """Few steps: enough to move every slope."""
    return bl.Alpha(iterations=2, inner=1) if method == "alpha-crown" else None


def check_sound(
    f: Callable[..., Any],
    entries: tuple[Any, ...],
    *,
    methods: tuple[str, ...] | None = None,
    perturb: Mapping[str, bl.Region] | None = None,
    count: int = 12,
    seed: int = 0,
    net: bl.Net | None = None,
    nodes: bool = True,
) -> dict[str, Any]:
    """Attack the bounds of ``f`` for one entry (region or tensor) per input, by every method and at
    every node.

    methods: all, but alpha-crown on graphs of up to 60 nodes only (tests of it have larger ones).
    Also: CROWN inside IBP, forward+backward inside forward, linear bounds true pointwise. Returns
    bounds by method.
    """
    centres = tuple(e.centre if isinstance(e, bl.Region) else e for e in entries)
    net = bl.capture(f, *centres) if net is None else net
    if methods is None:
        methods = (
            METHODS
            if len(net.graph.nodes) <= 60
            else tuple(method for method in METHODS if method != "alpha-crown")
        )
    results: dict[str, Any] = {}
    points = _points(f, entries, count, seed, net.graph.batched)
    truths = [
        pytree.tree_map(lambda y: y.detach(), pytree.tree_leaves(f(*point))) for point in points
    ]
    inside = [_node_values(net, point) for point in points] if nodes and perturb is None else []
    for method in methods:
        # whose outputs alone are attacked: its intermediate bounds are what they stand on
        optimised = method == "alpha-crown"
        with torch.set_grad_enabled(torch.is_grad_enabled() and not optimised):
            bounds = net.bounds(
                *entries,
                method=method,
                perturb=perturb,
                intermediates=not optimised,
                alpha=steps(method),
            )
        results[method] = bounds
        for truth in truths:
            for value, bound in zip(truth, _leaves(bounds), strict=True):
                assert_inside(
                    value, bound.lower.detach(), bound.upper.detach(), f"{method}, output"
                )
        for values in inside if not optimised else ():
            _check_nodes(net, values, _leaves(bounds)[0].intermediates, method)
    if {"ibp", "crown"} <= set(results):
        _check_nested(results["crown"], results["ibp"], "crown inside ibp")
    # crown as asked for outputs only, which leaves decided elements alone
    if {"alpha-crown", "crown"} <= set(results):
        with torch.no_grad():
            _check_nested(
                results["alpha-crown"],
                net.bounds(*entries, method="crown", perturb=perturb),
                "alpha-crown inside crown",
            )
    if {"forward", "forward+backward"} <= set(results):
        _check_nested(
            results["forward+backward"], results["forward"], "forward+backward inside forward"
        )
    if (
        perturb is None
        and len(_leaves(next(iter(results.values())))) == 1
        and net._outputs.is_leaf()
    ):
        _check_linear(net, entries, points, truths)
    return results


def _points(
    f: Callable[..., Any], entries: tuple[Any, ...], count: int, seed: int, batched: bool
) -> list[tuple[Any, ...]]:
    lists = [
        members(e, count, seed + i, batched) if isinstance(e, bl.Region) else None
        for i, e in enumerate(entries)
    ]
    longest = max(len(points) for points in lists if points is not None)
    points = [
        tuple(p[k % len(p)] if p is not None else e for p, e in zip(lists, entries, strict=True))
        for k in range(longest)
    ]
    if len(entries) == 1:
        points += [(x,) for x in extremes(f, entries[0])]
    return points


def _leaves(bounds: Any) -> list[bl.Bounds]:
    return [
        leaf
        for leaf in pytree.tree_leaves(bounds, is_leaf=lambda b: isinstance(b, bl.Bounds))
        if isinstance(leaf, bl.Bounds)
    ]


def _node_values(net: bl.Net, point: tuple[Any, ...]) -> dict[str, Any]:
    values = net._read_state() | dict(zip(net.graph.inputs, pytree.tree_leaves(point), strict=True))
    with torch.no_grad():
        return net.graph.run(values)


def _check_nodes(
    net: bl.Net, truth: Mapping[str, Any], known: Mapping[str, bl.Bounds], method: str
) -> None:
    for name in net.graph.nodes:
        if name in known and isinstance(truth[name], Tensor):
            assert_inside(
                truth[name],
                known[name].lower.detach(),
                known[name].upper.detach(),
                f"{method}, node {net.graph.nodes[name]}",
            )


def _check_nested(inner: Any, outer: Any, what: str) -> None:
    """Wherever the outer bound is finite; an infinite one claims nothing."""
    for a, b in zip(_leaves(inner), _leaves(outer), strict=True):
        if a.lower.numel() and a.lower.dtype.is_floating_point:
            room = slack(b.lower, b.upper)
            below = torch.isfinite(b.lower) & ~(a.lower >= b.lower - room)
            above = torch.isfinite(b.upper) & ~(a.upper <= b.upper + room)
            assert not below.any() and not above.any(), what


def _check_linear(
    net: bl.Net, entries: tuple[Any, ...], points: list[tuple[Any, ...]], truths: list[Any]
) -> None:
    try:
        lines = net.linear_bounds(*entries)
    except bl.ArgumentError as error:  # of all causes only this one, and only if it is so
        assert str(error) == "the output does not depend on anything that is perturbed", error
        for truth, *_ in truths:
            torch.testing.assert_close(truth, truths[0][0], rtol=0, atol=0, equal_nan=True)
        return
    for point, (truth, *_) in zip(points, truths, strict=True):
        values = {
            name: x
            for name, x in zip(net.graph.inputs, point, strict=True)
            if name in lines.lower_A
        }
        line = lines.evaluate(values)
        if truth.dtype.is_floating_point:
            node = net.graph.nodes[net.graph.outputs[0].name]
            if node.layout is None or (
                node.layout.dim == 0 and node.layout.inner * node.layout.outer == 1
            ):
                assert_inside(
                    truth, line.lower.detach(), line.upper.detach(), "linear bounds, pointwise"
                )


def check_point(f: Callable[[Tensor], Any], x: Tensor, methods: tuple[str, ...] = METHODS) -> None:
    """With radius 0 both bounds equal f(x)."""
    net = bl.capture(f, x)
    truth = [y for y in pytree.tree_leaves(f(x)) if isinstance(y, Tensor)]
    for method in methods:
        for value, bound in zip(
            truth,
            _leaves(net.bounds(bl.Linf(x, 0.0), method=method, alpha=steps(method))),
            strict=True,
        ):
            if value.dtype.is_floating_point and torch.isfinite(value).all():
                room = 10 * slack(value)
                assert (bound.lower - value).abs().max() <= room, (
                    f"{method}: radius 0, lower differs by {(bound.lower - value).abs().max():.3e}"
                )
                assert (bound.upper - value).abs().max() <= room, (
                    f"{method}: radius 0, upper differs by {(bound.upper - value).abs().max():.3e}"
                )


__all__ = [
    "METHODS",
    "Interval",
    "assert_inside",
    "check_point",
    "check_sound",
    "extremes",
    "members",
    "slack",
    "steps",
]
