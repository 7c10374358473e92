"""Small plain-PyTorch networks as users write them: nothing in them is prepared for bounds."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations


@dataclass(frozen=True)
class Case:
    """A network and what it takes. shapes: of one sample of each input; eps: a radius for which its bounds stay finite."""

    build: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    eps: float = 0.02
    dtype: torch.dtype = torch.float32
    low: float = -1.0
    high: float = 1.0

    def model(self, seed: int = 0) -> nn.Module:
        """In eval mode, with every parameter and running statistic away from its trivial initial value."""
        with torch.random.fork_rng(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(seed)
            model = self.build()
            return stir(model).to(self.dtype).eval()

    def inputs(self, batch: int, seed: int = 1) -> tuple[Tensor, ...]:
        generator = torch.Generator().manual_seed(seed)
        return tuple(self.low + (self.high - self.low) * torch.rand(batch, *shape, generator=generator, dtype=self.dtype) for shape in self.shapes)


@contextmanager
def one_thread() -> Iterator[None]:
    """Networks this small only lose time to more threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def stir(model: nn.Module) -> nn.Module:
    """Move what starts at exactly 0 or 1 (biases, norms, layer scales, running statistics) to somewhere else."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if not tensor.is_floating_point() or tensor.dim() == 0 or "parametrizations" in name:
                continue
            if name.endswith("running_var"):
                tensor.uniform_(0.5, 1.5)
            elif name.endswith("running_mean"):
                tensor.normal_(0, 0.2)
            elif tensor.dim() == 1 and isinstance(tensor, nn.Parameter):
                tensor.add_(0.1 * torch.randn_like(tensor))
    return model


# -- fully connected ---------------------------------------------------------------------------------------------------


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Dropout(0.5), nn.Linear(12, 10), nn.LeakyReLU(0.1), nn.Linear(10, 5))


def activations_mlp() -> nn.Module:
    """One hidden layer for each of many activations."""
    kinds = [nn.Tanh(), nn.Sigmoid(), nn.ELU(), nn.GELU(), nn.SiLU(), nn.Softplus(), nn.Mish(), nn.Hardtanh(), nn.SELU(), nn.PReLU(6), nn.CELU()]
    layers: list[nn.Module] = []
    for kind in kinds:
        layers += [nn.Linear(6, 6), kind]
    return nn.Sequential(*layers, nn.Linear(6, 4))


class Highway(nn.Module):
    def __init__(self, width: int = 6, depth: int = 2) -> None:
        super().__init__()
        self.carry = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.change = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.head = nn.Linear(width, 4)

    def forward(self, x: Tensor) -> Tensor:
        for gate, change in zip(self.carry, self.change, strict=True):
            t = torch.sigmoid(gate(x))
            x = t * torch.relu(change(x)) + (1 - t) * x
        return self.head(x)


class GatedLinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 16), nn.Linear(8, 12), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = F.glu(self.first(x))
        a, b = self.second(x).chunk(2, dim=-1)
        return self.head(F.silu(a) * b)


class Maxout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 24), nn.Linear(8, 12)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).view(x.size(0), 8, 3).max(dim=2)[0]
        return self.second(x).view(-1, 4, 3).amax(-1)


class Lyapunov(nn.Module):
    """V(x) = x^T P x + a learned part, with P = L L^T + 0.1 I."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.randn(width, width) / width)
        self.net = nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: Tensor) -> Tensor:
        p = self.factor @ self.factor.T + 0.1 * torch.eye(self.factor.shape[0])
        quadratic = (x @ p * x).sum(-1, keepdim=True)
        shifted = self.net(x) - self.net(torch.zeros_like(x))
        return quadratic + shifted.abs()


class Quadratic(nn.Module):
    """x^T P x through matrix products of the state with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("p", torch.tensor([[2.0, 0.5], [0.5, 1.0]]))

    def forward(self, x: Tensor) -> Tensor:
        column = x.unsqueeze(-1)
        return (column.transpose(1, 2) @ self.p @ column).flatten(1)


class RadialBasis(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.centres = nn.Parameter(torch.randn(6, 4))
        self.log_width = nn.Parameter(torch.zeros(6))
        self.head = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        squared = (x.unsqueeze(1) - self.centres).pow(2).sum(-1)
        return self.head(torch.exp(-self.log_width.exp() * squared))


class KolmogorovArnold(nn.Module):
    """Edges carry learned functions: a SiLU and Gaussian bumps on a grid."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("grid", torch.linspace(-1, 1, 5))
        self.base, self.spline, self.out = nn.Linear(4, 6), nn.Linear(20, 6), nn.Linear(30, 2)

    def forward(self, x: Tensor) -> Tensor:
        bumps = torch.exp(-(((x[..., None] - self.grid) / 0.5) ** 2))
        x = self.base(F.silu(x)) + self.spline(bumps.flatten(-2))
        bumps = torch.exp(-(((x[..., None] - self.grid) / 0.5) ** 2))
        return self.out(bumps.flatten(-2))


class Sine(nn.Module):
    """A SIREN, as for partial differential equations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 10), nn.Linear(10, 10)])
        self.out = nn.Linear(10, 1)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.sin(3.0 * layer(x))
        return self.out(x)


class DeepONet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.branch = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
        self.trunk = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 6), nn.Tanh())
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, u: Tensor, y: Tensor) -> Tensor:
        return torch.einsum("bi,bi->b", self.branch(u), self.trunk(y)).unsqueeze(1) + self.bias


class Pendulum(nn.Module):
    """A closed loop: a tanh policy swings a pendulum for some steps."""

    def __init__(self, steps: int = 4) -> None:
        super().__init__()
        self.steps = steps
        self.policy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1), nn.Tanh())

    def forward(self, state: Tensor) -> Tensor:
        angle, speed = state[:, 0], state[:, 1]
        for _ in range(self.steps):
            observation = torch.stack([torch.cos(angle), torch.sin(angle), speed], dim=1)
            torque = 2.0 * self.policy(observation).squeeze(1)
            speed = (speed + 0.05 * (15.0 * torch.sin(angle) + 3.0 * torque)).clamp(-8, 8)
            angle = angle + 0.05 * speed
        return torch.stack([angle, speed], dim=-1)


class Normalised(nn.Module):
    """Features and outputs scaled to [0, 1] by their own minimum and maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, x: Tensor) -> Tensor:
        y = self.net(x)
        low, high = y.min(dim=1, keepdim=True).values, y.max(dim=1, keepdim=True).values
        return (y - low) / (high - low + 1.0)


class Standardised(nn.Module):
    """A head on features divided by their own norm and standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.head = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        x = (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 0.5)
        return self.head(F.normalize(x + 1.0, dim=-1))


class Spectral(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = parametrizations.spectral_norm(nn.Linear(5, 8))
        self.conv = parametrizations.spectral_norm(nn.Conv1d(1, 2, 3, padding=1))
        self.head = parametrizations.weight_norm(nn.Linear(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        return self.head(torch.relu(self.conv(x.unsqueeze(1))).flatten(1))


class Siamese(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        return F.cosine_similarity(self.embed(a) + 1.0, self.embed(b) + 1.0, dim=1)


class TripletDistance(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4))

    def forward(self, anchor: Tensor, near: Tensor, far: Tensor) -> Tensor:
        a, n, f = self.embed(anchor), self.embed(near), self.embed(far)
        return torch.relu(torch.linalg.norm(a - n, dim=-1) - F.pairwise_distance(a, f) + 1.0)


# -- convolutional -----------------------------------------------------------------------------------------------------

IMAGE = (2, 6, 6)


def conv_bn(cin: int, cout: int, kernel: int = 3, stride: int = 1, groups: int = 1, act: Callable[[], nn.Module] = nn.ReLU) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(cin, cout, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(cout), act())


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, stride=2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(16, 4)
    )


class BasicBlock(nn.Module):
    def __init__(self, cin: int, cout: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout)
        self.conv2, self.bn2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout)
        self.relu = nn.ReLU(inplace=True)
        self.downsample: nn.Module | None = None
        if stride != 1 or cin != cout:
            self.downsample = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

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
            conv_bn(cin, width, 1), conv_bn(width, width, 3, 1, groups), nn.Conv2d(width, cout, 1, bias=False), nn.BatchNorm2d(cout)
        )
        self.short = nn.Identity() if cin == cout else nn.Conv2d(cin, cout, 1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.short(x), inplace=True)


class ResNet(nn.Module):
    def __init__(self, *blocks: nn.Module, channels: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1))
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
            nn.Sequential(nn.BatchNorm2d(4 + 2 * i), nn.ReLU(), nn.Conv2d(4 + 2 * i, 2, 3, padding=1, bias=False)) for i in range(3)
        )
        self.transition = nn.Sequential(nn.BatchNorm2d(10), nn.ReLU(), nn.Conv2d(10, 4, 1, bias=False), nn.AvgPool2d(2))
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
        self.pool, self.reduce, self.expand = nn.AdaptiveAvgPool2d(1), nn.Conv2d(channels, 2, 1), nn.Conv2d(2, channels, 1)
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


def mobile(act: Callable[[], nn.Module], excite: Callable[[], nn.Module | None] = lambda: None) -> nn.Module:
    return nn.Sequential(
        conv_bn(2, 4, 3, 2, act=act), InvertedResidual(act, excite()), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(4, 4)
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
        self.one, self.three = nn.Conv2d(2, 2, 1), nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Conv2d(2, 3, 3, padding=1))
        self.five = nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), nn.Conv2d(2, 2, 5, padding=2))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(2, 2, 1))
        self.head = nn.Linear(9, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([F.relu(branch(x)) for branch in (self.one, self.three, self.five, self.pool)], dim=1)
        return self.head(x.mean(dim=(2, 3)))


class SqueezeNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.squeeze, self.one, self.three = nn.Conv2d(2, 2, 1), nn.Conv2d(2, 3, 1), nn.Conv2d(2, 3, 3, padding=1)
        self.classifier = nn.Sequential(nn.Dropout(), nn.Conv2d(6, 4, 1), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d((1, 1)))

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
            self.up = nn.Sequential(nn.Upsample(scale_factor=2, mode=upsample, align_corners=align), nn.Conv2d(4, 3, 1))
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
        self.pwconv1, self.act, self.pwconv2 = nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim)
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
        self.conv, self.group, self.instance = nn.Conv2d(2, 4, 3, 2, 1), nn.GroupNorm(2, 4, eps=1e-2), nn.InstanceNorm2d(4, eps=1e-2, affine=True)
        self.shuffle, self.head = nn.PixelShuffle(2), nn.Linear(36, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.instance(F.elu(self.group(self.conv(x))))
        return self.head(self.shuffle(x).flatten(1))


def generator() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(4, 4, 2, 1, 0, bias=False), nn.BatchNorm2d(4), nn.ReLU(True),
        nn.ConvTranspose2d(4, 2, 3, 2, 1, output_padding=1, bias=False), nn.BatchNorm2d(2), nn.LeakyReLU(0.2, True),
        nn.ConvTranspose2d(2, 1, 4, 2, 1, groups=1), nn.Tanh(),
    )  # fmt: skip


class Decoder(nn.Module):
    """Of a variational autoencoder."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 16)
        self.deconv1, self.deconv2 = nn.ConvTranspose2d(4, 4, 3, 2, 1, 1), nn.ConvTranspose2d(4, 1, 3, 1, 1)

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
            nn.Conv1d(2, 4, 3, padding=2, dilation=2), nn.ReLU(), nn.AvgPool1d(2), nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular"), nn.Tanh()
        )
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.net(x).max(dim=-1).values)


def conv3d() -> nn.Module:
    return nn.Sequential(nn.Conv3d(1, 2, 2), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Flatten(), nn.Linear(4, 2))


class CausalTCN(nn.Module):
    """Temporal convolutions padded on the left, with residual connections."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.short = nn.Conv1d(2, 4, 2), nn.Conv1d(4, 4, 2, dilation=2), nn.Conv1d(2, 4, 1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.a(F.pad(x, (1, 0))))
        y = F.relu(self.b(F.pad(y, (2, 0), value=0.3)))
        return self.head((y + self.short(x))[..., -1])


# -- recurrent ---------------------------------------------------------------------------------------------------------


class Recurrent(nn.Module):
    """A classifier on a sequence (batch, time, features); with batch_first=False it transposes for itself."""

    def __init__(self, kind: type[nn.RNNBase], batch_first: bool = True, **options: Any) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.rnn = kind(3, 4, batch_first=batch_first, **options)
        self.fc = nn.Linear(8 if options.get("bidirectional") else 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(x if self.batch_first else x.transpose(0, 1))
        return self.fc(out[:, -1] if self.batch_first else out[-1])


class LastState(nn.Module):
    """An LSTM read through its final hidden and cell states, from a given initial state."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, num_layers=2, batch_first=True)
        self.fc = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        start = torch.full((2, x.shape[0], 4), 0.1), torch.zeros(2, x.shape[0], 4)
        _, (h, c) = self.lstm(x, start)
        return self.fc(torch.cat([h[-1], c[-1]], dim=1))


class CellLoop(nn.Module):
    def __init__(self, kind: type[nn.RNNCellBase]) -> None:
        super().__init__()
        self.cell, self.fc = kind(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.size(0), 4)
        c = torch.zeros_like(h)
        for t in range(x.size(1)):
            if isinstance(self.cell, nn.LSTMCell):
                h, c = self.cell(x[:, t], (h, c))
            else:
                h = self.cell(x[:, t], h)
        return self.fc(h)


class TextCNN(nn.Module):
    """On embeddings: convolutions of several widths, each with its maximum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(1, 2, (k, 4)) for k in (2, 3))
        self.fc = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]
        return self.fc(torch.cat(x, 1))


# -- attention ---------------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    def __init__(self, batch_first: bool) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.attention, self.head = nn.MultiheadAttention(4, 2, batch_first=batch_first), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.permute(1, 0, 2)
        y, _ = self.attention(x, x, x, need_weights=not self.batch_first)
        return self.head(y if self.batch_first else y.permute(1, 0, 2)).flatten(1)


class CrossAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention, self.norm = nn.MultiheadAttention(4, 2, kdim=3, vdim=3, batch_first=True), nn.LayerNorm(4, eps=1e-2)

    def forward(self, x: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        y, weights = self.attention(x, memory, memory)
        return self.norm(x + y), weights


class Encoder(nn.Module):
    def __init__(self, layers: int = 1, mask: str = "none", **options: Any) -> None:
        super().__init__()
        options = {"activation": "relu", "layer_norm_eps": 1e-2, "batch_first": True, **options}
        self.batch_first = options["batch_first"]
        layer = nn.TransformerEncoderLayer(4, 2, dim_feedforward=6, **options)
        self.encoder = layer if layers == 1 else nn.TransformerEncoder(layer, layers)
        self.mask, self.head = mask, nn.Linear(4, 2)
        self.register_buffer("padding", torch.tensor([[False, False, True]]))

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        time = x.shape[1] if self.batch_first else x.shape[0]
        if self.mask == "causal":
            x = self.encoder(x, nn.Transformer.generate_square_subsequent_mask(time), is_causal=True)
        elif self.mask == "causal-detected":  # torch looks at the values of the mask to see that it is causal
            x = self.encoder(x, nn.Transformer.generate_square_subsequent_mask(time))
        elif self.mask == "padding":
            x = self.encoder(x, src_key_padding_mask=self.padding.expand(x.shape[0], -1))
        else:
            x = self.encoder(x)
        return self.head(x.mean(1) if self.batch_first else x[0])


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(2, 4, 3, stride=3)
        self.cls, self.position = nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(0.1 * torch.randn(1, 5, 4))
        layer = nn.TransformerEncoderLayer(4, 2, 6, activation="gelu", batch_first=True, norm_first=True, layer_norm_eps=1e-2)
        self.encoder = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(4, eps=1e-2), enable_nested_tensor=False)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], dim=1) + self.position
        return self.head(self.encoder(x)[:, 0])


class HandMadeAttention(nn.Module):
    """Attention with views and permutes as einops writes them, heads merged into the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(4, 12, bias=False), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(x).reshape(b, t, 3, 2, d // 2).permute(2, 0, 3, 1, 4).reshape(3, b * 2, t, d // 2)
        weights = F.softmax(torch.bmm(q, k.transpose(1, 2)) / math.sqrt(d // 2), dim=-1)
        y = torch.bmm(weights, v).view(b, 2, t, d // 2).transpose(1, 2).contiguous().view(b, t, d)
        return self.out(y).sum(1)


class CausalAttention(nn.Module):
    """As in a small GPT: a mask buffer and masked_fill."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("tril", torch.tril(torch.ones(3, 3)))

    def forward(self, x: Tensor) -> Tensor:
        t = x.shape[1]
        scores = self.query(x) @ self.key(x).transpose(-2, -1) * 4**-0.5
        scores = scores.masked_fill(self.tril[:t, :t] == 0, float("-inf"))
        return scores.softmax(dim=-1) @ self.value(x)


class AttentionPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score, self.head = nn.Linear(4, 1), nn.Linear(4, 2)
        self.query = nn.Parameter(torch.randn(4))

    def forward(self, x: Tensor) -> Tensor:
        a = torch.softmax(self.score(torch.tanh(x)).squeeze(-1) + x @ self.query, dim=1)
        return self.head(torch.einsum("bt,btd->bd", a, x))


class Mixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Conv2d(2, 4, 3, 3)
        self.norm1, self.norm2 = nn.LayerNorm(4, eps=1e-2), nn.LayerNorm(4, eps=1e-2)
        self.token, self.channel = (nn.Sequential(nn.Linear(4, 6), nn.GELU(approximate="tanh"), nn.Linear(6, 4)) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = x + self.token(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        x = x + self.channel(self.norm2(x))
        return self.head(x.mean(dim=1))


# -- graphs ------------------------------------------------------------------------------------------------------------


class GraphConvolution(nn.Module):
    """Takes (nodes, features) or (batch, nodes, features); the normalised adjacency is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        edges = torch.tensor([[1.0, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]])
        degree = edges.sum(1).rsqrt()
        self.register_buffer("adjacency", degree[:, None] * edges * degree)
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.adjacency @ self.first(x))
        return torch.matmul(self.adjacency, self.second(x))


class MessagePassing(nn.Module):
    """Edges as index lists, messages gathered and summed with index_add."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("source", torch.tensor([0, 1, 2, 3, 0]))
        self.register_buffer("target", torch.tensor([1, 2, 3, 0, 2]))
        self.message, self.update = nn.Linear(6, 4), nn.Linear(7, 3)

    def forward(self, x: Tensor) -> Tensor:
        messages = F.relu(self.message(torch.cat([x[:, self.source], x[:, self.target]], dim=-1)))
        gathered = torch.zeros(x.shape[0], 4, 4).index_add(1, self.target, messages)
        return self.update(torch.cat([x, gathered], dim=-1)).sum(1)


# -- style -------------------------------------------------------------------------------------------------------------


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(5, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x)
        y += 0.5
        F.relu_(y)
        y = y.clone()
        y[:, 1] = x[:, 0] * 2
        y[:, 2:4] *= -1.0
        y[:, 4].add_(x[:, 1])
        z = torch.zeros_like(y)
        z[:, ::2] = y[:, 1::2]
        z.sub_(y).clamp_(-3, 3)
        return self.out(z)


class Choices(nn.Module):
    """torch.where, clamp, masks, sign, comparisons."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(5, 6)
        self.register_buffer("mask", torch.tensor([1.0, 0, 1, 1, 0, 1]))
        self.register_buffer("keep", torch.tensor([True, True, False, True, False, True]))

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc(x) * self.mask
        y = torch.where(y > 0, y, 0.2 * y)
        y = torch.where(self.keep, y, y.clamp(min=-0.1, max=0.1))
        y = y.masked_fill(~self.keep, 0.7)
        gate = (x[:, :1] > 0.1).float()
        return torch.minimum(y, torch.tensor(0.4)) * gate + torch.maximum(y, -y) * (1 - gate)


class Rearranged(nn.Module):
    """Views, permutes, rolls, unfolds: patches cut, shuffled and put together again."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.head = nn.Linear(8, 8), nn.Linear(72, 3)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        x = x.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, -1, 4 * c)
        x = torch.relu(self.fc(x)).roll(shifts=1, dims=1).flip(-1)
        x = x.view(b, h // 2, w // 2, c, 2, 2).permute(0, 3, 1, 4, 2, 5).contiguous().view(b, c, h, w)
        x = x.unfold(2, 3, 3).unfold(3, 3, 3).flatten(1)
        return self.head(torch.stack(x.split(36, dim=1), dim=-1).flatten(1))


class Windows(nn.Module):
    """Shifted windows as in a Swin block: the windows of all samples merged in dimension 0."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.qkv, self.head = nn.Conv2d(2, 4, 1), nn.Linear(4, 12), nn.Linear(4, 2)
        self.table = nn.Parameter(0.1 * torch.randn(9, 2))
        where = torch.stack(torch.meshgrid(torch.arange(2), torch.arange(2), indexing="ij")).flatten(1)
        relative = (where[:, :, None] - where[:, None, :] + 1).permute(1, 2, 0)
        self.register_buffer("index", relative[..., 0] * 3 + relative[..., 1])

    def forward(self, x: Tensor) -> Tensor:
        x = torch.roll(self.embed(x).permute(0, 2, 3, 1), (-1, -1), dims=(1, 2))
        b, h, w, c = x.shape
        windows = x.view(b, h // 2, 2, w // 2, 2, c).permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, 4, c)
        q, k, v = self.qkv(windows).reshape(-1, 4, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        bias = self.table[self.index.view(-1)].view(4, 4, 2).permute(2, 0, 1)
        attention = (q @ k.transpose(-2, -1) + bias.unsqueeze(0)).softmax(-1)
        x = (attention @ v).transpose(1, 2).reshape(-1, 4, c)
        x = x.view(b, h // 2, w // 2, 2, 2, c).permute(0, 1, 3, 2, 4, 5).reshape(b, h, w, c)
        return self.head(x.mean(dim=(1, 2)))


class FunctionalStyle(nn.Module):
    """Weights as bare parameters and buffers, everything else from torch.nn.functional."""

    def __init__(self) -> None:
        super().__init__()
        self.w1, self.b1 = nn.Parameter(torch.randn(8, 5) / 3), nn.Parameter(torch.zeros(8))
        self.w2 = nn.Parameter(torch.randn(8, 3) / 3)
        self.register_buffer("mean", torch.linspace(-0.2, 0.2, 5))
        self.register_buffer("std", torch.linspace(0.5, 1.5, 5))
        self.scale = 2.0

    def forward(self, x: Tensor) -> Tensor:
        x = (x - self.mean) / self.std
        x = F.softplus(F.linear(x, self.w1, self.b1), beta=2)
        x = F.dropout(x, 0.5, training=self.training)
        return self.scale * torch.addmm(torch.zeros(3), x, self.w2) - x.mean(1, keepdim=True) / 2


class Shared(nn.Module):
    """One module on two paths, one tensor read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(5, 5), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(self.fc(x))
        b = torch.relu(self.fc(a - x))
        return self.out(torch.cat([a * b, b + a], dim=-1))


class Several(nn.Module):
    """A tuple with a nested list, and outputs of different shapes."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.heads = nn.Linear(5, 6), nn.ModuleList([nn.Linear(6, 2), nn.Linear(6, 3)])

    def forward(self, x: Tensor) -> tuple[Tensor, list[Tensor]]:
        h = torch.relu(self.body(x))
        return h.sum(1), [head(h) for head in self.heads]


class Probabilities(nn.Module):
    def __init__(self, log: bool) -> None:
        super().__init__()
        self.body, self.log = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4)), log

    def forward(self, x: Tensor) -> Tensor:
        return F.log_softmax(self.body(x), dim=1) if self.log else torch.softmax(self.body(x), dim=1)


class MixtureOfExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.experts, self.gate = nn.ModuleList(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)) for _ in range(3)), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        outputs = torch.stack([expert(x) for expert in self.experts], dim=1)
        return (self.gate(x).softmax(-1).unsqueeze(-1) * outputs).sum(1)


class SpatialTransform(nn.Module):
    """Coordinate channels, a polynomial, products and quotients of features."""

    def __init__(self) -> None:
        super().__init__()
        self.fc, self.out = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.cat([x, x**2, x[:, :1] * x[:, 1:], (x[:, :1] + 3.0).log(), torch.sqrt(x[:, 1:] + 2.0)], dim=1)[:, 2:6]
        y = self.fc(x)
        return self.out(y / (1 + y.abs())) / (2.0 + torch.tanh(x[:, :1]) ** 3)


def lstm(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Recurrent(nn.LSTM, **options)


def gru(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Recurrent(nn.GRU, **options)


def rnn(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Recurrent(nn.RNN, **options)


def encoder(**options: Any) -> Callable[[], nn.Module]:
    return lambda: Encoder(**options)


NETWORKS: dict[str, Case] = {
    "mlp": Case(mlp, ((6,),), 0.1),
    "mlp-float64": Case(mlp, ((6,),), 0.1, torch.float64),
    "activations": Case(activations_mlp, ((6,),), 0.1),
    "highway": Case(Highway, ((6,),), 0.1),
    "glu": Case(GatedLinear, ((6,),), 0.1),
    "maxout": Case(Maxout, ((5,),), 0.1),
    "lyapunov": Case(Lyapunov, ((4,),), 0.1),
    "quadratic": Case(Quadratic, ((2,),), 0.2),
    "rbf": Case(RadialBasis, ((4,),), 0.1),
    "kan": Case(KolmogorovArnold, ((4,),), 0.05),
    "sine": Case(Sine, ((2,),), 0.1),
    "deeponet": Case(DeepONet, ((6,), (2,)), 0.1),
    "pendulum": Case(Pendulum, ((2,),), 0.05),
    "normalised": Case(Normalised, ((5,),), 0.05),
    "standardised": Case(Standardised, ((5,),), 0.02),
    "spectral": Case(Spectral, ((5,),), 0.1),
    "siamese": Case(Siamese, ((5,), (5,)), 0.02),
    "triplet": Case(TripletDistance, ((5,), (5,), (5,)), 0.05),
    "cnn": Case(cnn, (IMAGE,), 0.05),
    "resnet-basic": Case(resnet_basic, (IMAGE,), 0.02),
    "resnet-bottleneck": Case(resnet_bottleneck, (IMAGE,), 0.02),
    "resnext": Case(resnext, (IMAGE,), 0.02),
    "densenet": Case(DenseNet, (IMAGE,), 0.02),
    "mobilenet-v2": Case(mobilenet_v2, (IMAGE,), 0.02),
    "mobilenet-v3": Case(mobilenet_v3, (IMAGE,), 0.02),
    "efficientnet": Case(efficientnet, (IMAGE,), 0.02),
    "inception": Case(Inception, (IMAGE,), 0.05),
    "squeezenet": Case(SqueezeNet, (IMAGE,), 0.05),
    "unet-transposed": Case(lambda: UNet("transposed"), (IMAGE,), 0.05),
    "unet-nearest": Case(lambda: UNet("nearest"), (IMAGE,), 0.05),
    "unet-bilinear": Case(lambda: UNet("bilinear"), (IMAGE,), 0.05),
    "convnext": Case(ConvNeXt, (IMAGE,), 0.01),
    "groupnorm": Case(GroupNormNet, (IMAGE,), 0.005),
    "generator": Case(generator, ((4, 1, 1),), 0.1),
    "vae-decoder": Case(Decoder, ((3,),), 0.1),
    "autoencoder": Case(Autoencoder, (IMAGE,), 0.05),
    "conv1d": Case(Conv1d, ((2, 8),), 0.05),
    "conv3d": Case(conv3d, ((1, 3, 3, 3),), 0.05),
    "tcn": Case(CausalTCN, ((2, 6),), 0.05),
    "lstm": Case(lstm(), ((3, 3),), 0.05),
    "lstm-time-first": Case(lstm(batch_first=False), ((3, 3),), 0.05),
    "lstm-two-layers": Case(lstm(num_layers=2, dropout=0.3), ((3, 3),), 0.02),
    "lstm-both-ways": Case(lstm(bidirectional=True, batch_first=False), ((3, 3),), 0.02),
    "lstm-last-state": Case(LastState, ((3, 3),), 0.02),
    "gru": Case(gru(), ((3, 3),), 0.05),
    "gru-two-layers": Case(gru(num_layers=2, batch_first=False), ((3, 3),), 0.02),
    "gru-both-ways": Case(gru(bidirectional=True), ((3, 3),), 0.02),
    "rnn-tanh": Case(rnn(num_layers=2), ((4, 3),), 0.05),
    "rnn-relu": Case(rnn(nonlinearity="relu", bidirectional=True, batch_first=False), ((3, 3),), 0.05),
    "lstm-cell": Case(lambda: CellLoop(nn.LSTMCell), ((3, 3),), 0.05),
    "gru-cell": Case(lambda: CellLoop(nn.GRUCell), ((3, 3),), 0.05),
    "rnn-cell": Case(lambda: CellLoop(nn.RNNCell), ((3, 3),), 0.05),
    "text-cnn": Case(TextCNN, ((5, 4),), 0.05),
    "attention": Case(lambda: SelfAttention(True), ((3, 4),), 0.05),
    "attention-time-first": Case(lambda: SelfAttention(False), ((3, 4),), 0.05),
    "attention-cross": Case(CrossAttention, ((2, 4), (3, 3)), 0.02),
    "attention-by-hand": Case(HandMadeAttention, ((3, 4),), 0.05),
    "attention-causal": Case(CausalAttention, ((3, 4),), 0.05),
    "attention-pooling": Case(AttentionPooling, ((3, 4),), 0.05),
    "attention-windows": Case(Windows, ((2, 4, 4),), 0.05),
    "encoder-post-relu": Case(encoder(), ((3, 4),), 0.01),
    "encoder-pre-gelu": Case(encoder(norm_first=True, activation="gelu"), ((3, 4),), 0.01),
    "encoder-time-first": Case(encoder(batch_first=False, activation="gelu"), ((3, 4),), 0.01),
    "encoder-two-causal": Case(encoder(layers=2, mask="causal"), ((3, 4),), 0.002),
    "encoder-causal-detected": Case(encoder(layers=2, mask="causal-detected"), ((3, 4),), 0.002),
    "encoder-two-padding": Case(encoder(layers=2, mask="padding", activation="gelu"), ((3, 4),), 0.002),
    "encoder-two-pre": Case(encoder(layers=2, norm_first=True), ((3, 4),), 0.005),
    "vit": Case(ViT, (IMAGE,), 0.005),
    "mixer": Case(Mixer, (IMAGE,), 0.005),
    "graph": Case(GraphConvolution, ((4, 3),), 0.05),
    "messages": Case(MessagePassing, ((4, 3),), 0.05),
    "in-place": Case(InPlace, ((5,),), 0.1),
    "choices": Case(Choices, ((5,),), 0.2),
    "rearranged": Case(Rearranged, (IMAGE,), 0.05),
    "functional": Case(FunctionalStyle, ((5,),), 0.1),
    "shared": Case(Shared, ((5,),), 0.1),
    "several": Case(Several, ((5,),), 0.1),
    "softmax": Case(lambda: Probabilities(False), ((5,),), 0.1),
    "log-softmax": Case(lambda: Probabilities(True), ((5,),), 0.1),
    "experts": Case(MixtureOfExperts, ((5,),), 0.1),
    "rational": Case(SpatialTransform, ((2,),), 0.1),
}
"""Name -> network; every one takes batched inputs of any batch size."""
