"""Operators that are compositions of others, taken apart when a model is captured.

Each function has the signature of its operator and computes the same value.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from boundlab.errors import CaptureError
from boundlab.rules.registry import aten, composition

# -- arithmetic ------------------------------------------------------------------------------------


@composition(
    aten.div.Tensor,
    aten.div.Scalar,
    aten.true_divide.Tensor,
    aten.true_divide.Scalar,
    aten.divide.Tensor,
)
def div(x: Any, y: Any) -> Tensor:
    if isinstance(y, Tensor):
        return x * torch.reciprocal(y)
    largest, y = _precise(y, x)
    # in two steps: the quotient may be finite where 1 / y is not
    if y != 0 and abs(1 / y) > largest:
        return x * (1 / (y * BLOCK)) * BLOCK
    return x * (math.copysign(math.inf, y) if y == 0 else 1 / y)


BLOCK = 2.0**64


def _precise(y: float, x: Tensor) -> tuple[float, float]:
    """The largest number of the type that x is divided in, and y as a number of that type."""
    kind = np.float64 if x.dtype == torch.float64 else np.float32
    with np.errstate(over="ignore"):
        return float(np.finfo(kind).max), float(kind(y))


@composition(aten.div.Scalar_mode, aten.divide.Tensor_mode, aten.divide.Scalar_mode)
def div_mode(x: Any, y: Any, *, rounding_mode: str | None = None) -> Tensor:
    return (
        div(x, y)
        if rounding_mode is None
        else torch.div(x, _like(y, x), rounding_mode=rounding_mode)
    )


def _like(y: Any, x: Tensor) -> Tensor:
    """A number as a tensor of x's type."""
    return y if isinstance(y, Tensor) else torch.full((), y, dtype=x.dtype, device=x.device)


@composition(aten.floor_divide.default)
def floor_divide(x: Tensor, y: Any) -> Tensor:
    return torch.div(x, _like(y, x), rounding_mode="floor")


@composition(aten.addmm.default)
def addmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * bias + alpha * torch.mm(x, y)


@composition(aten.baddbmm.default)
def baddbmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * bias + alpha * torch.bmm(x, y)


@composition(aten.addmv.default)
def addmv(bias: Tensor, x: Tensor, y: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    return beta * bias + alpha * torch.mv(x, y)


@composition(aten.addcmul.default)
def addcmul(x: Tensor, y: Tensor, z: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (y * z)


@composition(aten.addcdiv.default)
def addcdiv(x: Tensor, y: Tensor, z: Tensor, *, value: float = 1) -> Tensor:
    return x + value * (y * torch.reciprocal(z))


@composition(aten.lerp.Scalar)
def lerp(x: Tensor, y: Tensor, weight: float) -> Tensor:
    return (1 - weight) * x + weight * y


@composition(aten.lerp.Tensor)
def lerp_tensor(x: Tensor, y: Tensor, weight: Tensor) -> Tensor:
    """From the nearer end, as torch does: x + (y - x) is not y if x is much larger."""
    return torch.where(weight.abs() < 0.5, x + weight * (y - x), y - (1 - weight) * (y - x))


@composition(aten.bilinear.default)
def bilinear(x: Tensor, y: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    inner = torch.matmul(x.unsqueeze(-2).unsqueeze(-2), weight).squeeze(-2)  # (..., out, in2)
    result = (inner * y.unsqueeze(-2)).sum(-1)
    return result if bias is None else result + bias


@composition(aten.vdot.default)
def vdot(x: Tensor, y: Tensor) -> Tensor:
    return (x * y).sum()


@composition(aten._weight_norm.default)
def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    dims = (
        tuple(d for d in range(v.dim()) if d != dim % v.dim())
        if dim != -1
        else tuple(range(v.dim()))
    )
    return v * (g * torch.rsqrt((v**2).sum(dims, True)))


def _pairs(x: Tensor, y: Tensor) -> Tensor:
    """Both beside each other in a new last dimension. A number on the CPU may meet a tensor of
    another device: it goes there first."""
    device = x.device if x.dim() else y.device
    return torch.stack(torch.broadcast_tensors(x.to(device), y.to(device)), -1)


@composition(aten.logaddexp.default)
def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    return torch.logsumexp(_pairs(x, y), -1)


@composition(aten.embedding.default)
def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """As a plain selection of rows: the gradient of embedding ignores the padding row, so it is not
    the transpose."""
    return torch.index_select(weight, 0, indices.flatten()).reshape(
        *indices.shape, *weight.shape[1:]
    )


# -- writing into a tensor (what in-place assignments become) --------------------------------------


@composition(aten.copy.default)
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.to(x.dtype).expand(x.shape)


@composition(aten.fill.Scalar, aten.fill.Tensor)
def fill(x: Tensor, value: Any) -> Tensor:
    return (
        value.to(x.dtype).expand(x.shape)
        if isinstance(value, Tensor)
        else torch.full_like(x, value)
    )


@composition(aten.zero.default)
def zero(x: Tensor) -> Tensor:
    return torch.zeros_like(x)


@composition(aten.slice_scatter.default)
def slice_scatter(
    x: Tensor, source: Tensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Tensor:
    whole = (
        (start is None or (isinstance(start, int) and start == 0))
        and (end is None or (isinstance(end, int) and end >= 1 << 62))
        and step == 1
    )
    if whole:
        return source.expand(x.shape)
    places = torch.arange(x.shape[dim], device=x.device)[slice(start, end, step)]
    return torch.index_copy(
        x,
        dim,
        places,
        source.expand([len(places) if d == dim % x.dim() else n for d, n in enumerate(x.shape)]),
    )


@composition(aten.select_scatter.default)
def select_scatter(x: Tensor, source: Tensor, dim: int, index: int) -> Tensor:
    place = torch.full((1,), index % x.shape[dim], dtype=torch.long, device=x.device)
    return torch.index_copy(x, dim, place, source.unsqueeze(dim))


@composition(aten.index_add.default)
def index_add(x: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: float = 1) -> Tensor:
    shape = [-1 if d == dim % x.dim() else 1 for d in range(x.dim())]
    return torch.scatter_add(x, dim, index.reshape(shape).expand(source.shape), source * alpha)


# -- choices ---------------------------------------------------------------------------------------


@composition(aten.masked_fill.Scalar, aten.masked_fill.Tensor)
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    value = (
        value
        if isinstance(value, Tensor)
        else torch.full((), value, dtype=x.dtype, device=x.device)
    )
    return torch.where(mask, value, x)


@composition(aten.maximum.default, aten.fmax.default, aten.max.other)
def maximum(x: Tensor, y: Tensor) -> Tensor:
    return torch.amax(_pairs(x, y), -1)


@composition(aten.minimum.default, aten.fmin.default, aten.min.other)
def minimum(x: Tensor, y: Tensor) -> Tensor:
    return -maximum(-x, -y)


@composition(aten.clamp.Tensor)
def clamp_tensor(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    x = x if min is None else maximum(x, min)
    return x if max is None else minimum(x, max)


@composition(aten.clamp_min.Tensor)
def clamp_min_tensor(x: Tensor, min: Tensor) -> Tensor:
    return maximum(x, min)


@composition(aten.clamp_max.Tensor)
def clamp_max_tensor(x: Tensor, max: Tensor) -> Tensor:
    return minimum(x, max)


@composition(aten.amin.default)
def amin(x: Tensor, dim: Any = (), keepdim: bool = False) -> Tensor:
    return -torch.amax(-x, dim, keepdim)


@composition(aten.max.default)
def max_all(x: Tensor) -> Tensor:
    return torch.amax(x, tuple(range(x.dim())))


@composition(aten.min.default)
def min_all(x: Tensor) -> Tensor:
    return -torch.amax(-x, tuple(range(x.dim())))


@composition(aten.max.dim)
def max_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return torch.amax(x, (dim,), keepdim), torch.argmax(x, dim, keepdim)


@composition(aten.min.dim)
def min_dim(x: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    return -torch.amax(-x, (dim,), keepdim), torch.argmin(x, dim, keepdim)


@composition(aten.prod.dim_int)
def prod(x: Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    factors = list(x.unbind(dim))
    if not factors:
        return torch.ones_like(x.sum(dim, keepdim))
    while len(factors) > 1:  # a balanced tree
        pairs = [a * b for a, b in zip(factors[::2], factors[1::2], strict=False)]
        factors = pairs + factors[len(pairs) * 2 :]
    return factors[0].unsqueeze(dim) if keepdim else factors[0]


# -- classification --------------------------------------------------------------------------------


@composition(aten.log_softmax.int, aten._log_softmax.default)
def log_softmax(x: Tensor, dim: int, dtype: Any = None) -> Tensor:
    x = x.to(dtype) if isinstance(dtype, torch.dtype) else x
    return x - torch.logsumexp(x, (dim,), True)


@composition(aten.softmax.int)
def softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    return aten._softmax.default(x if dtype is None else x.to(dtype), dim, False)


@composition(aten._safe_softmax.default)
def safe_softmax(x: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """Zero where every score is masked away."""
    return softmax_where(x if dtype is None else x.to(dtype), x != -math.inf, dim)


def softmax_where(x: Tensor, allowed: Tensor, dim: int) -> Tensor:
    """The softmax over the allowed scores; zero where there is none."""
    some = allowed.any(dim, True)
    scores = torch.where(
        allowed | ~some, x, torch.full((), -math.inf, dtype=x.dtype, device=x.device)
    )
    return torch.where(some, softmax(scores, dim), torch.zeros((), dtype=x.dtype, device=x.device))


@composition(aten.nll_loss_nd.default, aten.nll_loss.default)
def nll_loss(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Tensor:
    dim = 0 if x.dim() == 1 else 1
    kept = target != ignore_index
    index = torch.where(kept, target, 0)
    picked = torch.gather(x, dim, index.unsqueeze(dim)).squeeze(dim)
    weights = torch.ones_like(kept, dtype=x.dtype) if weight is None else weight[index]
    weights = weights * kept.to(x.dtype)
    return _reduce(-picked * weights, reduction, weights)


def _reduce(loss: Tensor, reduction: int, weights: Tensor | None = None) -> Tensor:
    if reduction == 0:
        return loss
    if reduction == 2:
        return loss.sum()
    return loss.mean() if weights is None else loss.sum() * torch.reciprocal(weights.sum())


@composition(aten.cross_entropy_loss.default)
def cross_entropy(
    x: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Tensor:
    dim = 0 if x.dim() == 1 else 1
    logp = log_softmax(x, dim)
    shape = [-1 if d == dim else 1 for d in range(x.dim())]
    if target.is_floating_point():  # class probabilities
        classes = x.shape[dim]
        target = target * (1 - label_smoothing) + label_smoothing / classes
        scaled = logp * target if weight is None else logp * target * weight.reshape(shape)
        loss = -scaled.sum(dim)
        return loss.mean() if reduction == 1 else _reduce(loss, reduction)
    plain = nll_loss(logp, target, weight, 0, ignore_index)
    kept = target != ignore_index
    weights = (
        kept.to(x.dtype)
        if weight is None
        else weight[torch.where(kept, target, 0)] * kept.to(x.dtype)
    )
    if label_smoothing:
        spread = -(logp if weight is None else logp * weight.reshape(shape)).sum(dim) * kept.to(
            x.dtype
        )
        plain = (1 - label_smoothing) * plain + label_smoothing / x.shape[dim] * spread
    return _reduce(plain, reduction, weights)


@composition(aten.mse_loss.default)
def mse_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    return _reduce((x - y) ** 2, reduction)


@composition(aten.l1_loss.default)
def l1_loss(x: Tensor, y: Tensor, reduction: int = 1) -> Tensor:
    return _reduce((x - y).abs(), reduction)


# -- norms and moments -----------------------------------------------------------------------------


@composition(aten.linalg_vector_norm.default)
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    x = x if dtype is None else x.to(dtype)
    dims = _dims(x, dim)
    if ord == 2:
        return torch.sqrt((x**2).sum(dims, keepdim))
    if ord == 1:
        return x.abs().sum(dims, keepdim)
    if ord == math.inf:
        return torch.amax(x.abs(), dims, keepdim)
    if ord == -math.inf:
        return -torch.amax(-x.abs(), dims, keepdim)
    if ord == 0:
        return (x != 0).to(x.dtype).sum(dims, keepdim)
    return (x.abs() ** ord).sum(dims, keepdim) ** (1 / ord)


@composition(aten.norm.ScalarOpt_dim, aten.norm.Scalar)
def norm(x: Tensor, p: float | None = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    return vector_norm(x, 2 if p is None else p, dim, keepdim)


@composition(aten.linalg_norm.default)
def linalg_norm(
    x: Tensor,
    ord: float | None = None,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor:
    matrix = ord is not None and (
        x.dim() == 2 if dim is None else not isinstance(dim, int) and len(dim) == 2
    )
    if matrix:
        raise CaptureError(
            f"linalg.norm with ord={ord} of matrices has no rule; vector norms (dim=one dimension) "
            "do"
        )
    return vector_norm(x, 2 if ord is None else ord, dim, keepdim, dtype=dtype)


@composition(aten.cosine_similarity.default)
def cosine_similarity(x: Tensor, y: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    x, y = torch.broadcast_tensors(x, y)
    unit = lambda t: t * torch.reciprocal(torch.clamp_min(vector_norm(t, 2, dim, True), eps))
    return (unit(x) * unit(y)).sum(dim)


@composition(aten.pairwise_distance.default)
def pairwise_distance(
    x: Tensor, y: Tensor, p: float = 2, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    return vector_norm(x - y + eps, p, -1, keepdim)


def _dims(x: Tensor, dim: Any) -> tuple[int, ...]:
    """The dimensions that an argument names; all of them for None."""
    if dim is None:
        return tuple(range(x.dim()))
    return (dim,) if isinstance(dim, int) else tuple(dim)


def _variance(x: Tensor, dim: Any, correction: float, keepdim: bool) -> Tensor:
    dims = _dims(x, None if dim == [] else dim)
    count = math.prod(x.shape[d] for d in dims)
    centred = x - x.mean(dims, True)
    return (centred**2).sum(dims, keepdim) * (
        1 / max(count - correction, 0) if count > correction else math.inf
    )


@composition(aten.var.correction)
def var(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _variance(x, dim, 1 if correction is None else correction, keepdim)


@composition(aten.var.dim)
def var_dim(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, int(unbiased), keepdim)


@composition(aten.var.default)
def var_all(x: Tensor, unbiased: bool = True) -> Tensor:
    return _variance(x, None, int(unbiased), False)


@composition(aten.std.correction)
def std(
    x: Tensor, dim: Any = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return torch.sqrt(_variance(x, dim, 1 if correction is None else correction, keepdim))


@composition(aten.std.dim)
def std_dim(x: Tensor, dim: Any, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return torch.sqrt(_variance(x, dim, int(unbiased), keepdim))


@composition(aten.std.default)
def std_all(x: Tensor, unbiased: bool = True) -> Tensor:
    return torch.sqrt(_variance(x, None, int(unbiased), False))


def _with_mean(spread: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The operator that returns a measure of spread and the mean; the first arguments after x are
    those of the measure."""

    def both(
        x: Tensor, dim: Any = None, *rest: Any, keepdim: bool = False, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        keep = rest[1] if len(rest) > 1 else keepdim
        return spread(x, dim, *rest[:1], keepdim=keep, **kwargs), x.mean(dim, keep)

    return both


composition(aten.var_mean.correction)(_with_mean(var))
composition(aten.var_mean.dim)(_with_mean(var_dim))
composition(aten.std_mean.correction)(_with_mean(std))
composition(aten.std_mean.dim)(_with_mean(std_dim))


@composition(aten.var_mean.default)
def var_mean_all(x: Tensor, unbiased: bool = True) -> tuple[Tensor, Tensor]:
    return var_all(x, unbiased), x.mean()


@composition(aten.std_mean.default)
def std_mean_all(x: Tensor, unbiased: bool = True) -> tuple[Tensor, Tensor]:
    return std_all(x, unbiased), x.mean()
