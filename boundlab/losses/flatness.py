"""Bounds of a loss over a ball around the network's own weights ("beyond robustness" in the paper).

All samples see the same weights. The largest mean loss over the ball is therefore at most, and
often far below, the mean of the largest losses of single samples. With loss fusion the bound of the
mean is taken over the shared ball at once:

For sample b, S_b(w) = sum_k exp(f_k - f_y) <= U_b(w), a linear function of the weights that
backward mode finds. The logarithm lies below its tangents, so for any c_b > 0

    mean_b log S_b(w) <= mean_b (c_b U_b(w) - log c_b - 1),

and the right side is one linear function of w, whose maximum over the ball is taken once, with
coefficients that were summed over the samples before any norm. Every c is sound. c_b = 1 / max U_b
gives at most the mean of log max U_b, the bound sample by sample; the best c is the one with c_b =
1 / U_b(w*) at the maximum w* itself, and a few steps towards it are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from boundlab.coefficients.dense import PerSample
from boundlab.coefficients.outer import Outer
from boundlab.compat.ambient import undisturbed
from boundlab.errors import ArgumentError
from boundlab.methods import backward
from boundlab.methods.method import find_method
from boundlab.methods.outputs import spec_bounds
from boundlab.methods.run import Answer
from boundlab.net import Net
from boundlab.net.questions import Options
from boundlab.regions import Lp, Region
from boundlab.rules.logsumexp import exp_chord
from boundlab.specs.labels import labels_tensor
from boundlab.specs.margins import margin_spec

STEPS = 3
"""How many times the tangents are moved."""


def weight_balls(
    net: Net,
    eps: float,
    *,
    relative: bool = True,
    norm: float = 2.0,
    parameters: Iterable[str] | None = None,
) -> dict[str, Region]:
    """A ball around each weight, for ``perturb=``.

    eps: the radius, or with ``relative`` its share of the norm of the weight itself. parameters:
    their names; by default all that the outputs depend on and that are matrices or kernels, not
    biases or scales.
    """
    if isinstance(eps, str) or not eps >= 0:
        raise ArgumentError(f"eps must be a number that is not negative, but is {eps!r}")
    values = net.parameters()
    if parameters is None:
        names = [path for path, value in values.items() if value.dim() > 1]
    else:
        names = list(parameters)
    unknown = sorted(set(names) - set(values))
    if unknown or not names:
        raise ArgumentError(
            f"no parameters to perturb: {', '.join(unknown) or 'none is named'}; there are: "
            f"{', '.join(sorted(values))}"
        )
    if not relative:
        return {path: Lp(p=norm, eps=eps) for path in names}
    sizes = {path: torch.linalg.vector_norm(values[path], norm) for path in names}
    return {path: Lp(p=norm, eps=size * eps) for path, size in sizes.items()}


@undisturbed()
def mean_loss_bound(
    net: Net,
    *inputs: object,
    labels: object = None,
    perturb: Mapping[str, Region],
    method: str = "crown-ibp",
    slopes: str = "adaptive",
    memory: int | str | None = None,
    **kwargs: object,
) -> Tensor:
    """An upper bound of the mean cross entropy of a batch for all members of the regions, as one
    number, differentiable.

    inputs: one entry per model input, a tensor or a region, and last the labels (batch,). perturb:
    regions on parameters, which all samples share.

    Backward methods bound the mean over the shared regions at once, the others sample by sample.
    The gradient is that of the bound with the tangents where they are: their own dependence on the
    weights is left out.
    """
    entries, given = net.split_labels(inputs, labels)
    net = net.suited(entries, kwargs)
    row = find_method(method)
    answer = net.ask(entries, kwargs, Options(row, perturb, slopes, memory=memory))
    target = net.only_output("mean_loss_bound")
    shape = answer.analysis.values[target].shape
    if len(shape) != 2 or not answer.analysis.graph.nodes[target].layout.batched:
        raise ArgumentError(f"mean_loss_bound needs outputs (batch, classes), not {tuple(shape)}")
    read = net.read_labels(answer, target, given)
    if target not in answer.analysis.plan.variable:
        raise ArgumentError("the output does not depend on anything that is perturbed")
    if not len(read):
        raise ArgumentError("the mean loss of an empty batch is not defined")
    spec = margin_spec(read, shape[1])
    backward_mode = row.output == "backward"
    margins = spec_bounds(answer, target, spec, "both" if backward_mode else "lower")
    lower, upper = -margins.upper, -margins.lower  # of z_k = f_k - f_y, k != y
    exponents = torch.cat([upper.new_zeros(len(upper), 1), upper], 1)  # z_y = 0
    one_by_one = torch.logsumexp(exponents, 1).mean()
    if not backward_mode or row.optimize:
        return one_by_one
    return torch.fmin(one_by_one, _joint(answer, target, spec.to(upper), lower, upper))


@undisturbed()
def flatness(
    net: Net,
    x: Tensor | Region | tuple[Tensor | Region, ...],
    labels: Tensor,
    eps: float,
    *,
    relative: bool = True,
    norm: float = 2.0,
    method: str = "crown-ibp",
    parameters: Iterable[str] | None = None,
    batch: int | None = None,
) -> Tensor:
    """The certified flatness F of the paper: an upper bound of the mean loss over balls around the
    weights, minus the loss.

    x: the model's input, a tensor or a region, or a tuple of its inputs. labels: (batch,). eps,
    relative, norm, parameters: the balls, as for :func:`weight_balls`. batch: bound so many samples
    at once (default: all); the mean of the parts is a bound too, but the parts may choose different
    weights.
    """
    entries = x if isinstance(x, tuple) else (x,)
    labels = labels_tensor(labels)
    if labels.dim() != 1:
        raise ArgumentError(
            f"labels must have the shape (batch,), one a sample, not {tuple(labels.shape)}"
        )
    if not labels.numel():
        raise ArgumentError("the flatness of an empty batch is not defined")
    if batch is not None and batch < 1:
        raise ArgumentError(f"batch is a number of samples, at least 1, not {batch!r}")
    perturb = weight_balls(net, eps, relative=relative, norm=norm, parameters=parameters)
    parts: list[Tensor] = []
    count = len(labels)
    step = count if batch is None else batch
    for first in range(0, count, max(1, step)):
        part = slice(first, first + step)
        some, own = entries, labels[part]
        if step < count:
            some = tuple(_some(entry, part) for entry in entries)
        bound = mean_loss_bound(net, *some, own, perturb=perturb, method=method)
        outputs = net(*map(_centre, some))
        clean = torch.nn.functional.cross_entropy(outputs, own.long().to(bound.device))
        parts.append((bound - clean) * (len(own) / count))
    return torch.stack(parts).sum()


def _centre(entry: Tensor | Region) -> Tensor:
    if isinstance(entry, Region):
        return entry.centre
    return entry


def _some(entry: Tensor | Region, part: slice) -> Tensor | Region:
    """Some samples of an input."""
    if not isinstance(entry, Region):
        return entry[part]
    found = entry.samples(part)
    if found is None:
        raise ArgumentError(
            f"a region of type {type(entry).__name__} cannot be taken apart: leave out batch="
        )
    return found


# -- the bound over a shared region ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Lines:
    """U_b(w) = constant_b - sum over the shared sources of <A_b, w>: (samples,), and one row of
    coefficients for every sample."""

    constant: Tensor
    shared: list[tuple[Region, PerSample | Outer]]

    def detach(self) -> _Lines:
        shared = [(region, rows.detach()) for region, rows in self.shared]
        return _Lines(self.constant.detach(), shared)

    def largest(self) -> Tensor:
        """max over w of U_b(w), for every sample on its own."""
        found = self.constant
        for region, rows in self.shared:
            found = found - region.least(rows)[0]
        return found

    def largest_total(self, shares: Tensor) -> Tensor:
        """max over w of sum_b shares_b U_b(w)."""
        found = (shares * self.constant).sum()
        for region, rows in self.shared:
            found = found - region.minimum(rows.total(shares)).sum()
        return found


def _joint(answer: Answer, target: str, spec: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """The bound of the mean loss over the shared regions, given bounds of z_k = f_k - f_y:
    (samples, classes - 1)."""
    if upper.shape[1]:
        shift = upper.detach().clamp(min=0).amax(1)
    else:  # the label is the only class
        shift = upper.new_zeros(len(upper))
    rise, start = exp_chord(lower, upper, -shift[:, None].expand_as(upper))
    least = torch.exp(-shift)  # exp(f_y - f_y)
    lines = _lines(answer, target, rise.unsqueeze(1) @ spec, start.sum(1) + least)
    with torch.no_grad():
        fixed = lines.detach()
        shares = 1 / torch.maximum(fixed.largest(), least)
        best, at = torch.inf, shares
        for _ in range(STEPS):
            with torch.enable_grad():
                total = fixed.largest_total(free := shares.clone().requires_grad_())
                (values,) = torch.autograd.grad(total, free)  # U_b(w*), by the envelope theorem
            bound = float(total - torch.log(shares).sum())
            if bound < best:
                best, at = bound, shares
            shares = 1 / torch.maximum(values, least)
    return (lines.largest_total(at) - torch.log(at).sum()) / len(at) - 1 + shift.mean()


def _lines(answer: Answer, target: str, spec: Tensor, constant: Tensor) -> _Lines:
    """U_b for S_b <= constant_b - <spec_b, f>, in units that were shifted before."""
    analysis = answer.analysis
    start = analysis.elements(target).of_spec(spec)
    ends, bias = backward.propagate_backward(analysis, target, start)
    constant = constant - bias[0]
    shared: list[tuple[Region, PerSample | Outer]] = []
    for name, rows in ends.items():
        region = analysis.regions[name]
        if isinstance(rows, (PerSample, Outer)):
            shared.append((region, rows))
        else:
            constant = constant - region.least(rows)[0]
    return _Lines(constant, shared)
