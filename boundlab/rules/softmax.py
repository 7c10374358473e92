"""softmax and log-sum-exp over one dimension, each with planes of its own.

softmax_i(x) = 1 / h_i,  h_i = sum_j exp(z_j),  z_j = x_j - x_i  (so z_i = 0 and h_i >= 1).

With z_j in [l_j - u_i, u_j - l_i] =: [a_j, b_j], h_i lies in [H, K] = [sum exp(a_j), sum exp(b_j)], and 1/h is
convex and falling in h:

  above:  1/h <= 1/H + 1/K - h / (H K)           (chord), and h >= sum exp(m_j) (1 + z_j - m_j)  (tangents of exp);
  below:  1/h >= 2/t - h / t^2, t^2 = H K        (tangent), and h <= sum of the chords of exp over [a_j, b_j].

Both are linear in z, hence in x. Every factor is formed as exp of a difference of logarithms that is at most 0, so
nothing overflows however wide the intervals are; a score of -inf (a mask) has weight 0 and no slope.
"""

from __future__ import annotations

import string

import torch
from torch import Tensor

from boundlab.interval import Interval
from boundlab.relaxation import Planes, Relaxation
from boundlab.rules.registry import Call, Relaxed, aten, register


def _dimension(call: Call) -> int:
    (_, dim, *_), _ = call.arguments
    return int(dim[0] if isinstance(dim, (list, tuple)) else dim) % call.inputs[0].lower.dim()


def _last(x: Interval, dim: int) -> Interval:
    return Interval(x.lower.movedim(dim, -1), x.upper.movedim(dim, -1))


def _differences(x: Interval) -> tuple[Tensor, Tensor]:
    """a, b of shape (..., i, j): the bounds of z_j = x_j - x_i, exactly 0 for j = i; -inf scores stay -inf."""
    low, up = x.lower.unsqueeze(-2) - x.upper.unsqueeze(-1), x.upper.unsqueeze(-2) - x.lower.unsqueeze(-1)
    masked = torch.isneginf(x.upper).unsqueeze(-2)
    same = torch.eye(x.shape[-1], dtype=torch.bool, device=low.device)
    low, up = low.masked_fill(masked, -torch.inf), up.masked_fill(masked, -torch.inf)
    return low.masked_fill(same, 0.0), up.masked_fill(same, 0.0)


def softmax_interval(call: Call) -> Interval:
    """Exact: softmax_i rises in x_i and falls in every other score."""
    dim = _dimension(call)
    x = _last(call.inputs[0], dim)
    low, up = _differences(x)
    gone = torch.isneginf(x.upper)
    lower = torch.exp(-torch.logsumexp(up, -1)).masked_fill(gone, 0.0)
    upper = torch.exp(-torch.logsumexp(low, -1)).masked_fill(gone, 0.0)
    return Interval(lower.movedim(-1, dim), upper.movedim(-1, dim))


def softmax_planes(call: Call) -> Relaxation:
    dim = _dimension(call)
    x = _last(call.inputs[0], dim)
    a, b = _differences(x)
    log_h, log_k = torch.logsumexp(a, -1), torch.logsumexp(b, -1)  # (..., i)
    scale = -(log_h + log_k).unsqueeze(-1)  # -log(H K)
    finite = torch.isfinite(a) & torch.isfinite(b)
    middle = torch.where(finite, (a + b) / 2, 0)
    zero = torch.zeros_like(a)

    # above: slope of z_j is -exp(m_j)/(H K), constant 1/H + 1/K - sum exp(m_j)(1 - m_j)/(H K)
    touch = torch.where(finite, torch.exp(middle + scale), zero)
    up_slope = -touch
    up_bias = torch.exp(-log_h) + torch.exp(-log_k) - (touch * (1 - middle)).sum(-1)

    # below: chord of exp over [a, b] divided by H K: slope r = (e^b - e^a)/(b - a), value e^a - r a at 0
    width = torch.where(finite, b - a, zero)
    narrow = width < torch.finfo(a.dtype).eps ** 0.5
    safe = torch.where(narrow, 1, width)
    top = torch.where(finite, torch.exp(b + scale), zero)
    bottom = torch.where(finite, torch.exp(a + scale), zero)
    rise = torch.where(narrow, touch, (top - bottom) / safe)
    # for a narrow interval the line is lifted to both ends
    start = torch.where(finite, torch.maximum(bottom - rise * a, top - rise * b), zero)
    low_slope = -torch.where(finite, rise, zero)
    low_bias = 2 * torch.exp(scale.squeeze(-1) / 2) - start.sum(-1)

    # z_j = x_j - x_i: the slope in x_i collects minus the sum of the others; a masked result is 0.
    eye = torch.eye(a.shape[-1], dtype=torch.bool, device=a.device)
    gone = torch.isneginf(x.upper).unsqueeze(-1)

    def in_x(slope: Tensor) -> Tensor:
        slope = slope.masked_fill(eye, 0.0)
        slope = torch.where(eye, -slope.sum(-1, keepdim=True), slope)
        return slope.masked_fill(gone, 0.0)

    lower, upper = in_x(low_slope), in_x(up_slope)
    low_bias, up_bias = low_bias.masked_fill(gone.squeeze(-1), 0.0), up_bias.masked_fill(gone.squeeze(-1), 0.0)
    return _planes(call, dim, lower, low_bias, upper, up_bias)


def _planes(call: Call, dim: int, lower: Tensor, low_bias: Tensor, upper: Tensor, up_bias: Tensor) -> Planes:
    """Planes whose slopes have shape (..., i, j), for a result i and argument j in dimension ``dim``."""
    (x,) = call.inputs
    dims = x.lower.dim()
    rest = string.ascii_lowercase[: dims - 1]
    place = lambda letter: rest[:dim] + letter + rest[dim:]  # noqa: E731
    bias = low_bias.movedim(-1, dim), up_bias.movedim(-1, dim)
    return Planes(rest + "yz", place("y"), (place("z"),), (lower,), bias[0], (upper,), bias[1], (x.shape,))


register(aten.softmax, aten._softmax, rule=Relaxed(softmax_interval, softmax_planes))


# log-sum-exp is convex: its tangent plane at the centre lies below. Above: sum exp(x_j) <= sum of the chords of exp =:
# c(x), and log h <= log t + (h - t)/t for any t; t is the value of c at the centre. All relative to the largest upper
# bound s, so that nothing overflows.
def _lse_dims(call: Call) -> tuple[list[int], bool]:
    (x, dims, *rest), kwargs = call.arguments
    dims = [dims] if isinstance(dims, int) else list(dims)
    keep = bool(rest[0] if rest else kwargs.get("keepdim", False))
    return sorted(d % len(x.shape) for d in (dims or range(len(x.shape)))), keep


def lse_interval(call: Call) -> Interval:
    f = call.bind()
    (x,) = call.inputs
    return Interval(f(x.lower), f(x.upper))


def lse_planes(call: Call) -> Relaxation:
    (x,) = call.inputs
    dims, keep = _lse_dims(call)
    space = string.ascii_lowercase[: x.lower.dim()]
    shift = x.upper.amax(dims, keepdim=True).detach()
    shift = torch.where(torch.isfinite(shift), shift, 0)
    finite = torch.isfinite(x.lower) & torch.isfinite(x.upper)
    a, b = torch.where(finite, x.lower - shift, 0), torch.where(finite, x.upper - shift, 0)
    m, zero = (a + b) / 2, torch.zeros_like(a)

    weight = torch.where(finite, torch.exp(m), zero)
    total = weight.sum(dims, keepdim=True)
    low_slope = weight / total
    low_bias = torch.log(total) - (low_slope * m).sum(dims, keepdim=True) + shift - (low_slope * shift).sum(dims, keepdim=True)

    narrow = (b - a) < torch.finfo(a.dtype).eps ** 0.5
    rise = torch.where(narrow, weight, (torch.exp(b) - torch.exp(a)) / torch.where(narrow, 1, b - a))
    rise = torch.where(finite, rise, zero)
    start = torch.where(finite, torch.maximum(torch.exp(a) - rise * a, torch.exp(b) - rise * b), zero)
    level = (rise * m + start).sum(dims, keepdim=True)
    up_slope = rise / level
    up_bias = torch.log(level) + start.sum(dims, keepdim=True) / level - 1 + shift - (up_slope * shift).sum(dims, keepdim=True)

    if keep:
        result = space
    else:
        low_bias, up_bias = low_bias.squeeze(dims), up_bias.squeeze(dims)
        result = "".join(letter for i, letter in enumerate(space) if i not in dims)
    return Planes(space, result, (space,), (low_slope,), low_bias, (up_slope,), up_bias, (x.shape,), kept=tuple(dims) if keep else ())


register(aten.logsumexp, rule=Relaxed(lse_interval, lse_planes))
