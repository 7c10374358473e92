"""Operators that are compositions of others, taken apart when a model is captured.

Each function has the signature of its operator and computes the same value.
"""

from boundlab.rules.compositions import (
    arithmetic,
    attention,
    elements,
    extremes,
    gates,
    losses,
    matrices,
    moments,
    names,
    normalisation,
    norms,
    order,
    pooling,
    signs,
    softmaxes,
    solutions,
)

__all__ = [
    "arithmetic",
    "attention",
    "elements",
    "extremes",
    "gates",
    "losses",
    "matrices",
    "moments",
    "names",
    "normalisation",
    "norms",
    "order",
    "pooling",
    "signs",
    "softmaxes",
    "solutions",
]
