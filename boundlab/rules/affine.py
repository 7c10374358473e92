"""Operators that are affine in their perturbed arguments.

They need no rule: the transpose is autograd's, the constant term is the operator at zero. All that
interval and forward mode ask in addition is the operator with absolute coefficients: the operator
itself where they are non-negative (``monotone``), or given by a function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.relaxations.interval import Interval, MidRad
from boundlab.relaxations.relaxation import AffineMap, Relaxation, constant_lines
from boundlab.rules.registry import Call, Rule, aten, register
from boundlab.rules.transposes import LINEAR, constant_of, transpose_of
from boundlab.rules.windows import windows_of


def from_jacobian(call: Call) -> Callable[..., Tensor]:
    """|J| as a function, for operators with coefficients of both signs that no closed form gives:
    slow, always right."""
    shape = call.bind()(*[x.lower for x in call.inputs]).shape
    zeros = tuple(torch.zeros_like(x.lower) for x in call.inputs)
    transpose = torch.func.vjp(call.bind(), *zeros)[1]
    eye = torch.eye(shape.numel(), dtype=zeros[0].dtype, device=zeros[0].device).reshape(-1, *shape)
    jacobians = [jacobian.abs().flatten(1) for jacobian in torch.func.vmap(transpose)(eye)]
    return lambda *radii: (
        torch.stack([j @ r.flatten() for j, r in zip(jacobians, radii, strict=True)])
        .sum(0)
        .reshape(shape)
    )


@dataclass(frozen=True, eq=False)
class Affine(Rule):
    """Affine jointly in all perturbed arguments.

    ``absolute``: the operator with absolute coefficients and no constant term, called with the
    operator's arguments where every constant tensor is replaced by None. None: all coefficients of
    an argument have one sign, which is negative for the arguments at the places that ``negative``
    gives and else positive.
    """

    absolute: Callable[..., Any] | None = None
    negative: Callable[..., tuple[int, ...]] = lambda *_, **__: ()
    kind: str = "affine"

    def _signs(self, call: Call) -> tuple[int, ...]:
        args, kwargs = call.arguments
        places = self.negative(*args, **kwargs)
        return tuple(-1 if position in places else 1 for position in call.positions)

    def _absolute(self, call: Call) -> Callable[..., Tensor] | None:
        if self.absolute is None:
            return None
        if self.absolute is from_jacobian:
            return from_jacobian(call)
        return call.bind(
            self.absolute, constant=lambda leaf: None if isinstance(leaf, Tensor) else leaf
        )

    def _check(self, call: Call) -> None:
        """An index that depends on the perturbation picks different elements: that is not
        affine."""
        if getattr(call.node.op, "overloadpacket", None) in INDEXED and not all(
            x.dtype.is_floating_point for x in call.inputs
        ):
            raise UnsupportedOperator(
                f"{call.node}: its indices depend on what is perturbed; only constant indices have "
                "a rule"
            )

    def relax(self, call: Call) -> Relaxation:
        # a truth value as a number: it has no slope
        if not all(x.dtype.is_floating_point for x in call.inputs):
            return constant_lines(self.interval(call), call.inputs)
        windows = lambda: windows_of(call)
        return AffineMap(
            call.bind(),
            self._absolute(call),
            call.inputs,
            transpose_of(call),
            constant_of(call),
            self._signs(call),
            windows,
        )

    def interval(self, call: Call) -> Interval:
        self._check(call)
        function, absolute = call.bind(), self._absolute(call)
        if absolute is None and _truth_of_numbers(call):
            return truth(call.inputs[0])
        if absolute is None and self._keeps_balls(call):
            return Interval.around(
                *[function(*parts) for parts in zip(*[x.ball for x in call.inputs], strict=True)]
            )
        if absolute is None:
            pairs = [
                (x.lower, x.upper) if sign > 0 else (x.upper, x.lower)
                for x, sign in zip(call.inputs, self._signs(call), strict=True)
            ]
            return Interval(
                function(*[least for least, _ in pairs]), function(*[most for _, most in pairs])
            )
        return around(call, function, absolute)

    def _keeps_balls(self, call: Call) -> bool:
        """Whether the centre of the result is the function of the centres, and its radius that of
        the radii: a linear operator with positive coefficients."""
        if not all(isinstance(x, MidRad) for x in call.inputs) or min(self._signs(call)) < 0:
            return False
        packet = getattr(call.node.op, "overloadpacket", None)
        return packet in LINEAR or (packet is aten.add and len(call.inputs) == 2)

    def nonlinear(self, call: Call) -> bool:
        return False


def around(
    call: Call, function: Callable[..., Tensor], absolute: Callable[..., Tensor]
) -> Interval:
    """The interval of an affine function of intervals: its value at their centres, plus and minus
    its reach."""
    centres, radii = zip(*[x.ball for x in call.inputs], strict=True)
    return Interval.around(function(*centres), absolute(*radii))


def _truth_of_numbers(call: Call) -> bool:
    """Whether the call turns numbers into truth values, which is not monotone: -1 is as true as
    1."""
    (x, *_) = call.inputs
    packet = getattr(call.node.op, "overloadpacket", None)
    return (
        len(call.inputs) == 1
        and packet in (aten._to_copy, aten.to, aten.type_as)
        and x.dtype != torch.bool
        and call.bind()(x.lower[..., :0] if len(x.shape) else x.lower).dtype == torch.bool
    )


def truth(x: Interval) -> Interval:
    """The truth of a number: certain where 0 is outside its interval, possible unless it is 0."""
    if x.dtype == torch.bool:
        return x
    return Interval((x.lower > 0) | (x.upper < 0), (x.lower != 0) | (x.upper != 0))


def affine(*ops: Any, absolute: Callable[..., Any] | None = None) -> None:
    """Register operators that are affine in every tensor argument that may be perturbed.

    absolute: the operator with all coefficients replaced by their absolute values and without
    constant term, with the operator's own signature; constant tensors arrive as None. None states
    that all coefficients are non-negative; ``from_jacobian`` works for any operator, at the cost of
    its Jacobian.
    """
    register(*ops, rule=Affine(absolute))


MOVERS = (
    # shape
    aten.view.default, aten.reshape, aten.flatten, aten.unflatten, aten.permute, aten.transpose,
    aten.t, aten.squeeze, aten.unsqueeze, aten.expand,
    aten.expand_as, aten.view_as, aten.reshape_as, aten.repeat, aten.repeat_interleave, aten.tile,
    aten.movedim, aten.swapaxes,
    aten._unsafe_view, aten.cat, aten.concat, aten.stack, aten.hstack, aten.vstack, aten.split,
    aten.split_with_sizes, aten.chunk,
    aten.unbind, aten.tensor_split, aten.numpy_T, aten.mT, aten.broadcast_to, aten.atleast_1d,
    aten.atleast_2d, aten.ravel,
    # picking and placing
    aten.slice, aten.select, aten.index, aten.index_select, aten.gather, aten.take,
    aten.take_along_dim, aten.narrow, aten.unfold,
    aten.flip, aten.fliplr, aten.flipud, aten.rot90, aten.roll, aten.diagonal, aten.diag_embed,
    aten.tril, aten.triu,
    aten.pixel_shuffle, aten.pixel_unshuffle, aten.channel_shuffle, aten.im2col,
    aten.constant_pad_nd,
)  # fmt: skip
"""Operators that put elements elsewhere, several times or not at all, and zeros beside them."""

MONOTONE = (
    *MOVERS, aten.index_put, aten.scatter.src, aten.scatter.value,
    aten.scatter_add, aten.index_copy, aten.broadcast_tensors, aten.diag, aten.masked_select,
    aten.col2im, aten.diagonal_scatter,
    # padding and resizing
    aten.pad, aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d,
    aten.replication_pad1d,
    aten.replication_pad2d, aten.replication_pad3d, aten._pad_circular, aten.upsample_nearest1d,
    aten.upsample_nearest2d,
    aten.upsample_nearest3d, aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d,
    aten._upsample_nearest_exact3d,
    aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d,
    # sums and averages
    aten.sum, aten.mean, aten.cumsum, aten.trace, aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d,
    aten.adaptive_avg_pool1d,
    aten.adaptive_avg_pool2d, aten.adaptive_avg_pool3d, aten._adaptive_avg_pool2d,
    aten._adaptive_avg_pool3d,
    # copies
    aten._to_copy, aten.to, aten.type_as, aten.dropout, aten.feature_dropout, aten.alpha_dropout,
    aten.feature_alpha_dropout, aten.clone,
    aten.contiguous, aten.alias, aten.lift_fresh_copy, aten.positive,
)  # fmt: skip

INDEXED = frozenset(
    (
        aten.index, aten.index_select, aten.gather, aten.take, aten.take_along_dim, aten.scatter,
        aten.scatter_add, aten.index_put, aten.index_copy,
        aten.masked_select,
    )
)  # fmt: skip
"""Operators with indices among their arguments."""

affine(*MONOTONE)
register(aten.neg, rule=Affine(negative=lambda x: (0,)))
register(aten.add, rule=Affine(negative=lambda x, y, *, alpha=1: (1,) if alpha < 0 else ()))
register(aten.sub, rule=Affine(negative=lambda x, y, *, alpha=1: (1,) if alpha > 0 else ()))
register(aten.rsub, rule=Affine(negative=lambda x, y, alpha=1: (0,) if alpha > 0 else ()))
affine(aten.diff, aten.upsample_bicubic2d, absolute=from_jacobian)
