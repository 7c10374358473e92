"""Error, gamma and normal distribution functions: rows of the table of elementwise functions."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundlab.rules.curves import Curve
from boundlab.rules.elementwise import NOT_NEGATIVE, POSITIVE, elementwise, s_shaped
from boundlab.rules.registry import aten

BELOW_ONE = 0.0, 1.0, False

# -- the error function and its inverse ------------------------------------------------------------


def _erfc_slope(x: Tensor) -> Tensor:
    return -2 / math.sqrt(math.pi) * torch.exp(-x * x)


def _erfinv_slope(x: Tensor) -> Tensor:
    """1 / erf'(y) with y the value itself."""
    return math.sqrt(math.pi) / 2 * torch.exp(torch.erfinv(x) ** 2)


elementwise(aten.erfc, curve=Curve(("concave", "convex"), (0.0,), derivative=_erfc_slope))
elementwise(
    aten.erfinv,
    curve=Curve(("concave", "convex"), (0.0,), domain=(-1.0, 1.0, False), derivative=_erfinv_slope),
)

# -- the normal distribution -----------------------------------------------------------------------


def _density(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _log_ndtr_slope(x: Tensor) -> Tensor:
    """The density over the distribution function, both times exp(x^2 / 2): neither underflows."""
    return math.sqrt(2 / math.pi) / torch.special.erfcx(-x / math.sqrt(2))


def _ndtri_slope(x: Tensor) -> Tensor:
    """1 / the density at the value itself."""
    return 1 / _density(torch.special.ndtri(x))


elementwise(aten.special_ndtr, curve=s_shaped(torch.special.ndtr, _density))
# the normal distribution is log-concave
elementwise(aten.special_log_ndtr, curve=Curve(("concave",), derivative=_log_ndtr_slope))
elementwise(
    aten.special_ndtri,
    curve=Curve(("concave", "convex"), (0.5,), domain=BELOW_ONE, derivative=_ndtri_slope),
)

# -- logarithms ------------------------------------------------------------------------------------


def _logit_slope(x: Tensor) -> Tensor:
    return 1 / (x * (1 - x))


def _logit(eps: float | None = None) -> Curve:
    """log(x / (1 - x)); x is cut to [eps, 1 - eps] first, if eps is given and not negative."""
    if eps is None or eps <= 0:
        return Curve(("concave", "convex"), (0.5,), domain=BELOW_ONE, derivative=_logit_slope)
    if eps < 0.5:
        return Curve(("linear", "concave", "convex", "linear"), (eps, 0.5, 1 - eps))
    # torch: all below eps counts as eps, all else is above 1 - eps
    high, low = (math.log(p) - math.log1p(-p) for p in (eps, 1 - eps))
    return Curve(("linear", "linear"), (eps,), jumps=((eps, high), (eps, low)))


def _entropy_slope(x: Tensor) -> Tensor:
    return -torch.log(x) - 1


elementwise(aten.logit, curve=_logit)
# -x log x, which is 0 at 0
elementwise(
    aten.special_entr,
    curve=Curve(
        ("concave",), turns=(math.exp(-1.0),), domain=NOT_NEGATIVE, derivative=_entropy_slope
    ),
)

# -- the gamma function ----------------------------------------------------------------------------
#
# The derivatives of log gamma from the second on are sums of +-n! / (x + k)^(n + 1), of one sign
# for x > 0: log gamma is convex there, digamma, its slope, rises and is concave.

LEAST_GAMMA = 1.46163214496836234
"""Where the gamma function is least: the root of digamma."""


def _digamma_slope(x: Tensor) -> Tensor:
    return torch.polygamma(1, x)


elementwise(
    aten.lgamma,
    curve=Curve(("convex",), turns=(LEAST_GAMMA,), domain=POSITIVE, derivative=torch.digamma),
)
elementwise(aten.digamma, curve=Curve(("concave",), domain=POSITIVE, derivative=_digamma_slope))
