"""The arithmetic that bounds are proved for, and what its operations may round.

A rounding error is one more perturbation. The value of a node that a machine computes is

    h^ = H(h^ of its arguments) + e,    |e| <= r,

and r follows from the magnitudes of the arguments: a *row* of boundlab/arithmetic/rows.py gives it
for each operator. The analysis is made in double precision, and rounds as well. What it takes off
for itself has the same shape: where a step replaces coefficients A W by rounded ones, or a sum of
products by a rounded sum, it is off by at most gamma |A| (|W| |h| + |b|). So each node has one
number for each of its elements, the *room*, that holds both (boundlab/arithmetic/rounded.py):
interval arithmetic widens the node by it, relaxations have it in their intercepts, and all methods
follow.

    gamma(n, u) = n u / (1 - n u)

bounds the relative error of n operations with unit roundoff u, in any order, fused or not (Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, sections 3.1 and 4.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from boundlab.errors import ArgumentError, did_you_mean


@dataclass(frozen=True)
class Format:
    """A floating-point format in which operations round to nearest. unit: the unit roundoff;
    smallest: the smallest normal number, below which results may be flushed to 0; largest: beyond
    it operations overflow."""

    dtype: torch.dtype
    unit: float
    smallest: float
    largest: float

    @staticmethod
    def of(dtype: torch.dtype) -> Format:
        kind = torch.finfo(dtype)
        return Format(dtype, kind.eps / 2, kind.smallest_normal, kind.max)


DOUBLE = Format.of(torch.float64)
"""What analyses are made in."""
SPARE = 2.0
"""How much more than the measured error a machine may make."""
FLOOR = 2.0**-300
"""What underflow may take from a bound, as long as no value is beyond FAR: every operation of an
analysis loses at most 2^-1022 times FAR, and there are fewer than 2^300 of them."""
FAR = 2.0**400
"""The largest magnitude at which values are bounded."""


@dataclass(frozen=True)
class Arithmetic:
    """name: as users call it. executed: the format in which the network is executed; None: it is
    evaluated exactly."""

    name: str
    executed: Format | None = None

    @property
    def largest(self) -> float:
        """Values beyond it have no bounds."""
        if self.executed is None:
            return FAR
        return min(self.executed.largest, FAR)

    @property
    def whole(self) -> float:
        """The largest whole number up to which all of them are numbers of the format."""
        if self.executed is None:
            return 1 / DOUBLE.unit
        return 1 / self.executed.unit


REAL = Arithmetic("real")
ARITHMETICS = {
    row.name: row
    for row in (
        REAL,
        Arithmetic("float32", Format.of(torch.float32)),
        Arithmetic("float64", Format.of(torch.float64)),
    )
}


def find_arithmetic(given: str | Arithmetic | None) -> Arithmetic | None:
    """The arithmetic of a name; None for None."""
    if given is None or isinstance(given, Arithmetic):
        return given
    if given in ARITHMETICS:
        return ARITHMETICS[given]
    known = ", ".join(map(repr, ARITHMETICS))
    hint = did_you_mean(str(given), ARITHMETICS)
    raise ArgumentError(f"arithmetic must be None or one of {known}, not {given!r}.{hint}")


def gamma(count: float, unit: float) -> float:
    """The relative error of ``count`` roundings; infinite where they may take everything."""
    share = count * unit
    if share >= 0.5:
        return float("inf")
    return share / (1 - share)
