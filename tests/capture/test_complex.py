"""Complex numbers as pairs: every row gives what torch gives, in graphs of real numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from tests.helpers.contract import assert_close, check_sound

C = torch.view_as_complex
R = torch.view_as_real
KERNEL = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
MASK = torch.tensor([True, False, True, True])
Function = Callable[[Tensor], Tensor]


def kernel(z: Tensor) -> Tensor:
    return C(KERNEL).to(z.dtype)


# of z, (batch, 3, 4) complex, to a real tensor
ROWS: dict[str, Function] = {
    "parts": lambda z: z.real * 2 - z.imag,
    "moves": lambda z: R(z.reshape(-1, 4, 3).transpose(1, 2).permute(0, 2, 1).flip(1)[:, 1:, ::2]),
    "shapes": lambda z: R(z.unsqueeze(1).expand(-1, 2, -1, -1).flatten(2).unflatten(2, (4, 3))),
    "split": lambda z: R(z.split(2, 2)[1] - z.unbind(1)[0].chunk(2, 1)[0].unsqueeze(1)),
    "index": lambda z: R(z[:, [2, 0]].roll(1, 2).index_select(2, torch.tensor([0, 3, 3]))),
    "joins": lambda z: R(torch.cat([z, torch.stack([z[:, 0], z[:, 1].real + 0 * z[:, 1]], 1)], 1)),
    "real beside": lambda z: R(torch.cat([z, z.real.to(z.dtype)], 1)),
    "sums": lambda z: R(z.sum(1) - z.mean(2, keepdim=True).squeeze(2).sum(1, keepdim=True)),
    "affine": lambda z: R(-z + (2 - 3j) - 0.5 * z.conj() + 1.0 - (1j - z)),
    "choice": lambda z: R(torch.where(MASK, z, kernel(z)).masked_fill(~MASK, 2j)),
    "padded": lambda z: R(nn.functional.pad(z, (1, 2), value=1.5)),
    "product": lambda z: R(z * kernel(z) * 1j * z.real),
    "square": lambda z: R(z * z + z**2),
    "quotient": lambda z: R(z / (kernel(z) + 3) / 2 / (1 + 1j)),
    "quotient of moving": lambda z: R(kernel(z) / (z + 9)),
    "matmul": lambda z: R(z @ kernel(z).T @ kernel(z)),
    "matmul of moving": lambda z: R(z @ z.mH),
    "real matmul": lambda z: R(z @ kernel(z).real.T.to(z.dtype)),
    "einsum": lambda z: R(torch.einsum("bij,kj,ki->bk", z, kernel(z), kernel(z)[:, :3])),
    "linear": lambda z: R(nn.functional.linear(z, kernel(z), kernel(z)[:, 0])),
    "polar": lambda z: R(torch.polar(z.real.exp(), z.imag) + torch.exp(1j * z.imag)),
    "abs": lambda z: z.abs() + (z * 0.5).real.to(z.dtype).abs(),
    "complex": lambda z: R(torch.complex(z.imag, z.real[:, :1].expand_as(z.real))),
    "like": lambda z: R(z + torch.ones_like(z) * 1j),
    "fft": lambda z: R(torch.fft.fft(z)),
    "fft, inner": lambda z: R(torch.fft.fft(z, dim=1, norm="ortho")),
    "ifft": lambda z: R(torch.fft.ifft(z, norm="forward") + torch.fft.ifft(z)),
    "fft, longer": lambda z: R(torch.fft.fft(z, n=7)[..., :2] - torch.fft.fft(z, n=2)),
    "fft2": lambda z: R(torch.fft.fft2(z) + torch.fft.ifft2(z, norm="ortho")),
    "fftn": lambda z: R(torch.fft.fftn(z.real, dim=(1, 2))),
    "rfft": lambda z: R(torch.fft.rfft(z.real, norm="forward")),
    "rfft, odd": lambda z: R(torch.fft.rfft(z.real, dim=1)),
    "rfft2": lambda z: R(torch.fft.rfft2(z.real, norm="ortho")),
    "hfft": lambda z: torch.fft.hfft(z),
    "irfft": lambda z: torch.fft.irfft(z, n=6) + torch.fft.irfft(z, norm="ortho"),
    "irfft, odd": lambda z: torch.fft.irfft(z, n=7, norm="forward"),
    "irfft2": lambda z: torch.fft.irfft2(z, s=(3, 5)),
    "shift": lambda z: R(torch.fft.fftshift(z, dim=-1)),
}


ONE_SIZE = ("fft, longer",)
"""Captured for the batch size of the example alone: torch pads complex values inside of it, which
fixes it."""


def of_real(f: Function) -> Function:
    """The same as a function of (batch, 3, 8)."""
    return lambda x: f(C(x.reshape(-1, 3, 4, 2)))


def has_complex(net: bl.Net, x: Tensor) -> list[str]:
    """The nodes of a graph whose values are complex and depend on the input."""
    graph = net.graph
    values = graph.run({**graph.constants, **dict(zip(graph.inputs, [x], strict=True))})
    found = []
    for name, value in values.items():
        moves = set(graph.inputs) & graph.ancestors((name,))
        if moves and isinstance(value, Tensor) and value.is_complex():
            found.append(name)
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ROWS)
def test_graphs_give_what_torch_gives(name: str, dtype: torch.dtype) -> None:
    f = of_real(ROWS[name])
    net = bl.capture(f, torch.randn(2, 3, 8, dtype=dtype))
    for batch in (2,) if name in ONE_SIZE else (1, 2, 5):
        x = torch.randn(batch, 3, 8, dtype=dtype)
        found = net(x)
        assert found.dtype == dtype
        assert_close(found, f(x), 100, f"{name}, batch {batch}")
        assert not has_complex(net, x)


SOUND = ("affine", "product", "quotient of moving", "matmul of moving", "polar", "abs", "irfft")


@pytest.mark.parametrize("name", SOUND)
def test_bounds_hold(name: str) -> None:
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    check_sound(of_real(ROWS[name]), (bl.Linf(x, 0.05),))


class Spectral(nn.Module):
    """A complex weight, and one that is made of two real ones."""

    def __init__(self) -> None:
        super().__init__()
        self.whole = nn.Parameter(torch.randn(3, 3, dtype=torch.complex128))
        self.real = nn.Parameter(torch.randn(3, dtype=torch.float64))
        self.register_buffer("shift", torch.randn(3, dtype=torch.complex128))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.fft.rfft(x) @ self.whole + self.shift
        return torch.fft.irfft(z * torch.complex(self.real, self.real.sin()), n=4)


def test_complex_parameters_stay_the_modules_own() -> None:
    module, x = Spectral(), torch.randn(2, 4, dtype=torch.float64)
    net = bl.capture(module, x)
    with torch.no_grad():
        module.whole.mul_(2j)
    assert_close(net(x), module(x), 100)
    net.bounds(bl.Linf(x, 0.1), method="crown").upper.sum().backward()
    assert module.whole.grad is not None
    assert module.real.grad is not None


def test_real_weights_of_complex_layers_can_be_perturbed() -> None:
    module, x = Spectral(), torch.randn(2, 4, dtype=torch.float64)
    net = bl.capture(module, x)
    real = module.real.detach()
    bounds = net.bounds(x, perturb={"real": bl.Linf(real, 0.1)})
    for _ in range(20):
        moved = real + 0.1 * (2 * torch.rand_like(real) - 1)
        y = torch.func.functional_call(module, {"real": moved}, (x,))
        assert (bounds.lower <= y + 1e-9).all()
        assert (y <= bounds.upper + 1e-9).all()


def test_operators_without_a_row_are_named() -> None:
    with pytest.raises(bl.UnsupportedOperator, match=r"aten\.tanh.*test_complex\.py.*complex"):
        bl.capture(of_real(lambda z: R(torch.tanh(z))), torch.randn(2, 3, 8))


def test_complex_outputs_are_refused() -> None:
    with pytest.raises(bl.CaptureError, match="view_as_real"):
        bl.capture(torch.fft.fft, torch.randn(2, 4))
