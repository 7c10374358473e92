"""Plain networks, fully connected and convolutional."""

from __future__ import annotations

from torch import nn

from boundlab.models.parts import conv_bn_relu, head


def mlp(channels: int, size: int, classes: int) -> nn.Module:
    """Three linear layers, 64 and 64 neurons wide: the network of the paper's weight
    perturbations."""
    layers = [
        nn.Linear(channels * size * size, 64),
        nn.ReLU(),
        nn.Linear(64, 64),
        nn.ReLU(),
        nn.Linear(64, classes),
    ]
    return nn.Sequential(nn.Flatten(), *layers)


def cnn7_bn(channels: int, size: int, classes: int) -> nn.Module:
    """CNN-7+BN: five convolutions with 64, 64, 128, 128, 128 filters, the third with stride 2, and
    a linear layer of 512."""
    widths = [(channels, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 128, 1)]
    layers = [
        part for into, out, stride in widths for part in conv_bn_relu(into, out, stride=stride)
    ]
    return head(nn.Sequential(*layers), channels, size, classes)


def tiny_cnn(channels: int, size: int, classes: int) -> nn.Module:
    """Two convolutions with stride 2 (8 and 16 filters of 4x4) and two linear layers: the network
    of the demo."""
    layers = [nn.Conv2d(channels, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 4, 2, 1), nn.ReLU()]
    return head(nn.Sequential(*layers), channels, size, classes, hidden=64)


def small_cnn(channels: int, size: int, classes: int) -> nn.Module:
    """Two convolutions with stride 2 (16 and 32 filters of 4x4) and two linear layers."""
    layers = [nn.Conv2d(channels, 16, 4, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 4, 2, 1), nn.ReLU()]
    return head(nn.Sequential(*layers), channels, size, classes, hidden=100)


def small_cnn_bn(channels: int, size: int, classes: int) -> nn.Module:
    """The same with batch norm behind both convolutions."""
    layers = [*conv_bn_relu(channels, 16, 4, 2), *conv_bn_relu(16, 32, 4, 2)]
    return head(nn.Sequential(*layers), channels, size, classes, hidden=100)
