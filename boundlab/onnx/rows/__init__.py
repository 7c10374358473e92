"""Rows for ONNX operators, by what they do; importing this fills the table."""

from boundlab.onnx.rows import (
    constants,
    convolution,
    elementwise,
    indexing,
    linear,
    logic,
    normalisation,
    pooling,
    quantised,
    recurrent,
    reductions,
    resizing,
    shapes,
    softmax,
)

__all__ = [
    "constants", "convolution", "elementwise", "indexing", "linear", "logic", "normalisation",
    "pooling", "quantised", "recurrent", "reductions", "resizing", "shapes", "softmax",
]  # fmt: skip
