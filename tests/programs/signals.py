"""Spectral layers, Fourier features, stencils, interpolation, windows of images."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program, weights


class FourierLayer(nn.Module):
    """A block of a Fourier neural operator: low frequencies are multiplied by weights."""

    def __init__(self) -> None:
        super().__init__()
        self.real, self.imaginary = nn.Parameter(weights(2, 2, 3)), nn.Parameter(weights(2, 2, 3))
        self.local = nn.Conv1d(2, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x, dim=-1)[..., :3]
        kernel = torch.complex(self.real, self.imaginary)
        mixed = torch.einsum("bim,iom->bom", spectrum, kernel)
        return F.gelu(torch.fft.irfft(mixed, n=8, dim=-1) + self.local(x))


class Spectrum(nn.Module):
    """Features of a signal's frequencies."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.head = form, nn.LazyLinear(2)
        self(torch.ones(1, 16))

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "stft":
            window = torch.hann_window(8)
            frames = torch.stft(x, 8, hop_length=4, window=window, return_complex=True)
            return self.head(torch.view_as_real(frames).flatten(1))
        spectrum = torch.fft.rfft(x)
        if self.form == "power":
            return self.head(spectrum.real**2 + spectrum.imag**2)
        if self.form == "magnitude":
            return self.head(spectrum.abs())
        if self.form == "angle":
            return self.head(torch.angle(spectrum[:, 1:4]))
        return self.head(torch.cat([spectrum.real, spectrum.imag], -1))


def mixing(x: Tensor) -> Tensor:
    """What FNet has in place of attention."""
    return torch.fft.fft2(x).real


def lowpass(x: Tensor) -> Tensor:
    spectrum = torch.fft.fft(x)
    kept = torch.arange(x.shape[-1]) < 3
    return torch.fft.ifft(spectrum * kept).real.tanh()


class FourierFeatures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", weights(2, 6))
        self.net = nn.Sequential(nn.Linear(12, 6), nn.ReLU(), nn.Linear(6, 1))

    def forward(self, x: Tensor) -> Tensor:
        phase = 2 * math.pi * x @ self.frequencies
        return self.net(torch.cat([torch.sin(phase), torch.cos(phase)], -1))


class Siren(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, 6), nn.Linear(6, 6), nn.Linear(6, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.sin(3 * self.second(torch.sin(3 * self.first(x)))))


class Heat(nn.Module):
    """Steps of the heat equation with a reaction, on a periodic grid."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        kernel = torch.tensor([[0.0, 1.0, 0.0], [1.0, -4.0, 1.0], [0.0, 1.0, 0.0]])
        self.register_buffer("kernel", kernel.view(1, 1, 3, 3))

    def laplacian(self, u: Tensor) -> Tensor:
        if self.form == "conv":
            return F.conv2d(F.pad(u, (1, 1, 1, 1), mode="circular"), self.kernel)
        shifted = [u.roll(k, d) for k in (-1, 1) for d in (2, 3)]
        return sum(shifted) - 4 * u

    def forward(self, u: Tensor) -> Tensor:
        for _ in range(2):
            u = u + 0.1 * self.laplacian(u) + 0.1 * u * (1 - u**2)
        return u


def burgers_residual(u: Tensor) -> Tensor:
    """u_t + u u_x - nu u_xx between rows of time, by finite differences."""
    time = u[:, 1:, 1:-1] - u[:, :-1, 1:-1]
    space = (u[:, :-1, 2:] - u[:, :-1, :-2]) / 2
    second = u[:, :-1, 2:] - 2 * u[:, :-1, 1:-1] + u[:, :-1, :-2]
    return time + u[:, :-1, 1:-1] * space - 0.1 * second


class Warp(nn.Module):
    """An image sampled along a grid that does not depend on it."""

    def __init__(self, mode: str, padding: str) -> None:
        super().__init__()
        self.mode, self.padding = mode, padding
        turn = torch.tensor([[[0.9, -0.3, 0.1], [0.3, 0.9, -0.1]]])
        self.register_buffer("grid", F.affine_grid(turn, [1, 1, 4, 4], align_corners=False))

    def forward(self, x: Tensor) -> Tensor:
        grid = self.grid.expand(x.shape[0], -1, -1, -1)
        return F.grid_sample(x, grid, self.mode, self.padding, align_corners=False).sigmoid()


def resized(x: Tensor) -> Tensor:
    half = F.interpolate(x, scale_factor=0.5, mode="area")
    back = F.interpolate(half, size=(4, 4), mode="bicubic", align_corners=False)
    return torch.relu(x - back)


class SubPixel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.pixel_unshuffle(torch.relu(F.pixel_shuffle(self.conv(x), 2)), 2)


class Windows(nn.Module):
    """A convolution written with unfold and fold."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(weights(4, 4))

    def forward(self, x: Tensor) -> Tensor:
        columns = F.unfold(x, 2, stride=1)
        changed = torch.tanh(self.weight @ columns)
        return F.fold(changed, (4, 4), 2, stride=1) / F.fold(
            torch.ones_like(changed), (4, 4), 2, stride=1
        )


class Patches(nn.Module):
    """Patches as an einops user would cut them, by unfold, permute and reshape."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        cut = x.reshape(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5)
        tokens = self.embed(cut.reshape(b, h * w // 4, c * 4)).relu()
        rolling = x.unfold(2, 3, 1).unfold(3, 3, 1).amax((-1, -2))
        return torch.cat([tokens.flatten(1), rolling.flatten(1)], 1)


class Pools(nn.Module):
    """Several poolings side by side."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.conv = kind, nn.Conv2d(1, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.conv(x)
        if self.kind == "lp":
            return F.lp_pool2d(x, 2, 2)
        if self.kind == "generalised":
            return x.clamp(min=1e-3).pow(3).mean((2, 3)).pow(1 / 3)
        if self.kind == "stochastic":
            return (torch.softmax(x.flatten(2), -1) * x.flatten(2)).sum(-1)
        if self.kind == "indices":
            values, places = F.max_pool2d(x, 2, return_indices=True)
            return F.max_unpool2d(values, places, 2)
        return F.adaptive_avg_pool2d(x, (3, 1)) + F.adaptive_max_pool2d(x, (3, 1))


class PositionalEncoding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        place = torch.arange(4).unsqueeze(1) * torch.exp(-torch.arange(0, 4, 2) * math.log(100) / 4)
        table = torch.stack([place.sin(), place.cos()], -1).flatten(1)
        self.register_buffer("table", table, persistent=False)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(x + self.table[: x.shape[1]]))


IMAGE = (1, 4, 4)
PROGRAMS = {
    "fourier-operator": Program(FourierLayer, ((2, 8),)),
    "spectrum-parts": Program(lambda: Spectrum("parts"), ((16,),)),
    "spectrum-power": Program(lambda: Spectrum("power"), ((16,),)),
    "spectrum-magnitude": Program(lambda: Spectrum("magnitude"), ((16,),), eps=0.01),
    "spectrum-angle": Program(lambda: Spectrum("angle"), ((16,),), eps=0.01),
    "spectrum-stft": Program(lambda: Spectrum("stft"), ((16,),)),
    "fourier-mixing": Program(lambda: mixing, ((4, 4),)),
    "fourier-lowpass": Program(lambda: lowpass, ((8,),)),
    "fourier-features": Program(FourierFeatures, ((2,),)),
    "siren": Program(Siren, ((2,),)),
    "heat-conv": Program(lambda: Heat("conv"), (IMAGE,)),
    "heat-roll": Program(lambda: Heat("roll"), (IMAGE,)),
    "burgers-residual": Program(lambda: burgers_residual, ((3, 5),)),
    "warp-bilinear": Program(lambda: Warp("bilinear", "zeros"), (IMAGE,)),
    "warp-bicubic": Program(lambda: Warp("bicubic", "border"), (IMAGE,)),
    "warp-nearest": Program(lambda: Warp("nearest", "reflection"), (IMAGE,)),
    "resized": Program(lambda: resized, (IMAGE,)),
    "sub-pixel": Program(SubPixel, (IMAGE,)),
    "unfold-fold": Program(Windows, (IMAGE,)),
    "patches": Program(Patches, (IMAGE,)),
    "pool-lp": Program(lambda: Pools("lp"), (IMAGE,)),
    "pool-generalised": Program(lambda: Pools("generalised"), (IMAGE,)),
    "pool-stochastic": Program(lambda: Pools("stochastic"), (IMAGE,)),
    "pool-indices": Program(
        lambda: Pools("indices"), (IMAGE,), refused="aten.max_pool2d_with_indices"
    ),
    "pool-adaptive": Program(lambda: Pools("adaptive"), (IMAGE,)),
    "positional-encoding": Program(PositionalEncoding, ((4, 4),)),
}
