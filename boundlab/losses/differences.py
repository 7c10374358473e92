"""Interval bounds of f_k - f_y for all classes k, with the last affine operators merged."""

from __future__ import annotations

import torch
from torch import Tensor

from boundlab.coefficients.window import Window
from boundlab.graph.layout import Layout
from boundlab.kernels.absolute_dots import absolute_dots
from boundlab.kernels.reductions import all_finite, common, repeats
from boundlab.methods import backward
from boundlab.methods.analysis import Analysis
from boundlab.methods.run import Answer
from boundlab.regions.base import inner
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
    def ends_tail(name: str) -> bool:
        return name in analysis.plan.tail_cut or not isinstance(
            analysis.relaxation(name), AffineMap
        )

    return backward.propagate_backward(analysis, target, rows, backward.Steps(stop=ends_tail))
