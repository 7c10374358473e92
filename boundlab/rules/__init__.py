"""Operator rules, grouped by property. Importing this package fills the registry."""

from boundlab.rules import (
    affine,
    bilinear,
    casts,
    compositions,
    einsum,
    elementwise,
    hypotenuse,
    logic,
    maximum,
    periodic,
    powers,
    rectifiers,
    softmax,
    steps,
    warps,
)

__all__ = [
    "affine",
    "bilinear",
    "casts",
    "compositions",
    "einsum",
    "elementwise",
    "hypotenuse",
    "logic",
    "maximum",
    "periodic",
    "powers",
    "rectifiers",
    "softmax",
    "steps",
    "warps",
]
