"""Bounds of an output, or of linear functions of it, from what the stages of an answer know."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.methods import backward, refine
from boundlab.methods.alpha import optimize_spec
from boundlab.methods.analysis import Analysis
from boundlab.methods.memory import rows_at_once
from boundlab.methods.run import Answer, Stage, affordable
from boundlab.relaxations.interval import Interval


def output_bounds(answer: Answer, target: str, sides: str) -> Interval:
    """Bounds of every element of an output node; of one side only, the other one is infinite, if it
    is a number."""
    found = _output_bounds(answer, target, sides)
    analysis = answer.analysis
    found = analysis.guard.settled(analysis.elements(target), found)
    if sides == "both" or not found.dtype.is_floating_point:
        return found
    infinite = torch.full_like(found.lower, torch.inf)
    if sides == "lower":
        return Interval(found.lower, infinite)
    return Interval(-infinite, found.upper)


def _output_bounds(answer: Answer, target: str, sides: str) -> Interval:
    analysis = answer.analysis
    if target not in analysis.plan.variable:
        value = analysis.values[target]
        error = analysis.guard.error_of(target)
        if error is not None:
            return Interval(value - error, value + error)
        return Interval(value, value)
    found = analysis.interval(target)
    if target in analysis.regions or not found.dtype.is_floating_point:
        return found
    for stage in answer.stages:
        found = found.intersect(_stage_bounds(answer, stage, target, sides))
    return found


def _stage_bounds(answer: Answer, stage: Stage, target: str, sides: str) -> Interval:
    analysis, node = stage.analysis, stage.analysis.graph.nodes[target]
    interval = analysis.interval(target)
    if stage.forward_bounds is not None:
        interval = interval.intersect(stage.forward_bounds.interval(node))
    if stage.method.optimize:
        if target in analysis.plan.affine_only:
            return interval
        return interval.intersect(_optimized_bounds(answer, stage, target, sides))
    backward_mode = stage.method.output == "backward" and target not in analysis.plan.exact
    if backward_mode or affordable(analysis, node):
        interval = interval.intersect(refine.bound_node(analysis, target, sides))
    return interval


def _optimized_bounds(answer: Answer, stage: Stage, target: str, sides: str) -> Interval:
    """Bounds of every element of an output node with optimised slopes."""
    elements = stage.analysis.elements(target)
    rows = elements.identity()
    lower = torch.full_like(elements.like, -torch.inf)
    upper = -lower
    if sides != "upper" and _is_worth(answer, "lower"):
        bounds = _optimized_rows(answer, stage, target, "lower", rows)
        lower = elements.join(bounds.T.to(lower.dtype))
    if sides != "lower" and _is_worth(answer, "upper"):
        bounds = _optimized_rows(answer, stage, target, "upper", -rows)
        upper = -elements.join(bounds.T.to(upper.dtype))
    return Interval(lower, upper)


def _is_worth(answer: Answer, side: str) -> bool:
    """Whether the user wants this side optimised."""
    return answer.query.alpha.sides in (side, "both")


def _optimized_rows(
    answer: Answer, stage: Stage, target: str, side: str, rows: Coefficients
) -> Tensor:
    """Lower bounds of rows of an output with optimised slopes; the answer notes the alphas and
    betas that give them."""
    key = f"{target}, {side}"
    state = answer.query.state
    start = state.alphas.get(key, {}), state.betas.get(key, {})
    options, report = answer.query.alpha, answer.query.report
    answer.optimized[key] = optimize_spec(stage.analysis, target, rows, options, start, report)
    return answer.optimized[key].bounds


def spec_bounds(answer: Answer, target: str, spec: Tensor, sides: str) -> Interval:
    """Bounds of ``spec @ output``: (samples, specs)."""
    rows = answer.analysis.elements(target).of_spec(spec)
    samples = answer.analysis.elements(target).samples
    if not len(rows) or not samples:
        empty = torch.zeros(samples, len(rows), dtype=rows.dtype, device=rows.device)
        return Interval(empty, empty)
    if sides == "lower":
        below = lower_rows(answer, target, rows, "lower").T
        return Interval(below, torch.full_like(below, torch.inf))
    above = -lower_rows(answer, target, -rows, "upper").T
    if sides == "upper":
        return Interval(torch.full_like(above, -torch.inf), above)
    below = lower_rows(answer, target, rows, "lower").T
    return Interval(torch.minimum(below, above), torch.maximum(below, above))


def lower_rows(answer: Answer, target: str, rows: Coefficients, side: str = "lower") -> Tensor:
    """Lower bounds of rows of the output: (rows, samples). side: which bound of the
    output they are for."""
    analysis = answer.analysis
    if target not in analysis.plan.variable:
        return _of_constant(analysis, target, rows)
    best: Tensor | None = None
    for stage in answer.stages:
        if stage.method.optimize:
            if target in analysis.plan.affine_only or not _is_worth(answer, side):
                continue
            found = _optimized_rows(answer, stage, target, side, rows)
        else:
            found = _stage_rows(stage, target, rows)
        if best is not None:
            found = torch.fmax(best, found)
        best = found
    if best is None:
        return _stage_rows(answer.stages[-1], target, rows)
    return best


def _of_constant(analysis: Analysis, target: str, rows: Coefficients) -> Tensor:
    """Lower bounds of rows of an output that is not perturbed: (rows, samples)."""
    value, error = analysis.values[target], analysis.guard.error_of(target)
    known = Interval(value, value)
    if error is not None:
        known = Interval(value - error, value + error)
    if not analysis.guard.proves:
        return rows.dot(value)
    return analysis.guard.least(rows.least(known), rows, known)


def _stage_rows(stage: Stage, target: str, rows: Coefficients) -> Tensor:
    analysis = stage.analysis
    if stage.method.output == "backward":
        step = rows_at_once(analysis, target, len(rows))
        parts = [rows[first : first + step] for first in range(0, len(rows), step)]
        best = torch.cat([_merged(analysis, target, part, further=True) for part in parts])
    else:
        best = _merged(analysis, target, rows, further=False)
    if stage.forward_bounds is not None:
        node = analysis.graph.nodes[target]
        known = analysis.interval(target).intersect(stage.forward_bounds.interval(node))
        best = torch.fmax(best, stage.forward_bounds.lower_rows(node, rows))
        least = analysis.guard.least(rows.least(known), rows, known)
        best = torch.fmax(best, least)
    return best


def _merged(analysis: Analysis, target: str, rows: Coefficients, further: bool) -> Tensor:
    """Interval bounds of rows of the output, with the affine operators at its end merged into the
    rows: at least as tight as bounding the output first. Stops at the nodes before which nothing
    can be gained (``plan.tail_cut``) and takes their intervals.

    further: propagates on from there to the sources, and takes the better one of both bounds.
    """
    steps = backward.Steps(stop=analysis.ends_tail)
    ends, bias = backward.propagate_backward(analysis, target, rows, steps)
    best = bias
    for name, part in ends.items():
        best = best + analysis.least(name, part)
    if further and any(name not in analysis.regions for name in ends):
        further_ends, further_bias = backward.propagate_from(analysis, ends, bias)
        best = torch.fmax(best, backward.concretize(analysis, further_ends, further_bias))
    return best
