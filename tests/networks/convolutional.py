"""Convolutional networks for images, sequences and volumes."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.networks.case import IMAGE, NetworkCase


def conv_bn(
    cin: int,
    cout: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    act: Callable[[], nn.Module] = nn.ReLU,
) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(cout),
        act(),
    )


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 4),
    )


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(
                nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout)
            )

    def forward(self, x: Tensor) -> Tensor:
        identity = x if self.downsample is None else self.downsample(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += identity
        return self.relu(out)


class Bottleneck(nn.Module):
    def __init__(self, cin: int, width: int, cout: int, groups: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(cin, width, 1),
            conv_bn(width, width, 3, 1, groups),
            nn.Conv2d(width, cout, 1, bias=False),
            nn.BatchNorm2d(cout),
        )
        self.short = nn.Identity() if cin == cout else nn.Conv2d(cin, cout, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, *blocks: nn.Module, channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(2, 4, 3, 1, 1, bias=False),
            nn.BatchNorm2d(4),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        self.layers = nn.Sequential(*blocks)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d((1, 1)), nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(torch.flatten(self.avgpool(self.layers(self.stem(x))), 1))


def resnet_basic() -> nn.Module:
    return ResNet(BasicBlock(4, 4, 1), BasicBlock(4, 6, 2), channels=6)


def resnet_bottleneck() -> nn.Module:
    return ResNet(Bottleneck(4, 2, 8), Bottleneck(8, 2, 8), channels=8)


def resnext() -> nn.Module:
    return ResNet(Bottleneck(4, 4, 8, groups=2), Bottleneck(8, 4, 8, groups=4), channels=8)


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 4, 3, padding=1, bias=False)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(4 + 2 * i),
                nn.ReLU(),
                nn.Conv2d(4 + 2 * i, 2, 3, padding=1, bias=False),
            )
            for i in range(3)
        )
        self.transition = nn.Sequential(
            nn.BatchNorm2d(10), nn.ReLU(), nn.Conv2d(10, 4, 1, bias=False), nn.AvgPool2d(2)
        )
        self.classifier = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        features = [self.stem(x)]
        for layer in self.layers:
            features.append(layer(torch.cat(features, 1)))
        out = F.relu(self.transition(torch.cat(features, 1)), inplace=True)
        return self.classifier(F.adaptive_avg_pool2d(out, (1, 1)).flatten(1))


class SqueezeExcite(nn.Module):
    def __init__(self, channels: int, act: nn.Module, gate: nn.Module) -> None:
        super().__init__()
        self.pool, self.reduce, self.expand = (
            nn.AdaptiveAvgPool2d(1),
            nn.Conv2d(channels, 2, 1),
            nn.Conv2d(2, channels, 1),
        )
        self.act, self.gate = act, gate

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(self.expand(self.act(self.reduce(self.pool(x)))))


class InvertedResidual(nn.Module):
    def __init__(self, act: Callable[[], nn.Module], excite: nn.Module | None = None) -> None:
        super().__init__()
        self.expand, self.depthwise = conv_bn(4, 8, 1, act=act), conv_bn(8, 8, 3, groups=8, act=act)
        self.excite = nn.Identity() if excite is None else excite
        self.project = nn.Sequential(nn.Conv2d(8, 4, 1, bias=False), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.project(self.excite(self.depthwise(self.expand(x))))


def mobile(
    act: Callable[[], nn.Module], excite: Callable[[], nn.Module | None] = lambda: None
) -> nn.Module:
    return nn.Sequential(
        conv_bn(2, 4, 3, 2, act=act),
        InvertedResidual(act, excite()),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(4, 4),
    )


def mobilenet_v2() -> nn.Module:
    return mobile(nn.ReLU6)


def mobilenet_v3() -> nn.Module:
    return mobile(nn.Hardswish, lambda: SqueezeExcite(8, nn.ReLU(), nn.Hardsigmoid()))


def efficientnet() -> nn.Module:
    return mobile(nn.SiLU, lambda: SqueezeExcite(8, nn.SiLU(), nn.Sigmoid()))


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.three = (
            nn.Conv2d(2, 2, 1),
            nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Conv2d(2, 3, 3, padding=1)),
        )
        self.five = nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(2, 2, 1))
        self.head = nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat(
            [F.relu(branch(x)) for branch in (self.one, self.three, self.five, self.pool)], dim=1
        )
        return self.head(x.mean(dim=(2, 3)))


class SqueezeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.one, self.three = (
            nn.Conv2d(2, 2, 1),
            nn.Conv2d(2, 3, 1),
            nn.Conv2d(2, 3, 3, padding=1),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(), nn.Conv2d(6, 4, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1))
        )

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.squeeze(x), inplace=True)
        x = torch.cat([F.relu(self.one(x), inplace=True), F.relu(self.three(x), inplace=True)], 1)
        x = F.max_pool2d(x, 3, 2, ceil_mode=True)
        return torch.flatten(self.classifier(x), 1)


class UNet(nn.Module):
    def __init__(self, upsample: str) -> None:
        super().__init__()
        self.down, self.middle = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 4, 3, padding=1)
        if upsample == "transposed":
            self.up: nn.Module = nn.ConvTranspose2d(4, 3, 2, stride=2)
        else:
            align = None if upsample == "nearest" else False
            self.up = nn.Sequential(
                nn.Upsample(scale_factor=2, mode=upsample, align_corners=align), nn.Conv2d(4, 3, 1)
            )
        self.last = nn.Conv2d(6, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.relu(self.down(x))
        x = F.relu(self.middle(F.max_pool2d(skip, 2)))
        return self.last(torch.cat([skip, self.up(x)], dim=1))


class ConvNeXt(nn.Module):
    def __init__(self, dim: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, dim, 2, stride=2)
        self.dwconv = nn.Conv2d(dim, dim, 3, padding=1, groups=dim)
        self.norm = nn.LayerNorm(dim, eps=1e-2)
        self.pwconv1, self.act, self.pwconv2 = (
            nn.Linear(dim, 2 * dim),
            nn.GELU(),
            nn.Linear(2 * dim, dim),
        )
        self.gamma = nn.Parameter(0.5 * torch.ones(dim))
        self.head = nn.Linear(dim, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        short = x
        x = self.dwconv(x).permute(0, 2, 3, 1)
        x = self.gamma * self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        x = short + x.permute(0, 3, 1, 2)
        return self.head(x.mean([-2, -1]))


class GroupNormNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.group, self.instance = (
            nn.Conv2d(2, 4, 3, 2, 1),
            nn.GroupNorm(2, 4, eps=1e-2),
            nn.InstanceNorm2d(4, eps=1e-2, affine=True),
        )
        self.shuffle, self.head = nn.PixelShuffle(2), nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.instance(F.elu(self.group(self.conv(x))))
        return self.head(self.shuffle(x).flatten(1))


def generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(4, 4, 2, 1, 0, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
        nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1, bias=False), nn.BatchNorm2d(2),
        nn.LeakyReLU(0.2, True),
        nn.ConvTranspose2d(2, 1, 4, 2, 1, groups=1), nn.Tanh(),
    )  # fmt: skip


class Decoder(nn.Module):
    """Of a variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 16)
        self.deconv1, self.deconv2 = (
            nn.ConvTranspose2d(4, 4, 3, 2, 1, 1),
            nn.ConvTranspose2d(4, 1, 3, 1, 1),
        )

    def forward(self, z: Tensor) -> Tensor:
        h = F.relu(self.fc(z)).view(-1, 4, 2, 2)
        return torch.sigmoid(self.deconv2(F.relu(self.deconv1(h))))


class Autoencoder(nn.Module):
    """Mean and logarithm of the variance, and a reconstruction from the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(2, 3, 3, 2, 1), nn.ReLU(), nn.Flatten())
        self.mean, self.logvar, self.decoder = nn.Linear(27, 3), nn.Linear(27, 3), Decoder()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        h = self.encoder(x)
        mean = self.mean(h)
        return {"mean": mean, "std": torch.exp(0.5 * self.logvar(h)), "image": self.decoder(mean)}


class Conv1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(2, 4, 3, padding=2, dilation=2),
            nn.ReLU(),
            nn.AvgPool1d(2),
            nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"),
            nn.Tanh(),
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x).max(dim=-1).values)


def conv3d() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Flatten(), nn.Linear(4, 2)
    )


class CausalTCN(nn.Module):
    """Temporal convolutions padded on the left, with residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.short = (
            nn.Conv1d(2, 4, 2),
            nn.Conv1d(4, 4, 2, dilation=2),
            nn.Conv1d(2, 4, 1),
        )
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(F.pad(x, (1, 0))))
        y = F.relu(self.b(F.pad(y, (2, 0), value=0.3)))
        return self.head((y + self.short(x))[..., -1])


NETWORKS: dict[str, NetworkCase] = {
    "cnn": NetworkCase(cnn, (IMAGE,), 0.05),
    "resnet-basic": NetworkCase(resnet_basic, (IMAGE,), 0.02),
    "resnet-bottleneck": NetworkCase(resnet_bottleneck, (IMAGE,), 0.02),
    "resnext": NetworkCase(resnext, (IMAGE,), 0.02),
    "densenet": NetworkCase(DenseNet, (IMAGE,), 0.02),
    "mobilenet-v2": NetworkCase(mobilenet_v2, (IMAGE,), 0.02),
    "mobilenet-v3": NetworkCase(mobilenet_v3, (IMAGE,), 0.02),
    "efficientnet": NetworkCase(efficientnet, (IMAGE,), 0.02),
    "inception": NetworkCase(Inception, (IMAGE,), 0.05),
    "squeezenet": NetworkCase(SqueezeNet, (IMAGE,), 0.05),
    "unet-transposed": NetworkCase(lambda: UNet("transposed"), (IMAGE,), 0.05),
    "unet-nearest": NetworkCase(lambda: UNet("nearest"), (IMAGE,), 0.05),
    "unet-bilinear": NetworkCase(lambda: UNet("bilinear"), (IMAGE,), 0.05),
    "convnext": NetworkCase(ConvNeXt, (IMAGE,), 0.01),
    "groupnorm": NetworkCase(GroupNormNet, (IMAGE,), 0.005),
    "generator": NetworkCase(generator, ((4, 1, 1),), 0.1),
    "vae-decoder": NetworkCase(Decoder, ((3,),), 0.1),
    "autoencoder": NetworkCase(Autoencoder, (IMAGE,), 0.05),
    "conv1d": NetworkCase(Conv1d, ((2, 8),), 0.05),
    "conv3d": NetworkCase(conv3d, ((1, 3, 3, 3),), 0.05),
    "tcn": NetworkCase(CausalTCN, ((2, 6),), 0.05),
}
