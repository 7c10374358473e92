"""Linear bounds of an output in the perturbed inputs and parameters."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from boundlab.arithmetic.arithmetic import FLOOR
from boundlab.coefficients.coefficients import Coefficients
from boundlab.errors import ArgumentError
from boundlab.methods.analysis import Analysis
from boundlab.methods.backward import finite_above, propagate_backward
from boundlab.results import LinearBounds


def lower_lines(analysis: Analysis, target: str, spec: Tensor) -> tuple[Tensor, Tensor]:
    """Linear functions of the only source below ``spec @ output``, spec (samples, rows, out):
    coefficients (samples, rows, *shape of one sample) and constants (samples, rows)."""
    elements = analysis.elements(target)
    rows = elements.of_spec(spec)
    matrices, bias = _lines(analysis, target, rows, [analysis.samples, len(rows)])
    (coefficients,) = matrices.values()
    return coefficients, bias


def linear_bounds(analysis: Analysis, target: str, spec: Tensor | None) -> LinearBounds:
    """Linear functions of the sources below and above every element of the output, or of ``spec @
    output``, by backward mode."""
    if target not in analysis.plan.variable:
        raise ArgumentError("the output does not depend on anything that is perturbed")
    layout, elements = analysis.graph.nodes[target].layout, analysis.elements(target)
    if spec is not None:
        rows = elements.of_spec(spec)
        shape = [len(rows)]
    else:
        rows = elements.identity()
        shape = list(layout.sample_shape(elements.like.shape))
    if layout.batched:
        shape = [analysis.samples, *shape]
    lower_A, lower_b = _lines(analysis, target, rows, shape)
    upper_A, upper_b = _lines(analysis, target, -rows, shape)
    parameters = analysis.graph.parameters
    public = {name: parameters.get(name, name) for name in analysis.regions}
    nodes = analysis.graph.nodes
    return LinearBounds(
        {public[name]: part for name, part in lower_A.items()},
        lower_b,
        {public[name]: -part for name, part in upper_A.items()},
        -upper_b,
        {public[name]: region for name, region in analysis.regions.items()},
        {public[name]: nodes[name].layout.batched for name in analysis.regions},
        analysis.samples if layout.batched else None,
    )


def _lines(
    analysis: Analysis, target: str, rows: Coefficients, shape: Sequence[int]
) -> tuple[dict[str, Tensor], Tensor]:
    """Coefficients (*shape, *shape of one sample) of every source, and the constants (*shape), of
    linear functions below rows of the output."""
    ends, bias = propagate_backward(analysis, target, rows)
    bias = analysis.guard.withheld(finite_above(bias))
    if analysis.guard.proves:
        bias = bias - FLOOR
    matrices = {}
    for name, region in analysis.regions.items():
        inside = analysis.graph.nodes[name].layout.sample_shape(region.centre.shape)
        if name in ends:
            part = ends[name].dense()
        else:
            part = torch.zeros(*bias.shape, *inside, dtype=rows.dtype, device=rows.device)
        matrices[name] = part.transpose(0, 1).reshape(*shape, *inside)
    return matrices, bias.T.reshape(shape)
