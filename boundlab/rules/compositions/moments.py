"""Variances and standard deviations."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from boundlab.rules.compositions.norms import named_dimensions
from boundlab.rules.registry import aten, composition
from boundlab.rules.settings import Dims


def _variance(x: Tensor, dim: Dims, correction: float | None, keepdim: bool) -> Tensor:
    """The sum of the squared distances from the mean, over the count minus ``correction``; None:
    minus 1."""
    if dim == []:
        dim = None
    if correction is None:
        correction = 1
    dims = named_dimensions(x, dim)
    count = math.prod(x.shape[d] for d in dims)
    factor = math.inf
    if count > correction:
        factor = 1 / (count - correction)
    centred = x - x.mean(dims, True)
    return (centred**2).sum(dims, keepdim) * factor


@composition(aten.var.correction)
def var(
    x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return _variance(x, dim, correction, keepdim)


@composition(aten.var.dim)
def var_dim(x: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return _variance(x, dim, int(unbiased), keepdim)


@composition(aten.var.default)
def var_all(x: Tensor, unbiased: bool = True) -> Tensor:
    return _variance(x, None, int(unbiased), False)


@composition(aten.std.correction)
def std(
    x: Tensor, dim: Dims = None, *, correction: float | None = None, keepdim: bool = False
) -> Tensor:
    return torch.sqrt(_variance(x, dim, correction, keepdim))


@composition(aten.std.dim)
def std_dim(x: Tensor, dim: Dims, unbiased: bool = True, keepdim: bool = False) -> Tensor:
    return torch.sqrt(_variance(x, dim, int(unbiased), keepdim))


@composition(aten.std.default)
def std_all(x: Tensor, unbiased: bool = True) -> Tensor:
    return torch.sqrt(_variance(x, None, int(unbiased), False))


def _with_mean(spread: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """The operator that returns a measure of spread and the mean; the first arguments after x are
    those of the measure."""

    def both(
        x: Tensor, dim: Dims = None, *rest: Any, keepdim: bool = False, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        if len(rest) > 1:
            keepdim = rest[1]
        return spread(x, dim, *rest[:1], keepdim=keepdim, **kwargs), x.mean(dim, keepdim)

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
