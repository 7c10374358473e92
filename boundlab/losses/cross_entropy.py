"""Upper bounds of the cross entropy over a region, to train with.

With z_k = f_k - f_y the loss is log S, S = sum_k exp(z_k) (z_y = 0). Two ways to bound it:

- of margins: z_k <= -margin_k by the method, one row for each class, and log-sum-exp of these;
- fused (section "loss fusion" of the paper): with interval bounds l_k <= z_k <= u_k every exp lies
  below its chord, exp(z_k) <= a_k z_k + b_k, so S <= sum_k a_k z_k + sum_k b_k: a single row, sum_k
  a_k (e_k - e_y), whose upper bound the method finds. Its cost does not depend on the number of
  classes.

Fused, all exponentials are taken relative to m = max_k u_k >= 0, S = exp(m) S', so that nothing
overflows: S' <= 1 + K. A mean of two upper bounds of S (``beta``) is one itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from boundlab.coefficients.dense import PLAIN, Dense
from boundlab.compat.ambient import undisturbed
from boundlab.errors import ArgumentError
from boundlab.losses.clean_pass import CleanPass
from boundlab.losses.differences import differences
from boundlab.methods.outputs import lower_rows, spec_bounds
from boundlab.methods.run import Answer
from boundlab.net import Net
from boundlab.net.questions import Options
from boundlab.regions import Region
from boundlab.relaxations.interval import Interval
from boundlab.rules.logsumexp import exp_chord
from boundlab.specs.margins import margin_spec


@undisturbed()
def robust_cross_entropy(
    net: Net,
    *inputs: object,
    labels: object = None,
    method: str = "crown-ibp",
    fused: bool = True,
    beta: float = 1.0,
    perturb: Mapping[str, Region] | None = None,
    slopes: str = "adaptive",
    clean: CleanPass | Mapping[str, Tensor] | None = None,
    **kwargs: object,
) -> Tensor:
    """An upper bound of the cross entropy of every sample for all members of the regions: (batch,),
    differentiable.

    inputs: one entry per model input, a region or a plain tensor, and last the labels (batch,),
    unless they are given as ``labels=``. method: as for ``net.bounds``. fused: bound the loss as
    one quantity instead of one margin for each class. beta: the share of the method's bound in a
    mean with the interval bound; 0 is the interval bound alone, at its cost. clean: the
    :class:`CleanPass` of the step, so that train-mode batch norms need no pass of their own.
    """
    entries, labels = net.split_labels(inputs, labels)
    if isinstance(beta, bool) or not isinstance(beta, (int, float)) or not 0 <= beta <= 1:
        raise ArgumentError(f"beta is a share: 0 <= beta <= 1, not {beta!r}")
    if beta == 0:
        method = "ibp"
    net = net.suited(entries, kwargs)
    if isinstance(clean, CleanPass):
        clean = clean.of(net)
    answer = net.ask(entries, kwargs, Options(method, perturb, slopes), clean=clean)
    target = net.only_output("robust_cross_entropy")
    _check(net, answer, target)
    read = net.read_labels(answer, target, labels)
    loss, _ = upper_bound(answer, target, read, fused, float(beta))
    return loss


def upper_bound(
    answer: Answer, target: str, labels: Tensor, fused: bool, beta: float
) -> tuple[Tensor, Tensor]:
    """The loss (samples,) from what is known of every node, and for which samples interval
    arithmetic alone proves that the label stays the largest output."""
    z = differences(answer, target, labels)
    certain = (z.upper.detach() < 0).sum(1) == z.shape[1] - 1
    if answer.method.output == "interval":
        return torch.logsumexp(z.upper, 1), certain
    if fused:
        shift = z.upper.detach().amax(1)  # at least 0, which is z_y
        total = _fused(answer, target, labels, z, shift)
        if beta < 1:
            total = (1 - beta) * torch.exp(z.upper - shift[:, None]).sum(1) + beta * total
        return shift + torch.log(total), certain
    margins = spec_bounds(answer, target, margin_spec(labels, z.shape[1]), "lower").lower
    like = margins[:, :1]
    if not margins.shape[1]:  # the label is the only class
        like = z.upper
    exponents = torch.cat([-margins, torch.zeros_like(like)], 1)  # z_y = 0
    if beta < 1:  # log (beta S_1 + (1 - beta) S_2)
        exponents = torch.cat([exponents + math.log(beta), z.upper + math.log1p(-beta)], 1)
    return torch.logsumexp(exponents, 1), certain


def _fused(answer: Answer, target: str, labels: Tensor, z: Interval, shift: Tensor) -> Tensor:
    """An upper bound of sum_k exp(z_k - shift): (samples,)."""
    rise, start = exp_chord(z.lower, z.upper, -shift[:, None].expand_as(z.upper))
    # sum_k rise_k (e_k - e_y): the label's own entry takes minus the sum of the others
    others = rise.scatter(1, labels[:, None], 0.0)
    row = others.scatter_add(1, labels[:, None], -others.sum(1, keepdim=True))
    dtype = answer.analysis.interval(target).dtype  # z may be of another precision
    above = -lower_rows(answer, target, Dense(-row[None].to(dtype), PLAIN, len(row)))[0]
    # The sum may cancel: what it rounds off counts, and it is at least exp(z_y - shift).
    kind = torch.finfo(start.dtype)
    room = 4 * kind.eps * (start.detach().abs().sum(1) + above.detach().abs())
    return torch.maximum(start.sum(1) + above + room, torch.exp(-shift).clamp(min=kind.tiny))


def _check(net: Net, answer: Answer, target: str) -> None:
    layout, shape = net.graph.nodes[target].layout, answer.analysis.values[target].shape
    if len(shape) != 2 or not layout.plain:
        raise ArgumentError(
            f"robust_cross_entropy needs an output of shape (batch, classes), not {tuple(shape)}"
        )
    if target not in answer.analysis.plan.variable:
        raise ArgumentError("the output does not depend on anything that is perturbed")
