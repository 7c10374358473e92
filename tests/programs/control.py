"""Closed loops, Lyapunov functions and quadratic forms."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.programs.program import Program, weights


def controller(inputs: int, outputs: int = 1) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 8), nn.Tanh(), nn.Linear(8, outputs))


class Pendulum(nn.Module):
    """An inverted pendulum with a tanh controller, by Euler steps; all states are returned."""

    def __init__(self, steps: int, saturated: bool = False) -> None:
        super().__init__()
        self.steps, self.saturated = steps, saturated
        self.controller = controller(2)

    def forward(self, state: Tensor) -> Tensor:
        angle, speed = state[:, 0], state[:, 1]
        states = []
        for _ in range(self.steps):
            torque = self.controller(torch.stack([angle, speed], 1)).squeeze(1)
            if self.saturated:
                torque = torque.clamp(-0.3, 0.3)
            force = torch.sin(angle) - 0.1 * speed + torque
            angle, speed = angle + 0.05 * speed, speed + 0.05 * force
            states.append(torch.stack([angle, speed], 1))
        return torch.stack(states, 1)


class CartPole(nn.Module):
    """The equations of motion with their fraction of sines and cosines."""

    def __init__(self) -> None:
        super().__init__()
        self.controller = controller(4)

    def forward(self, state: Tensor) -> Tensor:
        position, speed, angle, turning = state.unbind(-1)
        force = self.controller(state)[..., 0]
        sine, cosine = torch.sin(angle), torch.cos(angle)
        push = (force + 0.05 * turning**2 * sine) / 1.1
        turn = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
        drive = push - 0.05 * turn * cosine / 1.1
        rates = torch.stack([speed, drive, turning, turn], -1)
        return state + 0.02 * rates


class Unicycle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.controller = controller(3, 2)

    def forward(self, pose: Tensor) -> Tensor:
        for _ in range(3):
            pace, turn = self.controller(pose).chunk(2, dim=1)
            heading = pose[:, 2:]
            move = torch.cat([pace * torch.cos(heading), pace * torch.sin(heading), turn], 1)
            pose = pose + 0.1 * move
        return pose


class Observer(nn.Module):
    """A linear system with an estimated state: the loop carries both."""

    def __init__(self) -> None:
        super().__init__()
        self.A = nn.Parameter(torch.eye(3) + weights(3, 3, scale=0.1))
        self.gain = nn.Parameter(weights(3, 1))
        self.controller = controller(3, 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        estimate = torch.zeros_like(x)
        for _ in range(3):
            seen = (x - estimate)[:, :1]
            u = 0.1 * self.controller(estimate)
            x, estimate = x @ self.A.T + u, estimate @ self.A.T + u + seen @ self.gain.T
        return x, estimate


class RungeKutta(nn.Module):
    """A step of fourth order of a Van der Pol oscillator."""

    @staticmethod
    def rate(state: Tensor) -> Tensor:
        x, v = state[:, :1], state[:, 1:]
        return torch.cat([v, (1 - x**2) * v - x], 1)

    def forward(self, state: Tensor) -> Tensor:
        h = 0.1
        k1 = self.rate(state)
        k2 = self.rate(state + h / 2 * k1)
        k3 = self.rate(state + h / 2 * k2)
        k4 = self.rate(state + h * k3)
        return state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


class Lyapunov(nn.Module):
    """V(x) and V of the next state, with V a network made positive by its square."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.controller = controller(2, 4), controller(2, 2)

    def energy(self, x: Tensor) -> Tensor:
        return (self.value(x) - self.value(torch.zeros(1, 2))).square().sum(1) + 0.1 * x.norm(
            p=1, dim=1
        )

    def forward(self, x: Tensor) -> Tensor:
        after = x + 0.1 * self.controller(x)
        return self.energy(after) - 0.9 * self.energy(x)


class Quadratic(nn.Module):
    """x' P x in one of the ways to write it."""

    def __init__(self, form: str) -> None:
        super().__init__()
        factor = weights(4, 4)
        self.register_buffer("P", factor @ factor.T + 0.1 * torch.eye(4))
        self.form = form

    def forward(self, x: Tensor) -> Tensor:
        if self.form == "einsum":
            return torch.einsum("bi,ij,bj->b", x, self.P, x)
        if self.form == "matmul":
            return (x.unsqueeze(1) @ self.P @ x.unsqueeze(2)).flatten()
        if self.form == "factor":
            return torch.linalg.vector_norm(x @ torch.linalg.cholesky(self.P), dim=1).square()
        if self.form == "bilinear":
            return torch.nn.functional.bilinear(x, x, self.P.unsqueeze(0)).squeeze(1)
        return ((x @ self.P) * x).sum(-1)


PROGRAMS = {
    "pendulum": Program(lambda: Pendulum(2), ((2,),)),
    "pendulum-saturated": Program(lambda: Pendulum(5, saturated=True), ((2,),)),
    "cart-pole": Program(CartPole, ((4,),)),
    "unicycle": Program(Unicycle, ((3,),)),
    "observer": Program(Observer, ((3,),)),
    "runge-kutta": Program(RungeKutta, ((2,),)),
    "lyapunov-decrease": Program(Lyapunov, ((2,),)),
    "quadratic-einsum": Program(lambda: Quadratic("einsum"), ((4,),)),
    "quadratic-matmul": Program(lambda: Quadratic("matmul"), ((4,),)),
    "quadratic-sum": Program(lambda: Quadratic("sum"), ((4,),)),
    "quadratic-factor": Program(lambda: Quadratic("factor"), ((4,),)),
    "quadratic-bilinear": Program(lambda: Quadratic("bilinear"), ((4,),)),
}
