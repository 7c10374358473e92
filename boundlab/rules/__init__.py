"""Operator rules, grouped by property. Importing this package fills the registry."""

from boundlab.rules import affine, bilinear, compositions, elementwise, layers, logic, maximum, periodic, rectifiers, softmax

__all__ = ["affine", "bilinear", "compositions", "elementwise", "layers", "logic", "maximum", "periodic", "rectifiers", "softmax"]
