"""The networks of the paper, and small ones for MNIST, for any image size and number of classes.

Every model takes pixels in [0, 1] and normalises inside, so that a radius is one of pixels and a
region can respect their range.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from boundlab.errors import ArgumentError
from boundlab.models.parts import Normalise
from boundlab.models.plain import cnn7_bn, mlp, small_cnn, small_cnn_bn, tiny_cnn
from boundlab.models.residual import densenet, resnext, wide_resnet

MODELS: dict[str, Callable[[int, int, int], nn.Module]] = {
    "mlp": mlp,
    "tiny-cnn": tiny_cnn,
    "small-cnn": small_cnn,
    "small-cnn-bn": small_cnn_bn,
    "cnn7-bn": cnn7_bn,
    "densenet": densenet,
    "wide-resnet": wide_resnet,
    "resnext": resnext,
}
"""name -> (channels, image size, classes) -> network."""


def build(
    name: str,
    channels: int,
    size: int,
    classes: int,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
) -> nn.Sequential:
    """A network by name, behind a normalisation by channel if mean and standard deviation are
    given."""
    if name not in MODELS:
        raise ArgumentError(f"there is no model {name!r}; there are: {', '.join(MODELS)}")
    body = MODELS[name](channels, size, classes)
    if mean is None or std is None:
        return nn.Sequential(nn.Identity(), body)
    return nn.Sequential(Normalise(mean, std), body)


__all__ = ["MODELS", "Normalise", "build"]
