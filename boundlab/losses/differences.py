"""Interval bounds of f_k - f_y for all classes k, with the last affine operators merged."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.coefficients.coefficients import Coefficients
from boundlab.coefficients.dense import Dense, PerSample
from boundlab.coefficients.window import Window
from boundlab.kernels.absolute_dots import absolute_dots
from boundlab.kernels.reductions import all_finite, common, repeats
from boundlab.methods import backward
from boundlab.methods.analysis import Analysis
from boundlab.methods.run import Answer
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import Interval


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
    ends, bias = _units(analysis, target, every)
    label_ends, label_bias = _units(analysis, target, labels[None])
    centre, radius = bias - label_bias, torch.zeros_like(bias)
    for name in {**ends, **label_ends}:
        own, other = ends.get(name), label_ends.get(name)
        middle, reach = analysis.interval(name).ball
        if own is None or other is None:
            moved, width = _of_one(own, other, middle, reach)
        else:
            moved, width = _of_both(own.whole(), other.whole(), middle, reach)
        centre, radius = centre + moved, radius + width
    same = every == labels
    centre, radius = centre.masked_fill(same, 0.0), radius.masked_fill(same, 0.0)
    return Interval((centre - radius).T, (centre + radius).T)


def _of_one(
    own: Coefficients | None, other: Coefficients | None, middle: Tensor, reach: Tensor
) -> tuple[Tensor, Tensor]:
    """Centre and radius of <own, x> or of -<other, x> for |x - middle| <= reach: (rows, samples)
    each."""
    if own is not None:
        return own.dot(middle), own.apply(torch.abs).dot(reach)
    assert other is not None
    return -other.dot(middle), other.apply(torch.abs).dot(reach)


def _of_both(own: Dense, other: Dense, middle: Tensor, reach: Tensor) -> tuple[Tensor, Tensor]:
    """Centre and radius of <own - other, x> for |x - middle| <= reach: (rows, samples) each."""
    plain = own.layout.plain and not isinstance(own, PerSample)
    if plain and repeats(own.values) and all_finite(middle, reach):
        rows = common(own.values).flatten(1)
        centre = rows @ middle.flatten(1).T - other.dot(middle)
        return centre, absolute_dots(rows, other.values[0].flatten(1), reach.flatten(1))
    apart = own.with_values(own.values - other.values)
    return own.dot(middle) - other.dot(middle), apart.apply(torch.abs).dot(reach)


def _units(
    analysis: Analysis, target: str, chosen: Tensor
) -> tuple[dict[str, Coefficients], Tensor]:
    """One element of the output a row and sample, pulled back through the affine operators at its
    end."""
    like = analysis.interval(target).lower
    ones = torch.ones((), dtype=like.dtype, device=like.device).expand(chosen.shape)
    rows = Window.units(ones, chosen, like.shape[1:])

    # whatever is not affine ends here, truth values read as numbers too: their lines are one-sided
    def ends_tail(name: str) -> bool:
        if name in analysis.plan.tail_cut:
            return True
        return not isinstance(analysis.relaxation(name), AffineMap)

    return backward.propagate_backward(analysis, target, rows, backward.Steps(stop=ends_tail))
