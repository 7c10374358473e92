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
from boundlab.graph.graph import Operator
from boundlab.relaxations.affine_map import AffineMap
from boundlab.relaxations.interval import Interval, MidRad
from boundlab.relaxations.lines import constant_lines
from boundlab.relaxations.picked import between
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules import transposes, windows
from boundlab.rules.facts import UNKNOWN, Facts
from boundlab.rules.registry import Call, Rule, aten, register


def from_jacobian(call: Call) -> Callable[..., Tensor]:
    """|J| as a function, for operators with coefficients of both signs that no closed form gives:
    slow, always right."""
    shape = call.bind()(*[x.lower for x in call.inputs]).shape
    zeros = tuple(torch.zeros_like(x.lower) for x in call.inputs)
    transpose = torch.func.vjp(call.bind(), *zeros)[1]
    eye = torch.eye(shape.numel(), dtype=zeros[0].dtype, device=zeros[0].device).reshape(-1, *shape)
    jacobians = [jacobian.abs().flatten(1) for jacobian in torch.func.vmap(transpose)(eye)]

    def absolute(*radii: Tensor) -> Tensor:
        parts = [j @ r.flatten() for j, r in zip(jacobians, radii, strict=True)]
        return torch.stack(parts).sum(0).reshape(shape)

    return absolute


@dataclass(frozen=True, eq=False)
class Affine(Rule):
    """Affine jointly in all perturbed arguments.

    ``absolute``: the operator with absolute coefficients and no constant term, called with the
    operator's arguments where every constant tensor is replaced by None. None: all coefficients of
    an argument have one sign, which is negative for the arguments at the places that ``negative``
    gives and else positive.
    """

    absolute: Operator | None = None
    negative: Callable[..., tuple[int, ...]] = lambda *_, **__: ()
    kind: str = "affine"
    facts: Facts = UNKNOWN

    def _signs(self, call: Call) -> tuple[int, ...]:
        args, kwargs = call.arguments
        places = self.negative(*args, **kwargs)
        return tuple(-1 if position in places else 1 for position in call.positions)

    def _absolute(self, call: Call) -> Callable[..., Tensor] | None:
        if self.absolute is None:
            return None
        if self.absolute is from_jacobian:
            return from_jacobian(call)
        return call.bind(self.absolute, constant=_no_tensor)

    def _check(self, call: Call) -> None:
        """An index that depends on the perturbation writes to different places: that is not
        affine."""
        if self.facts.indexed and not all(x.dtype.is_floating_point for x in call.inputs):
            raise UnsupportedOperator(
                f"{call.node}: its indices depend on what is perturbed; only constant indices have "
                "a rule"
            )
        if self.facts.overwrites_in(call) and not _writes_once(call):
            raise UnsupportedOperator(
                f"{call.node}: it writes several perturbed elements to one place, and torch does "
                "not say which of them stays. Add them (accumulate=True, scatter_add, index_add), "
                "or give each place one index"
            )

    def relax(self, call: Call) -> Relaxation:
        # a truth value as a number: it has no slope
        if not all(x.dtype.is_floating_point for x in call.inputs):
            bounds = self.interval(call)
            if all(_broadcasts(x.shape, bounds.shape) for x in call.inputs):
                return constant_lines(bounds, call.inputs)
            return between(bounds, call.inputs)
        return AffineMap(
            call.bind(),
            self._absolute(call),
            call.inputs,
            self.facts.transpose_of(call),
            self.facts.constant_of(call),
            self._signs(call),
            lambda: self.facts.window_of(call),
        )

    def interval(self, call: Call) -> Interval:
        self._check(call)
        function, absolute = call.bind(), self._absolute(call)
        if self.facts.casts and _truth_of_numbers(call):
            return truth(call.inputs[0])
        if absolute is not None:
            return around(call, function, absolute)
        if self._keeps_balls(call):
            return around(call, function, function)
        lows, ups = [x.lower for x in call.inputs], [x.upper for x in call.inputs]
        for i, sign in enumerate(self._signs(call)):
            if sign < 0:
                lows[i], ups[i] = ups[i], lows[i]
        return Interval(function(*lows), function(*ups))

    def _keeps_balls(self, call: Call) -> bool:
        """Whether the centre of the result is the function of the centres, and its radius that of
        the radii: a linear operator with positive coefficients."""
        if not all(isinstance(x, MidRad) for x in call.inputs) or min(self._signs(call)) < 0:
            return False
        return isinstance(self.facts.constant_of(call), float)

    def nonlinear(self, call: Call) -> bool:
        return False


def _writes_once(call: Call) -> bool:
    """Whether no two perturbed elements are written to the same place.

    y = J x + c, where every row of J has at most one entry, a 1: J 1 counts the places that
    perturbed elements come to. Autograd's transpose gives each element that is written what is
    asked of its place, whether or not another one stands there in the end: J'^T 1 counts the
    elements. J' >= J, so both totals are the same if and only if J' = J.
    """
    if call.positions == (0,):  # what is written into is read at most once
        return True
    zeros = tuple(torch.zeros_like(x.lower) for x in call.inputs)
    nothing, transpose, *_ = torch.func.vjp(call.bind(), *zeros)
    moved = call.bind()(*[torch.ones_like(zero) for zero in zeros]) - nothing
    places = torch.where(torch.isfinite(moved), moved, 0).sum(dtype=torch.float64)
    elements = sum(part.sum(dtype=torch.float64) for part in transpose(torch.ones_like(nothing)))
    return bool(places == elements)


def _broadcasts(shape: torch.Size, result: torch.Size) -> bool:
    """Whether an argument has the shape of the result once it is broadcast."""
    sizes = zip(reversed(shape), reversed(result), strict=False)
    return len(shape) <= len(result) and all(size in (1, whole) for size, whole in sizes)


def _no_tensor(leaf: object) -> object:
    """None in the place of a constant tensor."""
    if isinstance(leaf, Tensor):
        return None
    return leaf


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
    x = call.inputs[0]
    if len(call.inputs) > 1 or x.dtype == torch.bool:
        return False
    probe = x.lower
    if len(x.shape):
        probe = probe[..., :0]
    result: Tensor = call.bind()(probe)
    return result.dtype == torch.bool


def truth(x: Interval) -> Interval:
    """The truth of a number: certain where 0 is outside its interval, possible unless it is 0."""
    if x.dtype == torch.bool:
        return x
    return Interval((x.lower > 0) | (x.upper < 0), (x.lower != 0) | (x.upper != 0))


def affine(*ops: Operator, absolute: Operator | None = None, **facts: Any) -> None:
    """Register operators that are affine in every tensor argument that may be perturbed.

    absolute: the operator with all coefficients replaced by their absolute values and without
    constant term, with the operator's own signature; constant tensors arrive as None. None states
    that all coefficients are non-negative; ``from_jacobian`` works for any operator, at the cost of
    its Jacobian. facts: what else is known of the operators, for speed: see
    :class:`boundlab.rules.facts.Facts`.
    """
    register(*ops, rule=Affine(absolute, facts=Facts(**{"monotone": absolute is None, **facts})))


# -- the table: one row for operators of the same facts --------------------------------------------

MOVES: dict[str, Any] = {"linear": True, "moves": True}
"""Elements elsewhere, several times or not at all, and zeros beside them."""
MOVES_ONCE: dict[str, Any] = {**MOVES, "one_to_one": True, "reads_once": True}
"""Elements elsewhere, each at most once, and nothing beside them."""

affine(
    aten.view.default, aten.reshape, aten.flatten, aten.unflatten, aten.squeeze, aten.unsqueeze,
    **MOVES_ONCE, transpose=transposes.reshape, window=windows.reshape,
)  # fmt: skip
affine(aten._unsafe_view, aten.ravel, aten.atleast_1d, aten.atleast_2d, **MOVES_ONCE)
affine(aten.view_as, aten.reshape_as, **MOVES)  # of two arguments
affine(aten.permute, **MOVES_ONCE, transpose=transposes.permute, window=windows.permute)
affine(aten.transpose, **MOVES_ONCE, transpose=transposes.swap, window=windows.swap)
affine(aten.t, aten.movedim, aten.swapaxes, aten.numpy_T, aten.mT, **MOVES_ONCE)
affine(aten.flip, **MOVES_ONCE, transpose=transposes.flip)
affine(
    aten.fliplr, aten.flipud, aten.rot90, aten.roll, aten.diagonal, aten.tensor_split,
    aten.pixel_shuffle, aten.pixel_unshuffle, aten.channel_shuffle,
    **MOVES_ONCE,
)  # fmt: skip
affine(aten.slice, **MOVES_ONCE, transpose=transposes.part, window=windows.slice_)
affine(aten.select, **MOVES_ONCE, transpose=transposes.part, window=windows.select)
affine(
    aten.narrow, aten.unbind, aten.split, aten.split_with_sizes, aten.chunk,
    **MOVES_ONCE, transpose=transposes.part,
)  # fmt: skip
affine(aten.expand, **MOVES, transpose=transposes.broadcast)
affine(
    aten.expand_as, aten.broadcast_to, aten.repeat, aten.repeat_interleave, aten.tile, aten.unfold,
    aten.im2col, aten.diag_embed, aten.tril, aten.triu,
    **MOVES,
)  # fmt: skip
# constants may stand beside the elements
affine(
    aten.cat, moves=True, constant=transposes.no_constant_parts,
    transpose=transposes.concatenate, window=windows.concatenate,
)  # fmt: skip
affine(aten.stack, moves=True, constant=transposes.no_constant_parts)
affine(aten.concat, aten.hstack, aten.vstack, aten.constant_pad_nd, moves=True)

affine(aten.scatter.src, aten.scatter.value, aten.index_copy, indexed=True, overwrites=True)
affine(aten.index_put, indexed=True, overwrites=lambda call: not call["accumulate"])
affine(aten.scatter_add, aten.masked_select, indexed=True)
affine(aten.broadcast_tensors, aten.diag, aten.col2im, aten.diagonal_scatter)
# padding and resizing
affine(
    aten.pad, aten.reflection_pad1d, aten.reflection_pad2d, aten.reflection_pad3d,
    aten.replication_pad1d, aten.replication_pad2d, aten.replication_pad3d, aten._pad_circular,
    aten.upsample_nearest1d, aten.upsample_nearest2d, aten.upsample_nearest3d,
    aten._upsample_nearest_exact1d, aten._upsample_nearest_exact2d, aten._upsample_nearest_exact3d,
    aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d,
)  # fmt: skip
# sums and averages
affine(
    aten.sum, linear=True, reads_once=True,
    transpose=transposes.total(mean=False), window=windows.total(mean=False),
)  # fmt: skip
affine(
    aten.mean, linear=True, reads_once=True,
    transpose=transposes.total(mean=True), window=windows.total(mean=True),
)  # fmt: skip
affine(aten.cumsum, aten.trace)
for dims, op in enumerate((aten.avg_pool1d, aten.avg_pool2d, aten.avg_pool3d), start=1):
    affine(
        op,
        linear=True,
        reads_once=transposes.windows_apart(dims),
        window=windows.average(dims),
    )
affine(aten.adaptive_avg_pool2d, linear=True)
affine(
    aten.adaptive_avg_pool1d, aten.adaptive_avg_pool3d, aten._adaptive_avg_pool2d,
    aten._adaptive_avg_pool3d,
)  # fmt: skip
# copies
affine(aten._to_copy, aten.to, aten.type_as, casts=True)
affine(
    aten.dropout, aten.feature_dropout, aten.alpha_dropout, aten.feature_alpha_dropout, aten.clone,
    aten.contiguous, aten.alias, aten.lift_fresh_copy, aten.positive,
)  # fmt: skip

# signs that depend on the call


def _place_if(place: int, negative: bool) -> tuple[int, ...]:
    """The places of negative arguments, of which there is at most that one."""
    if negative:
        return (place,)
    return ()


register(
    aten.neg,
    rule=Affine(
        negative=lambda x: (0,),
        facts=Facts(
            linear=True,
            one_to_one=True,
            reads_once=True,
            transpose=transposes.negate,
            window=windows.negate,
        ),
    ),
)
register(
    aten.add,
    rule=Affine(
        negative=lambda x, y, *, alpha=1: _place_if(1, alpha < 0),
        facts=Facts(
            constant=transposes.summand(1), transpose=transposes.add(1), window=windows.add(1)
        ),
    ),
)
register(
    aten.sub,
    rule=Affine(
        negative=lambda x, y, *, alpha=1: _place_if(1, alpha > 0),
        facts=Facts(
            constant=transposes.summand(-1), transpose=transposes.add(-1), window=windows.add(-1)
        ),
    ),
)
register(aten.rsub, rule=Affine(negative=lambda x, y, alpha=1: _place_if(0, alpha > 0)))
affine(aten.diff, aten.upsample_bicubic2d, absolute=from_jacobian)
