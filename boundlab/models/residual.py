"""Networks with shortcuts: wide residual networks, ResNeXt and DenseNet, in the sizes of the
paper."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from boundlab.models.parts import conv_bn_relu, head

SMALL = 32
"""The size of images up to which networks are smaller."""


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); the shortcut is a 1x1 convolution with batch norm where shapes
    differ."""

    def __init__(self, body: nn.Module, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.body = body
        self.shortcut: nn.Module = nn.Identity()
        if into != out or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def _wide(into: int, out: int, stride: int) -> Residual:
    last = [nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)]
    return Residual(
        nn.Sequential(*conv_bn_relu(into, out, stride=stride), *last), into, out, stride
    )


def wide_resnet(channels: int, size: int, classes: int) -> nn.Module:
    """Three wide basic blocks (six 3x3 convolutions), widen factor 4 with a linear layer of 512 for
    small images, 10 above."""
    factor, hidden = (4, 512) if size <= SMALL else (10, None)
    widths = [16, 16 * factor, 32 * factor, 64 * factor]
    blocks = [
        _wide(into, out, stride)
        for into, out, stride in zip(widths, widths[1:], (1, 2, 2), strict=False)
    ]
    features = nn.Sequential(*conv_bn_relu(channels, 16), *blocks, nn.AvgPool2d(size // 8))
    return head(features, channels, size, classes, hidden=hidden)


def _grouped(into: int, width: int, stride: int, cardinality: int) -> Residual:
    inner, out = cardinality * width, 2 * cardinality * width
    last = [nn.Conv2d(inner, out, 1, bias=False), nn.BatchNorm2d(out)]
    middle = conv_bn_relu(inner, inner, stride=stride, groups=cardinality)
    return Residual(
        nn.Sequential(*conv_bn_relu(into, inner, 1, padding=0), *middle, *last), into, out, stride
    )


def resnext(
    channels: int, size: int, classes: int, cardinality: int = 2, width: int = 32
) -> nn.Module:
    """{1, 1, 1} blocks for small images, {2, 2, 2} above; cardinality 2, bottleneck width 32,
    doubled with every stage."""
    depth = 1 if size <= SMALL else 2
    into = 64
    blocks: list[nn.Module] = []
    for stage, first in enumerate((1, 2, 2)):
        for stride in (first, *[1] * (depth - 1)):
            blocks.append(_grouped(into, width << stage, stride, cardinality))
            into = 2 * cardinality * (width << stage)
    return head(nn.Sequential(*conv_bn_relu(channels, 64), *blocks), channels, size, classes)


class Dense(nn.Module):
    """x beside ``growth`` new channels made from it through a bottleneck."""

    def __init__(self, into: int, growth: int) -> None:
        super().__init__()
        inner = 4 * growth
        self.body = nn.Sequential(
            nn.BatchNorm2d(into), nn.ReLU(), nn.Conv2d(into, inner, 1, bias=False),
            nn.BatchNorm2d(inner), nn.ReLU(), nn.Conv2d(inner, growth, 3, padding=1, bias=False),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.body(x), x], 1)


def densenet(channels: int, size: int, classes: int, growth: int = 32) -> nn.Module:
    """{2, 4, 4} dense layers with growth rate 32; between the stages 1x1 convolutions halve
    channels and pooling the image."""
    into = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(channels, into, 3, padding=1, bias=False)]
    for stage, depth in enumerate((2, 4, 4)):
        layers += [Dense(into + i * growth, growth) for i in range(depth)]
        into += depth * growth
        if stage < 2:
            layers += [
                nn.BatchNorm2d(into),
                nn.ReLU(),
                nn.Conv2d(into, into // 2, 1, bias=False),
                nn.AvgPool2d(2),
            ]
            into //= 2
    return head(nn.Sequential(*layers, nn.BatchNorm2d(into), nn.ReLU()), channels, size, classes)
