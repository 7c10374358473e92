"""The methods by name: which bounds intermediate nodes get, and how the output is bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.errors import ArgumentError, DomainError
from boundlab.graph.graph import Node
from boundlab.graph.layout import Layout
from boundlab.kernels.fused import absolute_dots
from boundlab.kernels.reductions import all_finite, common, repeats
from boundlab.methods import backward, refine
from boundlab.methods.alpha import Alpha, Alphas, climb_node, climb_rows
from boundlab.methods.analysis import Analysis
from boundlab.methods.choices import ExactPerPosition
from boundlab.methods.forward import ForwardBounds
from boundlab.methods.memory import rows_at_once
from boundlab.methods.plan import Plan
from boundlab.regions import Region
from boundlab.regions.base import inner
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.relaxation import AffineMap, dense

METHODS = ("ibp", "forward", "crown", "crown-ibp", "forward+backward", "alpha-crown")
AFFORDABLE = 1 << 26
"""The size of coefficients up to which interval arithmetic asks a region that is not a box for
exact affine bounds."""


@dataclass(frozen=True, eq=False)
class Question:
    """Everything one call asks."""

    plan: Plan
    values: Mapping[str, Any]
    regions: Mapping[str, Region]
    samples: int
    method: str
    memory: int
    slopes: str = "adaptive"
    alpha: Alpha = field(default_factory=Alpha)
    start: Mapping[str, Mapping[str, Tensor]] | None = None
    """Numbers of an earlier result of "alpha-crown" to start from, by output."""
    clean: Mapping[str, Tensor] | None = None
    """Values for the clean input of the nodes that train-mode statistics are taken from, if they
    are known."""
    thorough: bool = False
    """Bound every element of the nodes that relaxations read, not only those that can change
    one."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What is known of every node, and in forward mode its linear bounds."""

    analysis: Analysis
    forward_bounds: ForwardBounds | None
    question: Question
    base: Answer | None = None
    """The answer of "crown", which "alpha-crown" makes better."""
    others: tuple[Answer, ...] = ()
    """Answers to looser questions, which are true as well: tighter intervals make other lines,
    which need not suit every output better."""
    alphas: dict[str, Alphas] = field(default_factory=dict)
    """The free numbers of the relaxations that "alpha-crown" has found, by output and side."""

    @property
    def method(self) -> str:
        return self.question.method


def analyse(question: Question) -> Answer:
    """Bound every node that the targets depend on by the means of the method."""
    analysis = Analysis(
        question.plan,
        dict(question.values),
        question.regions,
        question.samples,
        question.slopes,
        question.memory,
        question.clean,
    )
    versions = ExactPerPosition.of(analysis)
    forward_bounds = ForwardBounds(analysis) if question.method.startswith("forward") else None
    base = analyse(replace(question, method="crown")) if question.method == "alpha-crown" else None
    if (
        base is not None
        and question.start is None
        and not (question.alpha.iterations or question.alpha.inner_steps)
    ):
        return base  # no step to take

    refined: set[str] = set()

    def tighten(analysis: Analysis, node: Node, interval: Interval) -> Interval:
        analysis.values[node.name] = interval
        if forward_bounds is not None:
            forward_bounds.add(node, interval)
        exact = None if versions is None else versions.bound(node, interval)
        if exact is not None:
            return interval.intersect(
                exact.loosened(interval) if node.name in analysis.plan.before_jumps else exact
            )
        wanted = (
            node.name in analysis.plan.readers
            and interval.dtype.is_floating_point
            and node.name not in analysis.regions
        )
        if not wanted or node.name in analysis.plan.exact:
            return interval
        if forward_bounds is not None:
            found = forward_bounds.interval(node)
        elif base is not None:
            analysis.values[node.name] = found = interval.intersect(
                base.analysis.interval(node.name)
            )
            if node.name not in analysis.plan.affine_only:
                found = climb_node(
                    analysis,
                    node.name,
                    question.alpha,
                    None if question.thorough else partial(analysis.unstable, node.name),
                )
        elif question.method == "crown" or _bends_nothing(analysis, node):
            thorough = question.thorough or question.method != "crown"
            refined.add(node.name)
            found = refine.bound_node(
                analysis,
                node.name,
                unstable=None if thorough else partial(analysis.unstable, node.name),
            )
        else:
            return interval
        return interval.intersect(
            found.loosened(interval) if node.name in analysis.plan.before_jumps else found
        )

    analysis.fill(tighten)
    bends = question.method == "crown" and any(
        name not in analysis.plan.affine_only for name in refined
    )
    return Answer(
        analysis, forward_bounds, question, base, others=_answers(_looser(question, bends))
    )


def _answers(questions: list[Question]) -> tuple[Answer, ...]:
    """Those that there are: a larger region may leave the domain of an operator."""
    found = []
    for question in questions:
        with suppress(DomainError):
            found.append(analyse(question))
    return tuple(found)


def _looser(question: Question, refined: bool) -> list[Question]:
    """Questions whose answers must not be better than that of this one: "crown-ibp" beside a
    "crown" that has refined intervals, and both beside larger regions."""
    found = [replace(question, method="crown-ibp")] if refined else []
    wider = {name: region.wider() for name, region in question.regions.items()}
    if question.method in ("crown", "crown-ibp") and any(wider.values()):
        for k in range(max(map(len, wider.values()))):
            regions = {
                name: wider[name][k] if k < len(wider[name]) else region
                for name, region in question.regions.items()
            }
            boxes = frozenset(name for name, region in regions.items() if region.is_box)
            balls = frozenset(name for name, region in regions.items() if region.reach_is_exact)
            plan = replace(question.plan, boxes=boxes, balls=balls, _behind={})
            found.append(replace(question, regions=regions, plan=plan))
    return found


def _bends_nothing(analysis: Analysis, node: Node) -> bool:
    """Whether interval arithmetic should ask the region itself: the node is an affine function of
    sources that are not boxes (an L2 ball), whose hull would lose the norm, and the coefficients
    are affordable."""
    if node.name not in analysis.plan.affine_only:
        return False
    sources = [name for name in analysis.plan.behind(node.name) if name in analysis.regions]
    if all(analysis.regions[name].is_box for name in sources):
        return False
    columns = sum(analysis.interval(name).shape.numel() for name in sources)
    return analysis.interval(node.name).shape.numel() * columns <= AFFORDABLE * max(
        analysis.samples, 1
    )


def output_bounds(answer: Answer, target: str, sides: str) -> Interval:
    """Bounds of every element of an output node."""
    analysis = answer.analysis
    if target not in analysis.plan.variable:
        value = analysis.values[target]
        return Interval(value, value)
    node, interval = analysis.graph.nodes[target], analysis.interval(target)
    if target in analysis.regions or not interval.dtype.is_floating_point:
        return interval
    if answer.forward_bounds is not None:
        interval = interval.intersect(answer.forward_bounds.interval(node))
    backward_mode = answer.method not in ("ibp", "forward")
    if (backward_mode and target not in analysis.plan.exact) or _bends_nothing(analysis, node):
        if answer.base is None:
            interval = interval.intersect(refine.bound_node(analysis, target, sides))
        else:
            interval = output_bounds(answer.base, target, sides)
            interval = (
                interval
                if target in analysis.plan.affine_only
                else interval.intersect(_climbed(answer, target, sides))
            )
    for other in answer.others:
        interval = interval.intersect(output_bounds(other, target, sides))
    return interval


def _climbed(answer: Answer, target: str, sides: str) -> Interval:
    """Bounds of every element of an output node with optimised slopes."""
    analysis, elements = answer.analysis, refine.Elements(answer.analysis, target)
    rows = refine.identity_rows(analysis, target)
    infinite = torch.full_like(analysis.interval(target).lower, torch.inf)
    found = {"lower": -infinite, "upper": infinite}
    for side, sign in (("lower", 1), ("upper", -1)):
        if side in _sides(answer, sides):
            found[side] = sign * elements.join(
                _climb(answer, target, side, sign * rows).T.to(infinite.dtype)
            )
    return Interval(found["lower"], found["upper"])


def _sides(answer: Answer, asked: str) -> set[str]:
    """The sides that are asked for and worth optimising."""
    both = {"lower", "upper"}
    return (both if asked == "both" else {asked}) & (
        both if answer.question.alpha.sides == "both" else {answer.question.alpha.sides}
    )


def _climb(answer: Answer, target: str, side: str, rows: Tensor) -> Tensor:
    """Lower bounds of rows of an output with optimised slopes; notes the numbers that give them."""
    key = f"{target}, {side}"
    start = None if answer.question.start is None else answer.question.start.get(key)
    bounds, answer.alphas[key] = climb_rows(
        answer.analysis, target, rows, answer.question.alpha, start
    )
    return bounds


def spec_rows(answer: Answer, target: str, spec: Tensor) -> Tensor:
    """A specification (specs, out) or (samples, specs, out) as rows of the output node."""
    analysis = answer.analysis
    node, like = analysis.graph.nodes[target], _tensor(analysis, target)
    samples = analysis.samples if node.layout is not None else 1
    size = like.numel() // max(samples, 1)
    if spec.dim() == 2:
        spec = spec[None].expand(samples, -1, -1)
    if spec.dim() != 3 or spec.shape[0] != samples or spec.shape[2] != size:
        raise ArgumentError(
            f"spec must have the shape (specs, {size}) or ({samples}, specs, {size}), as the "
            f"output has {size} elements a sample; got {tuple(spec.shape)}"
        )
    rows = spec.to(like).transpose(0, 1)  # (specs, samples, out)
    return (
        rows.reshape(-1, 1, *like.shape)
        if node.layout is None
        else node.layout.place(rows, like.shape)
    )


def _tensor(analysis: Analysis, name: str) -> Tensor:
    value = analysis.values[name]
    return value.lower if isinstance(value, Interval) else value


def spec_bounds(answer: Answer, target: str, spec: Tensor, sides: str) -> Interval:
    """Bounds of ``spec @ output``: (samples, specs)."""
    rows = spec_rows(answer, target, spec)
    if not len(rows):
        empty = torch.zeros(
            spec.shape[0] if spec.dim() == 3 else answer.analysis.samples,
            0,
            dtype=rows.dtype,
            device=rows.device,
        )
        return Interval(empty, empty)
    below = lower_rows(answer, target, rows, "lower") if sides != "upper" else None
    above = -lower_rows(answer, target, -rows, "upper") if sides != "lower" else None
    like = below if below is not None else above
    assert like is not None
    low = torch.full_like(like, -torch.inf) if below is None else below
    up = torch.full_like(like, torch.inf) if above is None else above
    return Interval(torch.minimum(low, up).T, torch.maximum(low, up).T)


def lower_rows(answer: Answer, target: str, rows: Tensor, side: str = "lower") -> Tensor:
    """Lower bounds of rows (rows, *shape) of the output by the method: (rows, samples)."""
    analysis = answer.analysis
    node = analysis.graph.nodes[target]
    if target not in analysis.plan.variable:
        product = rows * analysis.values[target]
        return (
            product.flatten(2).sum(2)
            if node.layout is None
            else node.layout.sum(product, analysis.samples)
        )
    if answer.base is not None:
        crown = lower_rows(answer.base, target, rows, side)
        if target in analysis.plan.affine_only or side not in _sides(answer, "both"):
            return crown
        return torch.fmax(crown, _climb(answer, target, side, rows))
    if answer.method in ("ibp", "forward"):
        best = _through_tail(analysis, target, rows, further=False)
    else:
        parts = rows.split(rows_at_once(analysis, target, len(rows)))
        best = torch.cat([_through_tail(analysis, target, part, further=True) for part in parts])
    if answer.forward_bounds is not None:
        known = analysis.interval(target).intersect(answer.forward_bounds.interval(node))
        best = torch.fmax(best, _forward_rows(answer.forward_bounds, node, rows))
        best = torch.fmax(best, backward.interval_rows(analysis, target, rows, known))
    for other in answer.others:
        best = torch.fmax(best, lower_rows(other, target, rows, side))
    return best


def _through_tail(analysis: Analysis, target: str, rows: Tensor, further: bool) -> Tensor:
    """Interval bounds of rows of the output, with the affine operators at its end merged into the
    rows: at least as tight as bounding the output first. Ends at nodes before which nothing can be
    gained and takes their intervals.

    further: goes on from there to the sources, and takes the better one of both bounds.
    """
    bent = lambda name: (
        name in analysis.plan.settled or not analysis.interval(name).dtype.is_floating_point
    )
    ends, bias = backward.propagate_backward(analysis, target, rows, stop=bent)
    best = bias
    for name, part in ends.items():
        if name in analysis.regions:
            best = best + analysis.regions[name].least(part)
            continue
        best = best + backward.interval_rows(
            analysis,
            name,
            part if isinstance(part, Window) else backward.dense(part),
            analysis.interval(name),
        )
    if further and any(name not in analysis.regions for name in ends):
        best = torch.fmax(
            best, backward.concretize(analysis, *backward.propagate_from(analysis, ends, bias))
        )
    return best


def differences(answer: Answer, target: str, labels: Tensor) -> Interval:
    """Interval bounds of z_k = f_k - f_y for all classes k: (samples, classes), exactly 0 for k =
    y.

    The affine operators at the end are merged: both f_k and f_y are pulled back through them, and
    |a_k - a_y| serves both sides. Costs as much as one row for each class, but only from where the
    operators at the end begin.
    """
    analysis = answer.analysis
    classes, samples = analysis.interval(target).shape[1], analysis.samples
    every = torch.arange(classes, device=labels.device)[:, None].expand(-1, samples)
    pulled = [_units(analysis, target, chosen) for chosen in (every, labels[None])]
    (ends, bias), (label_ends, label_bias) = pulled
    centre, radius = bias - label_bias, torch.zeros_like(bias)
    for name in {**ends, **label_ends}:
        own, other = (
            backward.dense(found[name]) if name in found else bias.new_zeros(())
            for found in (ends, label_ends)
        )
        middle, reach = analysis.interval(name).ball
        layout = analysis.graph.nodes[name].layout
        dot = (
            inner
            if layout is None
            else lambda rows, value, layout=layout: layout.dot(rows, value, samples)
        )
        if (
            layout == Layout()
            and name in ends
            and name in label_ends
            and repeats(own)
            and all_finite(middle, reach)
        ):
            rows = common(own).flatten(1)
            centre = centre + rows @ middle.flatten(1).T - dot(other, middle)
            radius = radius + absolute_dots(rows, other[0].flatten(1), reach.flatten(1))
        else:
            centre = (
                centre
                + (dot(own, middle) if name in ends else 0)
                - (dot(other, middle) if name in label_ends else 0)
            )
            radius = radius + dot((own - other).abs(), reach)
    same = every == labels
    centre, radius = centre.masked_fill(same, 0.0), radius.masked_fill(same, 0.0)
    return Interval((centre - radius).T, (centre + radius).T)


def _units(
    analysis: Analysis, target: str, chosen: Tensor
) -> tuple[dict[str, backward.Ends], Tensor]:
    """One element of the output a row and sample, pulled back through the affine operators at its
    end."""
    like = analysis.interval(target).lower
    rows = Window.units(
        torch.ones((), dtype=like.dtype, device=like.device).expand(chosen.shape),
        chosen,
        like.shape[1:],
    )
    # whatever is not affine ends here, truth values read as numbers too: their lines are one-sided
    bent = lambda name: (
        name in analysis.plan.settled or not isinstance(analysis.relaxation(name), AffineMap)
    )
    return backward.propagate_backward(analysis, target, rows, stop=bent)


def _forward_rows(forward_bounds: ForwardBounds, node: Node, rows: Tensor) -> Tensor:
    """Lower bounds of rows of the output from its linear bounds in the sources."""
    analysis = forward_bounds.analysis
    samples = analysis.samples if node.layout is not None else 1
    lower, upper = dense(forward_bounds.lower[node.name]), dense(forward_bounds.upper[node.name])
    by_sample: Callable[[Tensor], Tensor] = (
        (lambda t: t.reshape(t.shape[0], 1, -1))
        if node.layout is None
        else (lambda t: node.layout.samples_first(t, samples))  # type: ignore[union-attr]
    )
    c = by_sample(rows.squeeze(1) if node.layout is None else rows)  # (rows, samples, out)
    low, up = by_sample(lower), by_sample(upper)  # (columns + 1, samples, out)
    merged = torch.einsum("rso,cso->crs", c.clamp(min=0), low) + torch.einsum(
        "rso,cso->crs", c.clamp(max=0), up
    )
    total, start = merged[-1], 0
    for name, region in analysis.regions.items():
        size = forward_bounds.width(name)
        shape = region.centre.shape
        shape = shape[1:] if analysis.graph.nodes[name].layout is not None else shape
        # else the node cannot depend on it
        if node.layout is not None or analysis.graph.nodes[name].layout is None:
            total = total + region.minimum(
                merged[start : start + size].permute(1, 2, 0).reshape(len(rows), samples, *shape)
            )
        start += size
    return total
