"""The functions whose rounding errors ``benchmarks.ulps`` measures: each as torch has it, by a
formula without cancellation in float64, and with many digits in mpmath."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from mpmath import mp, mpf
from torch import Tensor
from torch.nn import functional

Unary = Callable[[Tensor], Tensor]
ROOT_HALF = math.sqrt(0.5)
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946
GELU_CUBIC = 0.044715


@dataclass(frozen=True)
class Function:
    """op: as torch executes it. reference: in float64, of the same number, with a relative error of
    some 2^-50. exact: of an mpf, with mpmath. positive: whether only positive numbers are in the
    domain of boundlab's row."""

    op: Unary
    reference: Unary
    exact: Callable[[Any], Any]
    positive: bool = False


def same(op: Unary, exact: Callable[[Any], Any], positive: bool = False) -> Function:
    """A function whose float64 kernel is good enough."""
    return Function(op, op, exact, positive)


def _gelu_without_onednn(x: Tensor) -> Tensor:
    """As torch computes it for small tensors; for larger ones it asks oneDNN."""
    torch.backends.mkldnn.set_flags(False)
    try:
        return functional.gelu(x)
    finally:
        torch.backends.mkldnn.set_flags(True)


# -- formulas in float64 ---------------------------------------------------------------------------


def _softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)) without torch's threshold."""
    return x.clamp(min=0) + torch.log1p(torch.exp(-x.abs()))


def _cut_softplus(x: Tensor) -> Tensor:
    return torch.where(x > 20, x, _softplus(x))


def _silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


def _gelu(x: Tensor) -> Tensor:
    return 0.5 * x * torch.erfc(-x * ROOT_HALF)


def _gelu_tanh(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-2 * math.sqrt(2 / math.pi) * (x + GELU_CUBIC * x**3)))


def _elu(x: Tensor) -> Tensor:
    return torch.where(x > 0, x, torch.expm1(x))


def _selu(x: Tensor) -> Tensor:
    return SELU_SCALE * torch.where(x > 0, x, SELU_ALPHA * torch.expm1(x))


def _logit(x: Tensor) -> Tensor:
    return torch.where(
        (x - 0.5).abs() < 0.25, torch.log1p((2 * x - 1) / (1 - x)), torch.log(x) - torch.log1p(-x)
    )


def _log_ndtr(x: Tensor) -> Tensor:
    left = torch.log(torch.special.erfcx(-x.clamp(max=0) * ROOT_HALF) / 2) - x * x / 2
    return torch.where(x < -1, left, torch.log1p(-torch.erfc(x * ROOT_HALF) / 2))


def _sinc(x: Tensor) -> Tensor:
    """sin(pi x) of the distance to the nearest whole number, which is exact."""
    whole = torch.round(x)
    sign = 1 - 2 * torch.remainder(whole, 2)
    return torch.where(x == 0, 1, sign * torch.sin(math.pi * (x - whole)) / (math.pi * x))


def partner(x: Tensor) -> Tensor:
    """Divisors, one for every number: its bits, mixed."""
    if x.dtype == torch.float32:
        return (x.view(torch.int32) * 747796405 + 1013904223).view(torch.float32)
    return (x.view(torch.int64) * 6364136223846793005 + 1442695040888963407).view(torch.float64)


def _quotient(x: Tensor) -> Tensor:
    return x / partner(x)


def _quotient_reference(x: Tensor) -> Tensor:
    """For float32 numbers that were made wider."""
    return x / partner(x.float()).double()


# -- with many digits ------------------------------------------------------------------------------


def _exact_softplus(x: Any) -> Any:
    """Of any size; torch's threshold is that of ``_exact_cut_softplus``."""
    return max(x, mpf(0)) + mp.log1p(mp.exp(-abs(x)))


def _exact_cut_softplus(x: Any) -> Any:
    if x > 20:
        return x
    return _exact_softplus(x)


def _exact_sigmoid(x: Any) -> Any:
    return 1 / (1 + mp.exp(-x))


def _exact_ndtr(x: Any) -> Any:
    return mp.erfc(-x / mp.sqrt(2)) / 2


def _exact_gelu(x: Any) -> Any:
    return x * _exact_ndtr(x)


def _exact_gelu_tanh(x: Any) -> Any:
    return x * _exact_sigmoid(2 * mp.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3))


def _exact_elu(x: Any) -> Any:
    return x if x > 0 else mp.expm1(x)


def _exact_selu(x: Any) -> Any:
    alpha = mpf("1.6732632423543772848170429916717")
    return mpf("1.0507009873554804934193349852946") * (x if x > 0 else alpha * mp.expm1(x))


def _exact_log_ndtr(x: Any) -> Any:
    if x > 0:
        return mp.log1p(-_exact_ndtr(-x))
    if x < -1e4:  # the asymptotic series: the next term is 74 / x^8
        t = 1 / (x * x)
        return -x * x / 2 - mp.log(-x * mp.sqrt(2 * mp.pi)) + mp.log1p(-t + 3 * t**2 - 15 * t**3)
    return mp.log(_exact_ndtr(x))


def _newton(start: float, slope: Callable[[Any], Any], miss: Callable[[Any], Any]) -> Any:
    """A root of miss, from a start that has some ten digits."""
    y = mpf(start)
    for _ in range(5):
        y -= miss(y) / slope(y)
    return y


def _exact_erfinv(x: Any) -> Any:
    """From the complement where x is near 1, which is exact in binary."""
    size = abs(x)
    if size >= 1:
        return mp.nan
    if x == 0:
        return x
    start = torch.erfinv(torch.tensor(float(size), dtype=torch.float64)).item()
    slope = lambda y: 2 / mp.sqrt(mp.pi) * mp.exp(-y * y)
    if size > 0.5:
        found = _newton(start, slope, lambda y: (1 - size) - mp.erfc(y))
    else:
        found = _newton(start, slope, lambda y: mp.erf(y) - size)
    return mp.sign(x) * found


def _exact_ndtri(p: Any) -> Any:
    if p > 0.5:
        return -_exact_ndtri(1 - p)
    start = torch.special.ndtri(torch.tensor(float(p), dtype=torch.float64)).item()
    slope = lambda y: mp.exp(-y * y / 2) / mp.sqrt(2 * mp.pi)
    return _newton(start, slope, lambda y: _exact_ndtr(y) - p)


def _exact_sinc(x: Any) -> Any:
    return mp.sinpi(x) / (mp.pi * x) if x else mpf(1)


def _exact_quotient(x: Any, dtype: torch.dtype = torch.float64) -> Any:
    divisor = partner(torch.tensor([float(x)], dtype=dtype)).item()
    if math.isnan(divisor) or divisor == 0:
        return mp.nan
    return x / mpf(divisor)


def _exact_entr(x: Any) -> Any:
    return -x * mp.log(x) if x else mpf(0)


def _exact_logit(x: Any) -> Any:
    if 0.25 < x < 0.75:
        return mp.log1p((2 * x - 1) / (1 - x))
    return mp.log(x) - mp.log1p(-x)


def _power(exponent: float) -> Function:
    return same(lambda x: torch.pow(x, exponent), lambda x: x ** mpf(exponent))


# -- the table, in order of importance -------------------------------------------------------------

special = torch.special

FUNCTIONS: dict[str, Function] = {
    "exp": same(torch.exp, mp.exp),
    "tanh": same(torch.tanh, mp.tanh),
    "sigmoid": Function(torch.sigmoid, lambda x: 1 / (1 + torch.exp(-x)), _exact_sigmoid),
    "log": same(torch.log, mp.log),
    "erf": same(torch.erf, mp.erf),
    "gelu": Function(functional.gelu, _gelu, _exact_gelu),
    "gelu_without_onednn": Function(_gelu_without_onednn, _gelu, _exact_gelu),
    "gelu_tanh": Function(
        partial(functional.gelu, approximate="tanh"), _gelu_tanh, _exact_gelu_tanh
    ),
    "silu": Function(functional.silu, _silu, lambda x: x * _exact_sigmoid(x)),
    "sqrt": same(torch.sqrt, mp.sqrt),
    "rsqrt": Function(torch.rsqrt, lambda x: 1 / torch.sqrt(x), lambda x: 1 / mp.sqrt(x)),
    "reciprocal": Function(torch.reciprocal, lambda x: 1 / x, lambda x: 1 / x),
    "div": Function(_quotient, _quotient_reference, _exact_quotient),
    "softplus": Function(functional.softplus, _cut_softplus, _exact_cut_softplus),
    "sin": same(torch.sin, mp.sin),
    "cos": same(torch.cos, mp.cos),
    "log1p": same(torch.log1p, mp.log1p),
    "expm1": same(torch.expm1, mp.expm1),
    "mish": Function(
        functional.mish,
        lambda x: x * torch.tanh(_softplus(x)),
        lambda x: x * mp.tanh(_exact_softplus(x)),
    ),
    "elu": Function(functional.elu, _elu, _exact_elu),
    "selu": Function(functional.selu, _selu, _exact_selu),
    "celu": Function(functional.celu, _elu, _exact_elu),
    "log_sigmoid": Function(
        functional.logsigmoid, lambda x: -_softplus(-x), lambda x: -_exact_softplus(-x)
    ),
    "hardsigmoid": Function(
        functional.hardsigmoid,
        lambda x: (x + 3).clamp(0, 6) / 6,
        lambda x: min(max(x + 3, mpf(0)), mpf(6)) / 6,
    ),
    "hardswish": Function(
        functional.hardswish,
        lambda x: x * (x + 3).clamp(0, 6) / 6,
        lambda x: x * min(max(x + 3, mpf(0)), mpf(6)) / 6,
    ),
    "square": same(torch.square, lambda x: x * x),
    "pow_2": _power(2),
    "pow_3": _power(3),
    "pow_0.5": _power(0.5),
    "pow_-1": _power(-1),
    "pow_2.5": _power(2.5),
    "log2": same(torch.log2, lambda x: mp.log(x) / mp.ln2),
    "log10": same(torch.log10, mp.log10),
    "exp2": same(torch.exp2, lambda x: mpf(2) ** x),
    "tan": same(torch.tan, mp.tan),
    "atan": same(torch.atan, mp.atan),
    "asin": same(torch.asin, mp.asin),
    "acos": same(torch.acos, mp.acos),
    "sinh": same(torch.sinh, mp.sinh),
    "cosh": same(torch.cosh, mp.cosh),
    "asinh": same(torch.asinh, mp.asinh),
    "acosh": same(torch.acosh, mp.acosh),
    "atanh": same(torch.atanh, mp.atanh),
    "erfc": same(torch.erfc, mp.erfc),
    "erfinv": same(torch.erfinv, _exact_erfinv),
    "logit": Function(torch.logit, _logit, _exact_logit),
    "special_ndtr": Function(special.ndtr, lambda x: 0.5 * torch.erfc(-x * ROOT_HALF), _exact_ndtr),
    "special_log_ndtr": Function(special.log_ndtr, _log_ndtr, _exact_log_ndtr),
    "special_ndtri": same(special.ndtri, _exact_ndtri),
    "special_entr": Function(special.entr, lambda x: -torch.xlogy(x, x), _exact_entr),
    "sinc": Function(torch.sinc, _sinc, _exact_sinc),
    "lgamma": same(torch.lgamma, mp.loggamma, positive=True),
    "digamma": same(torch.digamma, mp.digamma, positive=True),
}
