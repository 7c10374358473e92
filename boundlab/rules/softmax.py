"""softmax over one dimension, with planes of its own.

Two readings of softmax give two pairs of planes; each is used where it is tighter at the centre of
the box.

**Reciprocal.** softmax_i(x) = 1 / h_i,  h_i = sum_j exp(z_j),  z_j = x_j - x_i  (so z_i = 0 and h_i
>= 1). With z_j in [l_j - u_i, u_j - l_i] =: [a_j, b_j], h_i lies in [H, K] = [sum exp(a_j), sum
exp(b_j)], and 1/h is convex and falling:

  above:  1/h <= 1/H + 1/K - h / (H K)         (chord), and h >= sum exp(m_j) (1 + z_j - m_j)
  (tangents of exp); below:  1/h >= 2/t - h / t^2, t = (H + K)/2  (tangent), and h <= sum of the
  chords of exp over [a_j, b_j].

That sum is t at the centre of the box, where this tangent point is therefore the best one.

**Exponential.** softmax_i(x) = exp(g),  g = x_i - lse(x), which is concave in x and lies in [-log
K, -log H]:

  above:  exp(g) is below its chord over that interval, which rises, and lse is above its tangent
  plane at the centre; below:  exp(g) >= exp(g0) (1 + g - g0), and lse is below its upper plane (see
  ``logsumexp.py``); g0 is where that puts the centre.

Every factor is formed as exp of a difference of logarithms that is at most 0, so nothing overflows
however wide the intervals are. A score of -inf (a mask) has weight 0 and no slope; one that may be
-inf or not has no slope either, and counts with weight 0 where the sum is bounded from below, with
that of its upper end where it is bounded from above.

A score that lies more than FAR below the lower end of another one, as masks of -1e9 or of the least
number do, has a weight below exp(-FAR), which is less than any number. It is left out like one of
-inf: the other weights change by a factor of 1 + n exp(-FAR) at the most, which is far within what
rounding may change; its own is at most the smallest normal number.

A row that may be -inf throughout may be NaN, and nothing is known of it: its bounds are infinite.
Where nothing but nan_to_num reads a softmax, with its own view of NaN, they are those of the
numbers that softmax gives (``softmax_of_numbers``, which capture puts there).
"""

from __future__ import annotations

import math
import string

import torch
from torch import Tensor

from boundlab.kernels.reductions import all_finite, seems_finite, spares
from boundlab.relaxations.interval import Interval
from boundlab.relaxations.planes import Planes
from boundlab.relaxations.relaxation import Relaxation
from boundlab.rules.curves import ROOM
from boundlab.rules.logsumexp import Plane, exp_chord, lse_both
from boundlab.rules.registry import Call, Relaxed, SlopeFamily, aten, register


def _dimension(call: Call) -> int:
    """The dimension of the scores, from 0."""
    return int(call["dim"]) % len(call.inputs[0].shape)


FAR = 800.0
"""exp(-FAR) is 0 in single and double precision."""


def _last(x: Interval, dim: int) -> Interval:
    return Interval(x.lower.movedim(dim, -1), x.upper.movedim(dim, -1))


def _scores(x: Interval, dim: int) -> tuple[Interval, Tensor | None]:
    """The scores with their dimension last, and which of them are masked, if any are: -inf for
    sure, or far below another one for sure. Those are put so far below all others that their weight
    is 0, as numbers: gradients of -inf are not."""
    x = _last(x, dim)
    gone = _masked(x)
    if not gone.any():
        return x, None
    counts = torch.isfinite(x.lower) & ~gone
    least = torch.where(counts, x.lower, torch.inf).detach().amin(-1, keepdim=True)
    least = torch.where(torch.isfinite(least), least, 0)
    far = _far_below(least)
    return Interval(torch.where(gone, far, x.lower), torch.where(gone, far, x.upper)), gone


@torch.no_grad()
def _masked(x: Interval) -> Tensor:
    """Which scores have no weight, whatever the others are."""
    best = torch.where(torch.isfinite(x.lower), x.lower, -torch.inf).amax(-1, keepdim=True)
    return torch.isneginf(x.upper) | (x.upper < _far_below(best))


def _far_below(score: Tensor) -> Tensor:
    """By a distance that large scores do not swallow."""
    return score - FAR - 0.01 * score.abs()


@torch.no_grad()
def _most_of_masked(x: Interval, dim: int, gone: Tensor) -> Tensor:
    """The largest weights of masked scores: 0 for -inf."""
    least = torch.finfo(x.dtype).smallest_normal
    return gone.to(x.dtype) * torch.where(torch.isneginf(_last(x, dim).upper), 0.0, least)


def _differences(x: Interval) -> tuple[Tensor, Tensor]:
    """a, b of shape (..., i, j): the bounds of z_j = x_j - x_i, exactly 0 for j = i."""
    low = x.lower.unsqueeze(-2) - x.upper.unsqueeze(-1)
    up = x.upper.unsqueeze(-2) - x.lower.unsqueeze(-1)
    for ends in (low, up):
        _diagonal(ends).zero_()
    return low, up


def _diagonal(pairs: Tensor) -> Tensor:
    return pairs.diagonal(dim1=-2, dim2=-1)


def _without(gone: Tensor | None, values: Tensor) -> Tensor:
    """0 where a score is masked."""
    if gone is None:
        return values
    return values.masked_fill(gone, 0.0)


def _log_odds(x: Tensor, others: Tensor) -> Tensor:
    """x_i minus the log of the sum of exp(others_j) over all j but i: the sum of what comes before
    i and of what comes behind it.

    Relative to the largest of the others such a sum is at least 1, unless it is that one that is
    left out: then relative to the second. That comes off x_i before the log does, which would be
    lost in the rounding of large scores.
    """
    if x.shape[-1] == 1:
        return torch.full_like(x, torch.inf)
    top = others.detach().topk(2, -1)
    largest, second = torch.where(torch.isfinite(top.values), top.values, 0).split(1, -1)
    first = torch.arange(x.shape[-1], device=x.device) == top.indices[..., :1]
    parts = torch.exp(others - largest)
    nothing = torch.zeros_like(parts[..., :1])
    before = torch.cat([nothing, parts.cumsum(-1)[..., :-1]], -1)
    behind = torch.cat([parts.flip(-1).cumsum(-1).flip(-1)[..., 1:], nothing], -1)
    without_first = torch.exp(torch.where(first, -torch.inf, others - second)).sum(-1, keepdim=True)
    rest = torch.where(first, without_first, before + behind)
    return x - torch.where(first, second, largest) - torch.log(rest)


@torch.no_grad()
def _no_number(call: Call) -> Tensor:
    """Which rows may be -inf throughout, so that softmax is NaN, with the dimension last and of
    size 1; none where NaN does not count."""
    lower = _last(call.inputs[0], _dimension(call)).lower
    rows = torch.isneginf(lower).all(-1, keepdim=True)
    if call.node.op is softmax_of_numbers:
        return torch.zeros_like(rows)
    return rows


def softmax_interval(call: Call) -> Interval:
    """Exact: softmax_i = sigmoid(x_i - log of the sum of the others) rises in x_i and falls in
    every other score."""
    dim = _dimension(call)
    x, gone = _scores(call.inputs[0], dim)
    ends = torch.stack([x.lower, x.upper])
    lower, upper = torch.sigmoid(_log_odds(ends, ends.flip(0)))
    # sigmoid gives up what is smaller, softmax does not
    least = torch.finfo(x.dtype).smallest_normal
    lower, upper = _without(gone, (lower - least).clamp(min=0)), _without(gone, upper + least)
    if gone is not None:
        upper = upper + _most_of_masked(call.inputs[0], dim, gone)
    nothing = _no_number(call)
    lower, upper = lower.masked_fill(nothing, -torch.inf), upper.masked_fill(nothing, torch.inf)
    return Interval(lower.movedim(-1, dim), upper.movedim(-1, dim))


def softmax_planes(call: Call, alphas: Tensor | None = None) -> Relaxation:
    """numbers: the shares of the exponential reading below and above, instead of one or the
    other."""
    dim, x, gone, pairs = _readings(call)
    if alphas is None:
        shares = _better(x, pairs)
    else:
        shares = [share.movedim(dim, -1) for share in alphas]
    rows = gone
    if gone is not None:
        rows = gone.unsqueeze(-1)
    planes = []
    for share, ((slope, bias), (other_slope, other_bias)) in zip(shares, pairs, strict=True):
        # with shares 0 and 1 a choice
        blend = _choice
        if alphas is not None or seems_finite(slope, bias, other_slope, other_bias):
            blend = _mixture
        planes += [_without(rows, blend(share.unsqueeze(-1), slope, other_slope))]
        planes += [_without(gone, blend(share, bias, other_bias))]
    if gone is not None:
        planes[-1] = planes[-1] + _most_of_masked(call.inputs[0], dim, gone)
    nothing = _no_number(call)
    if bool(nothing.any()):
        slopes = [plane.masked_fill(nothing.unsqueeze(-1), 0.0) for plane in planes[::2]]
        biases = zip((-torch.inf, torch.inf), planes[1::2], strict=True)
        low, up = (plane.masked_fill(nothing, infinite) for infinite, plane in biases)
        planes = [slopes[0], low, slopes[1], up]
    return _planes(call, dim, *planes)


def _mixture(share: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a and b in shares 1 - share and share."""
    return torch.lerp(a, b, share)


def _choice(share: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """a for a share of 0, else b, either of which may be infinite."""
    return torch.where(share > 0, b, a)


def softmax_family(call: Call) -> SlopeFamily | None:
    dim, x, _, pairs = _readings(call)
    if not all_finite(*(part for pair in pairs for plane in pair for part in plane)):
        return None
    start = torch.stack([share.movedim(-1, dim) for share in _better(x, pairs)])
    return SlopeFamily(start, lambda alphas: softmax_planes(call, alphas), by_row=False)


def _readings(call: Call) -> tuple[int, Interval, Tensor | None, list[tuple[Plane, Plane]]]:
    """The dimension, the scores with it last, which of them are masked, and below and above the
    planes of both readings."""
    dim = _dimension(call)
    x, gone = _scores(call.inputs[0], dim)
    a, b = _differences(x)
    known = call.result
    if known is not None:
        known = _last(known, dim)
    log_h, log_k = _log_sums(a, b, known)
    room = _room(x, gone)
    reciprocal = _reciprocal(a, b, log_h, log_k, room)
    exponential = _exponential(x, log_h, log_k, room)
    return dim, x, gone, list(zip(reciprocal, exponential, strict=True))


def _log_sums(a: Tensor, b: Tensor, known: Interval | None) -> tuple[Tensor, Tensor]:
    """log H and log K, (..., i). h = 1 / softmax_i, so bounds of the result, where they are known
    and do not vanish, are bounds of h."""
    if known is not None and spares(known.lower > torch.finfo(known.dtype).tiny):
        return -torch.log(known.upper), -torch.log(known.lower)
    log_h, log_k = torch.logsumexp(a, -1), torch.logsumexp(b, -1)
    if known is not None:
        log_h = torch.fmax(log_h, _minus_log(known.upper, -torch.inf))
        log_k = torch.maximum(log_h, torch.fmin(log_k, _minus_log(known.lower, torch.inf)))
    return log_h, log_k


@torch.no_grad()
def _room(x: Interval, gone: Tensor | None) -> Tensor:
    """What rounding may change of a logarithm that is made of scores, (..., 1): some units in the
    last place of the largest one. Factors of the planes are exp of such logarithms, so that this is
    their relative error."""
    size = torch.maximum(x.lower.abs(), x.upper.abs())
    size = _without(gone, torch.where(torch.isfinite(size), size, 0)).amax(-1, keepdim=True)
    return ROOM * torch.finfo(x.dtype).eps * (1 + size)


def _minus_log(value: Tensor, vanishing: float) -> Tensor:
    """-log of a bound of the result; ``vanishing``, which says nothing, where it is (almost) 0."""
    tiny = torch.finfo(value.dtype).tiny
    return torch.where(value > tiny, -torch.log(value.clamp(min=tiny)), vanishing)


def _better(x: Interval, pairs: list[tuple[Plane, Plane]]) -> list[Tensor]:
    """1 where the exponential reading is tighter at the centre of the box, else 0; below and
    above."""
    finite = torch.isfinite(x.lower) & torch.isfinite(x.upper)
    centre = torch.where(finite, x.centre, 0).unsqueeze(-2)
    found = []
    for sign, ((slope, bias), (other_slope, other_bias)) in zip((1, -1), pairs, strict=True):
        here, there = bias + (slope * centre).sum(-1), other_bias + (other_slope * centre).sum(-1)
        found.append(((sign * there > sign * here) | ~torch.isfinite(here)).to(x.dtype))
    return found


def _reciprocal(
    a: Tensor, b: Tensor, log_h: Tensor, log_k: Tensor, room: Tensor
) -> tuple[Plane, Plane]:
    finite = None
    if not seems_finite(a, b):
        finite = torch.isfinite(a) & torch.isfinite(b)

    def only(value: Tensor) -> Tensor:
        """0 where a difference is not finite."""
        if finite is None:
            return value
        return torch.where(finite, value, 0)

    middle = only(0.5 * a + 0.5 * b)

    # above: slope of z_j is -exp(m_j)/(H K), constant 1/H + 1/K - sum exp(m_j)(1 - m_j)/(H K)
    scale = -(log_h + log_k).unsqueeze(-1)
    touch = only(torch.exp(middle + scale))
    up_bias = torch.exp(-log_h) + torch.exp(-log_k) - (touch * (1 - middle)).sum(-1)
    up_bias = up_bias + 2 * room * torch.exp(-log_h).detach()  # sum exp(m_j) <= K

    # below: chord of exp over [a, b] divided by t^2; from a = -inf on the constant exp(b). Where t
    # is beyond all numbers, 0.
    log_t = torch.logaddexp(log_h, log_k) - math.log(2)
    scale = -2 * log_t.unsqueeze(-1)
    rise, start = exp_chord(only(a), only(b), scale)
    if finite is not None:
        level = torch.exp(b + scale).nan_to_num(0.0, posinf=torch.inf)
        rise, start = only(rise), torch.where(finite, start, level)
    low_bias = 2 * torch.exp(-log_t) - start.sum(-1)
    # sum exp(b_j) / t^2 = K / t^2 <= 2 / t
    low_bias = low_bias - 4 * room * torch.exp(-log_t).detach()

    # z_j = x_j - x_i: the slope in x_i collects minus the sum of the others
    return (_in_scores(-rise), low_bias), (_in_scores(-touch), up_bias)


def _in_scores(slope: Tensor) -> Tensor:
    """Slopes in the differences, which are nobody else's, as slopes in the scores."""
    _diagonal(slope).zero_()
    _diagonal(slope).copy_(-slope.sum(-1))
    return slope


def _exponential(x: Interval, log_h: Tensor, log_k: Tensor, room: Tensor) -> tuple[Plane, Plane]:
    (low_slope, low_bias), (up_slope, up_bias), centre = lse_both(x, (len(x.shape) - 1,))
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)

    # below: g >= x_i - up_plane(x), which is g0 at the centre
    g0 = centre - up_bias - (up_slope * centre).sum(-1, keepdim=True)
    weight = torch.exp(g0)
    below = weight * (1 - up_bias - g0) - 2 * room * weight.detach()
    lower = weight.unsqueeze(-1) * (eye - up_slope.unsqueeze(-2)), below

    # above: chord of exp over [-log K, -log H] along g <= x_i - low_plane(x)
    rise, start = exp_chord(-log_k, -log_h, torch.zeros_like(log_h))
    # no smaller than the rise
    above = start - rise * low_bias + 2 * room * torch.exp(-log_h).detach()
    upper = rise.unsqueeze(-1) * (eye - low_slope.unsqueeze(-2)), above
    return lower, upper


def _planes(
    call: Call, dim: int, lower: Tensor, low_bias: Tensor, upper: Tensor, up_bias: Tensor
) -> Planes:
    """Planes whose slopes have shape (..., i, j), for a result i and argument j in dimension
    ``dim``."""
    (x,) = call.inputs
    dims = len(x.shape)
    rest = string.ascii_lowercase[: dims - 1]
    place = lambda letter: rest[:dim] + letter + rest[dim:]
    bias = low_bias.movedim(-1, dim), up_bias.movedim(-1, dim)
    return Planes(
        rest + "yz", place("y"), (place("z"),), (lower,), bias[0], (upper,), bias[1], (x.shape,)
    )


def softmax_of_numbers(x: Tensor, dim: int, half_to_float: bool) -> Tensor:
    """softmax whose bounds are those of its values that are numbers."""
    result: Tensor = aten._softmax.default(x, dim, half_to_float)
    return result


register(
    aten._softmax,
    softmax_of_numbers,
    rule=Relaxed(softmax_interval, softmax_planes, uses_result=True, choices=softmax_family),
)
