"""Polynomials, products of tensors, small matrices, complex numbers, derivatives."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.programs.program import Program, weights


class Polynomial(nn.Module):
    """A polynomial network: layers multiplied by a linear map of the input."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.layers, self.head = nn.ModuleList(nn.Linear(3, 4) for _ in range(3)), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "powers":
            return torch.stack([self.head(self.layers[0](x)) ** k for k in range(1, 5)], -1).sum(-1)
        if self.form == "horner":
            y = self.layers[0](x)
            return self.head(((0.3 * y - 0.5) * y + 1.0) * y)
        y = self.layers[0](x)
        for layer in self.layers[1:]:
            y = y + y * layer(x)
        return self.head(y)


class Crosses(nn.Module):
    """Second-order features: outer products, factorisation machines, Kronecker products."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.factors = form, nn.Parameter(weights(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "outer":
            return torch.einsum("bi,bj->bij", x, x).flatten(1) @ weights_of(9)
        if self.form == "machine":
            return 0.5 * ((x @ self.factors) ** 2 - x**2 @ self.factors**2).sum(1)
        if self.form == "kron":
            return torch.vmap(torch.kron)(x, torch.tanh(x))
        if self.form == "tensordot":
            return torch.tensordot(x.unsqueeze(2) * x.unsqueeze(1), torch.ones(3, 3), dims=2)
        pairs = torch.triu_indices(3, 3, 1)
        return x[:, pairs[0]] * x[:, pairs[1]]


def weights_of(size: int) -> Tensor:
    return torch.linspace(-1, 1, size)


def determinant(x: Tensor) -> Tensor:
    """Of 2 x 2 matrices near the identity, by torch."""
    return torch.linalg.det(x.view(-1, 2, 2) * 0.3 + torch.eye(2))


def determinant_by_hand(x: Tensor) -> Tensor:
    a, b, c, d = (x * 0.3 + torch.tensor([1.0, 0.0, 0.0, 1.0])).unbind(1)
    return a * d - b * c


def inverse(x: Tensor) -> Tensor:
    return torch.linalg.inv(x.view(-1, 2, 2) * 0.3 + torch.eye(2))


def inverse_by_hand(x: Tensor) -> Tensor:
    a, b, c, d = (x * 0.3 + torch.tensor([1.0, 0.0, 0.0, 1.0])).unbind(1)
    return torch.stack([d, -b, -c, a], 1) / (a * d - b * c).unsqueeze(1)


def solved(x: Tensor) -> Tensor:
    """A fixed matrix is inverted, the right-hand side moves."""
    matrix = torch.tensor([[2.0, 0.5], [0.3, 1.0]])
    return torch.relu(torch.linalg.solve(matrix, x.unsqueeze(2)).squeeze(2))


def crossed(x: Tensor) -> Tensor:
    return torch.linalg.cross(x[:, :3], x[:, 3:], dim=1)


class Turned(nn.Module):
    """Complex numbers as pairs of reals, turned by an angle that the input decides."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form, self.angle = form, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        angle = self.angle(x)
        if self.form == "complex":
            z = torch.view_as_complex(x.view(-1, 2, 2))
            return torch.view_as_real(z * torch.polar(torch.ones_like(angle), angle))
        if self.form == "magnitude":
            return torch.view_as_complex(x.view(-1, 2, 2)).abs()
        a, b = x.view(-1, 2, 2).unbind(-1)
        sine, cosine = angle.sin(), angle.cos()
        return torch.stack([a * cosine - b * sine, a * sine + b * cosine], -1)


class ComplexLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.real, self.imaginary = nn.Parameter(weights(3, 2)), nn.Parameter(weights(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        z = torch.complex(x[:, :2], x[:, 2:])
        y = z @ torch.complex(self.real, self.imaginary).T
        return torch.cat([torch.relu(y.real), torch.relu(y.imag)], 1)


def quaternion(x: Tensor) -> Tensor:
    """A quaternion made a rotation matrix."""
    w, i, j, k = F.normalize(x + torch.tensor([2.0, 0.0, 0.0, 0.0]), dim=1).unbind(1)
    rows = [1 - 2 * (j * j + k * k), 2 * (i * j - w * k), 2 * (i * k + w * j)]
    return torch.stack(rows, 1)


def polar(x: Tensor) -> Tensor:
    return torch.stack([torch.hypot(x[:, 0], x[:, 1]), torch.atan2(x[:, 1], x[:, 0])], 1)


class Gradient(nn.Module):
    """The gradient of a network by its input, by hand."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.first, self.second = nn.Linear(3, 5), nn.Linear(5, 1)

    def value(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(x))).squeeze(-1)

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "func":
            return torch.vmap(torch.func.grad(self.value))(x)
        inner = torch.tanh(self.first(x))
        return ((1 - inner**2) * self.second.weight) @ self.first.weight


class Expanded(nn.Module):
    """A matrix exponential by its series, and the trace of powers."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        A = 0.3 * x.view(-1, 2, 2)
        term = total = torch.eye(2).expand_as(A)
        for k in range(1, 4):
            term = term @ A / k
            total = total + term
        return total, torch.einsum("bii->b", torch.matrix_power(A, 2))


class Rational(nn.Module):
    """A rational activation with a denominator that stays away from zero."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.layer(x)
        return (0.1 + y + 0.5 * y**2) / (1 + (0.3 * y).abs() + y**2)


PROGRAMS = {
    **{
        f"polynomial-{form}": Program(lambda form=form: Polynomial(form), ((3,),))
        for form in ("products", "powers", "horner")
    },
    **{
        f"crosses-{form}": Program(lambda form=form: Crosses(form), ((3,),))
        for form in ("outer", "machine", "kron", "pairs")
    },
    "crosses-tensordot": Program(lambda: Crosses("tensordot"), ((3,),)),
    "determinant": Program(lambda: determinant, ((4,),)),
    "determinant-by-hand": Program(lambda: determinant_by_hand, ((4,),)),
    "inverse": Program(lambda: inverse, ((4,),)),
    "inverse-by-hand": Program(lambda: inverse_by_hand, ((4,),)),
    "solved": Program(lambda: solved, ((2,),)),
    "crossed": Program(lambda: crossed, ((6,),)),
    "turned": Program(lambda: Turned("by-hand"), ((4,),)),
    "turned-complex": Program(lambda: Turned("complex"), ((4,),)),
    "turned-magnitude": Program(lambda: Turned("magnitude"), ((4,),)),
    "complex-layer": Program(ComplexLayer, ((4,),)),
    "quaternion": Program(lambda: quaternion, ((4,),)),
    "polar": Program(lambda: polar, ((2,),), low=0.3),
    "gradient-by-hand": Program(lambda: Gradient("by-hand"), ((3,),)),
    "gradient-func": Program(lambda: Gradient("func"), ((3,),), refused="derivatives inside"),
    "matrix-exponential": Program(Expanded, ((4,),)),
    "rational": Program(Rational, ((3,),)),
}
