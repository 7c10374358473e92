"""The soundness contract (what every bound must satisfy), as functions that attack a captured
model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import boundlab as bl
from boundlab.methods.method import METHODS as ROWS
from boundlab.relaxations.interval import Interval

APART = ("beta-crown", "forward+crown")
"""Methods with tests of their own: tests/methods/test_state.py and test_method.py."""
METHODS = {name: row for name, row in ROWS.items() if name not in APART}
"""The methods that everything is attacked with. beta-crown is alpha-crown with other intermediate
bounds: tests/methods/test_state.py attacks it, where there are splits."""

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}


def slack(*tensors: Tensor) -> Tensor:
    """What rounding may cost each element: relative to its own size, absolute below 1."""
    sizes = [tensor.detach().abs().nan_to_num(0, 0, 0) for tensor in tensors]
    return TOLERANCE[tensors[0].dtype] * (1 + functools.reduce(torch.maximum, sizes))


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


def assert_inside(
    value: Tensor, lower: Tensor, upper: Tensor, what: str, room: Tensor | None = None
) -> None:
    """lower <= value <= upper up to rounding; NaN bounds fail, infinite bounds claim nothing.
    room: what rounding may cost, where it is not relative to the bounds themselves."""
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
    room = slack(value, lower, upper) if room is None else room
    below = torch.where(finite, lower - value, -torch.inf)
    above = torch.where(finite, value - upper, -torch.inf)
    assert_within(below, room, f"{what}: value below the lower bound")
    assert_within(above, room, f"{what}: value above the upper bound")


def assert_all_inside(values: Tensor, lower: Tensor, upper: Tensor, what: str) -> None:
    """The same for values at many points, stacked."""
    assert values.shape[1:] == lower.shape == upper.shape, (
        f"{what}: shapes {values.shape[1:]}, {lower.shape}, {upper.shape}"
    )
    assert_inside(values, lower.expand_as(values), upper.expand_as(values), what)


def assert_within(excess: Tensor, room: Tensor, what: str) -> None:
    """The message names the element that exceeds its room most."""
    if not (excess <= room).all():
        ratio = (excess / room).nan_to_num(torch.inf).flatten()
        worst = int(ratio.argmax())
        by, allowed = float(excess.flatten()[worst]), float(room.flatten()[worst])
        raise AssertionError(f"{what} by {by:.3e}, where {allowed:.3e} is allowed")


def assert_close(a: Tensor, b: Tensor, factor: float = 3.0, what: str = "two tensors") -> None:
    """Equal up to some times what rounding may cost each element."""
    assert a.shape == b.shape, f"{what}: shapes {tuple(a.shape)} and {tuple(b.shape)}"
    assert_within((a - b).detach().abs(), factor * slack(a, b), f"{what}: apart")


def steps(method: str) -> bl.Alpha | None:
    """Few steps: enough to move every slope."""
    return bl.Alpha(iterations=2, inner=1) if METHODS[method].optimize else None


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
    outputs = [torch.stack(values) for values in zip(*truths, strict=True)]
    inside = _node_values(net, points) if nodes and perturb is None else {}
    for method in methods:
        # whose outputs alone are attacked: its intermediate bounds are what they stand on
        optimised = METHODS[method].optimize
        with torch.set_grad_enabled(torch.is_grad_enabled() and not optimised):
            bounds = net.bounds(
                *entries,
                method=method,
                perturb=perturb,
                intermediates=not optimised,
                alpha=steps(method),
            )
        results[method] = bounds
        for values, bound in zip(outputs, _leaves(bounds), strict=True):
            assert_all_inside(
                values, bound.lower.detach(), bound.upper.detach(), f"{method}, output"
            )
        if not optimised:
            _check_nodes(net, inside, _leaves(bounds)[0].intermediates, method)
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
        and net.captured.outputs.is_leaf()
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


def _node_values(net: bl.Net, points: list[tuple[Any, ...]]) -> dict[str, Tensor]:
    """Node -> its values at all points, stacked; of nodes that are tensors."""
    parameters = net.reader.parameters()
    runs = []
    for point in points:
        inputs = dict(zip(net.graph.inputs, pytree.tree_leaves(point), strict=True))
        with torch.no_grad():
            runs.append(net.graph.run(parameters | inputs))
    return {
        name: torch.stack([run[name] for run in runs])
        for name in net.graph.nodes
        if isinstance(runs[0][name], Tensor)
    }


def _check_nodes(
    net: bl.Net, values: Mapping[str, Tensor], known: Mapping[str, bl.Bounds], method: str
) -> None:
    for name in values:
        if name in known:
            assert_all_inside(
                values[name],
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
        if str(error) != "the output does not depend on anything that is perturbed":
            raise
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
        if truth.dtype.is_floating_point and truth.numel():
            node = net.graph.nodes[net.graph.outputs[0].name]
            if not node.layout.batched or node.layout.plain:
                assert_inside(
                    truth,
                    line.lower.detach(),
                    line.upper.detach(),
                    "linear bounds, pointwise",
                    _room_of_lines(lines, values, truth, line),
                )


def _room_of_lines(
    lines: bl.LinearBounds, values: Mapping[str, Tensor], truth: Tensor, line: bl.Bounds
) -> Tensor:
    """A line is a sum of terms that may cancel (those of prod in single precision are 80 times as
    large as their sum): rounding is relative to the terms. But at most to the largest value."""
    absolute = lambda table: {name: matrix.abs() for name, matrix in table.items()}
    terms = replace(
        lines,
        lower_A=absolute(lines.lower_A),
        lower_b=lines.lower_b.abs(),
        upper_A=absolute(lines.upper_A),
        upper_b=lines.upper_b.abs(),
    ).evaluate(absolute(values))
    in_terms = slack(*(end.to(truth.dtype) for end in terms))  # with the precision of the values
    return torch.minimum(in_terms, slack(truth, *line).max())


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
                for end, side in zip(bound, ("lower", "upper"), strict=True):
                    apart = (end - value).detach().abs()
                    assert_within(apart, room, f"{method}: with radius 0 {side} differs")


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
