"""Linear layers in training: intervals and rows through them, and one gradient of the weight for
both.

Centre and radius of the result are c W^T + b and r |W|^T, rows become R W. Written with abs and
autograd, a step makes seven tensors of the size of W (|W|, three gradients, a sign, a product and a
sum), which for the wide layers behind convolutions costs more than the products themselves. Here
|W| exists a few rows at a time, and there is one gradient, made where all that belongs to it is
known:

    dW = g_c^T c + R^T g_R + sign(W) * (g_r^T r),    dc = g_c W,    dr = g_r |W|,    dR = g_R W^T.

Its terms are products of thin matrices: a layer hands these on (:class:`_Gathered`) as long as they
are smaller than W. Thin matrices times wide ones are made a few rows of W at a time as well: what
they add up to stays in the cache, which matrix products as such do not see to.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from boundlab.compat.private import backward_pass, will_execute
from boundlab.kernels.autograd import Context

BLOCK = 1 << 19
"""How many weights are worked on at once: few enough to stay in the cache."""
ROWS = 16
"""But not fewer rows of a weight than this."""

THIN, WIDE = 32, 1 << 14
"""Up to how many rows, and from how many columns on, a product with a weight is made in blocks."""

Factors = tuple[Tensor, Tensor, bool]
"""Matrices u and v, and whether it is sign(W) * u^T v or u^T v that they stand for."""


class _Gathered(torch.autograd.Function):
    """The weight itself. Layers that read it leave factors of its gradient here, which autograd
    reaches after all of them."""

    @staticmethod
    def forward(weight: Tensor) -> Tensor:
        return weight.view_as(weight)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor], output: object) -> None:
        ctx.save_for_backward(*inputs)
        ctx.set_materialize_grads(False)
        ctx.terms = []
        ctx.of_pass = None

    @staticmethod
    def backward(ctx: Context, gradient: Tensor | None) -> Tensor | None:
        (weight,) = ctx.saved_tensors
        terms = ctx.terms
        ctx.terms = []
        if not terms or ctx.of_pass != _pass():
            return gradient
        found = _product(weight, terms)
        if gradient is not None:
            found.add_(gradient)
        return found


def _handed_on(ctx: Context, weight: Tensor, terms: list[Factors]) -> Tensor | None:
    """The gradient of a weight from its terms, or None if they are left where it is gathered, or
    nobody asks for it."""
    place = ctx.gathered  # whether this pass will come there, autograd tells in no public way
    if place is not None and not will_execute(place):
        return None
    if place is None or sum(u.numel() + v.numel() for u, v, _ in terms) > weight.numel():
        return _product(weight, terms)
    if place.of_pass != _pass():  # what a pass has left that did not come to its end
        place.terms = []
        place.of_pass = _pass()
    place.terms.extend(terms)
    return None


def _pass() -> int:
    """Which backward pass this is."""
    return backward_pass()


def _product(weight: Tensor, terms: list[Factors]) -> Tensor:
    """The sum of the terms: of the shape of the weight."""
    plain = _stacked([(u, v) for u, v, sign in terms if not sign])
    signed = _stacked([(u, v) for u, v, sign in terms if sign])
    if signed:
        found = torch.empty_like(weight)  # written to by the signed terms
    else:
        found = torch.zeros_like(weight)
    for rows, room in _blocks(weight, max(len(u) for u, _, _ in terms)):
        block = found[rows]
        if signed:
            torch.mm(signed[0][:, rows].T, signed[1], out=block)
            block.mul_(torch.sign(weight[rows], out=room))
        if plain:
            block.addmm_(plain[0][:, rows].T, plain[1])
    return found


def _stacked(factors: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor] | None:
    """One pair of matrices whose product is the sum of those of all pairs; None for no pairs."""
    if not factors:
        return None
    if len(factors) == 1:
        return factors[0]
    first, second = zip(*factors, strict=True)
    return torch.cat(first), torch.cat(second)


class _IntervalLinear(torch.autograd.Function):
    """(centre (k, in), radius (k, in), weight (out, in), bias (out,)) -> c W^T + b and r |W|^T, (k,
    out) each."""

    @staticmethod
    def forward(
        centre: Tensor, radius: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        middle = _turned(centre, weight)
        reach = radius.new_empty(len(radius), len(weight))
        for rows, room in _blocks(weight, len(radius)):
            reach[:, rows] = _turned(radius, torch.abs(weight[rows], out=room))
        if bias is not None:
            middle.add_(bias)
        return middle, reach

    @staticmethod
    def setup_context(
        ctx: Context, inputs: tuple[Tensor, Tensor, Tensor, Tensor | None], output: object
    ) -> None:
        centre, radius, weight, bias = inputs
        ctx.save_for_backward(centre, radius, weight)
        ctx.has_bias = bias is not None
        ctx.gathered = _place(weight)

    @staticmethod
    def backward(ctx: Context, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        of_centre, of_reach = gradients
        centre, radius, weight = ctx.saved_tensors
        d_centre: Tensor | None = None
        d_radius: Tensor | None = None
        d_weight: Tensor | None = None
        d_bias: Tensor | None = None
        wants_centre, wants_radius, wants_weight, wants_bias = ctx.needs_input_grad
        if ctx.has_bias and wants_bias:
            d_bias = of_centre.sum(0)
        if torch.is_grad_enabled():  # asked to be differentiated again: plain formulas
            d_weight = of_centre.T @ centre + weight.sign() * (of_reach.T @ radius)
            return of_centre @ weight, of_reach @ weight.abs(), d_weight, d_bias
        if wants_centre:
            d_centre = _times(of_centre, weight)
        if wants_radius:
            d_radius = _times(of_reach, weight, absolute=True)
        if wants_weight:
            terms = [(of_centre, centre, False), (of_reach, radius, True)]
            d_weight = _handed_on(ctx, weight, terms)
        return d_centre, d_radius, d_weight, d_bias


class _RowsLinear(torch.autograd.Function):
    """(rows (k, out), weight (out, in)) -> rows W: (k, in)."""

    @staticmethod
    def forward(rows: Tensor, weight: Tensor) -> Tensor:
        return _times(rows, weight)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Tensor, Tensor], output: object) -> None:
        ctx.save_for_backward(*inputs)
        ctx.gathered = _place(inputs[1])

    @staticmethod
    def backward(ctx: Context, gradient: Tensor) -> tuple[Tensor | None, ...]:
        rows, weight = ctx.saved_tensors
        d_rows: Tensor | None = None
        d_weight: Tensor | None = None
        wants_rows, wants_weight = ctx.needs_input_grad
        if wants_rows:
            d_rows = _turned(gradient, weight)
        if torch.is_grad_enabled():
            return d_rows, rows.T @ gradient
        if wants_weight:
            d_weight = _handed_on(ctx, weight, [(rows, gradient, False)])
        return d_rows, d_weight


def _blocks(weight: Tensor, count: int) -> Iterator[tuple[slice, Tensor]]:
    """Rows of a weight to be worked on at once, with so many others, and room for as many weights;
    elsewhere than on CPU all."""
    fitting = len(weight)
    if weight.device.type == "cpu":
        fitting = BLOCK // max(1, weight.shape[1])
    step = max(ROWS, count // 4, fitting)
    room = weight.new_empty(min(step, len(weight)), weight.shape[1])
    for i in range(0, len(weight), step):
        rows = slice(i, min(i + step, len(weight)))
        yield rows, room[: rows.stop - i]


def _times(rows: Tensor, weight: Tensor, absolute: bool = False) -> Tensor:
    """``rows @ weight``, or with the absolute values of the weight."""
    if not absolute and (len(rows) > THIN or weight.shape[1] < WIDE):
        return rows @ weight
    found = rows.new_zeros(len(rows), weight.shape[1])
    for part, room in _blocks(weight, len(rows)):
        block = weight[part]
        if absolute:
            block = torch.abs(block, out=room)
        found.addmm_(rows[:, part], block)
    return found


def _turned(rows: Tensor, weight: Tensor) -> Tensor:
    """``rows @ weight.T``; of few rows with the larger matrix first, which is quicker."""
    if len(rows) > THIN:
        return rows @ weight.T
    return (weight @ rows.T).T.contiguous()


def _place(weight: Tensor) -> Context | None:
    """Where the gradient of a weight is gathered, if it is."""
    if hasattr(weight.grad_fn, "terms"):
        return weight.grad_fn
    return None


def is_trained(weight: object) -> bool:
    """Whether a matrix of weights gets a gradient."""
    return (
        isinstance(weight, Tensor)
        and weight.dim() == 2
        and weight.requires_grad
        and torch.is_grad_enabled()
    )


def gathered(weight: Tensor) -> Tensor:
    """A matrix of weights whose gradient is made once for all layers of this module that read
    it."""
    return _Gathered.apply(weight)


def is_gathered(weight: Tensor) -> bool:
    """Whether a weight comes from :func:`gathered`."""
    return _place(weight) is not None


def interval_linear(
    centre: Tensor, radius: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Centre and radius of ``linear(x, weight, bias)`` for x of any leading shape within ``centre
    +- radius``."""
    shape = (*centre.shape[:-1], len(weight))
    flat = (-1, centre.shape[-1])
    middle, reach = _IntervalLinear.apply(centre.reshape(flat), radius.reshape(flat), weight, bias)
    return middle.reshape(shape), reach.reshape(shape)


def rows_linear(rows: Tensor, weight: Tensor) -> Tensor:
    """``rows @ weight``, for rows of any leading shape."""
    found = _RowsLinear.apply(rows.reshape(-1, len(weight)), weight)
    return found.reshape(*rows.shape[:-1], weight.shape[1])
