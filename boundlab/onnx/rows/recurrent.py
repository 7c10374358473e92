"""Recurrent layers, written out step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from boundlab.errors import UnsupportedOperator
from boundlab.onnx.table import Floats, Ints, row

Activation = Callable[[Tensor], Tensor]
State = tuple[Tensor, ...]
Cell = Callable[[Tensor, State], State]
"""From the input of a step and a state to the next state, whose first part is the output."""

MOST_STEPS = 4096
"""Each step of time is written out."""
PLAIN: dict[str, Activation] = {
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "softsign": F.softsign,
    "softplus": F.softplus,
}
WITH_NUMBERS: dict[str, tuple[Callable[[float, float], Activation], float, float]] = {
    "affine": (lambda a, b: lambda x: a * x + b, 1.0, 0.0),
    "leakyrelu": (lambda a, _: lambda x: F.leaky_relu(x, a), 0.01, 0.0),
    "thresholdedrelu": (lambda a, _: lambda x: F.threshold(x, a, 0.0), 1.0, 0.0),
    "scaledtanh": (lambda a, b: lambda x: a * torch.tanh(b * x), 1.0, 1.0),
    "hardsigmoid": (lambda a, b: lambda x: torch.clamp(a * x + b, 0.0, 1.0), 0.2, 0.5),
    "elu": (lambda a, _: lambda x: F.elu(x, a), 1.0, 0.0),
}
"""How an activation is made of alpha and beta, and what these are if they are not given."""
WITH_BETA = ("affine", "scaledtanh", "hardsigmoid")
"""Those that take the next of the betas; all take one of the alphas."""


@dataclass(frozen=True)
class Layer:
    """What recurrent layers have in common: the attributes of ONNX."""

    hidden: int
    direction: str
    activations: tuple[Activation, ...]
    clip: float | None
    batch_first: bool

    @property
    def directions(self) -> int:
        return 2 if self.direction == "bidirectional" else 1

    def limited(self, x: Tensor) -> Tensor:
        """What enters an activation."""
        return x if self.clip is None else x.clamp(-self.clip, self.clip)

    def of_direction(self, number: int) -> tuple[Activation, ...]:
        count = len(self.activations) // self.directions
        return self.activations[number * count : (number + 1) * count]


def _layer(
    defaults: Sequence[str],
    hidden: int,
    direction: str,
    names: tuple[str, ...] | None,
    alphas: Floats | None,
    betas: Floats | None,
    clip: float | None,
    layout: int,
) -> Layer:
    if direction not in ("forward", "reverse", "bidirectional"):
        raise UnsupportedOperator(f"its direction {direction!r} is not known")
    copies = 2 if direction == "bidirectional" else 1
    alpha, beta = iter(alphas or ()), iter(betas or ())
    found = []
    for name in names or tuple(defaults) * copies:
        key = name.lower()
        if key in PLAIN:
            found.append(PLAIN[key])
        elif key in WITH_NUMBERS:
            make, a, b = WITH_NUMBERS[key]
            found.append(make(next(alpha, a), next(beta, b) if key in WITH_BETA else b))
        else:
            raise UnsupportedOperator(f"its activation {name} is not known")
    return Layer(hidden, direction, tuple(found), clip, bool(layout))


def _along_time(
    x: Tensor, cell: Cell, state: State, backward: bool, lengths: Ints | None
) -> tuple[Tensor, State]:
    """The outputs (time, batch, hidden) and the last state; samples that have ended keep theirs."""
    steps = range(x.shape[0])
    if len(steps) > MOST_STEPS:
        raise UnsupportedOperator(f"it has {len(steps)} steps of time; {MOST_STEPS} is the most")
    outputs: list[Tensor] = []
    for step in reversed(steps) if backward else steps:
        new = cell(x[step], state)
        if lengths is None or min(lengths) > step:
            state, shown = new, new[0]
        else:
            alive = [[step < length] for length in lengths]
            goes_on = torch.tensor(alive, device=x.device)
            state = tuple(torch.where(goes_on, a, b) for a, b in zip(new, state, strict=True))
            shown = torch.where(goes_on, new[0], torch.zeros_like(new[0]))
        outputs.append(shown)
    return torch.stack(outputs[::-1] if backward else outputs), state


def _run(
    layer: Layer,
    x: Tensor,
    cells: Callable[[int], Cell],
    starts: Sequence[Tensor | None],
    lengths: Ints | None,
) -> tuple[Tensor, ...]:
    """All directions: outputs (time, directions, batch, hidden), and the parts of the last states
    (directions, batch, hidden), with the batch in front if the layer has it there."""
    if layer.batch_first:
        x = x.transpose(0, 1)
        starts = [one if one is None else one.transpose(0, 1) for one in starts]
    if lengths is not None and min(lengths) == x.shape[0]:
        lengths = None
    outputs, last = [], []
    for number in range(layer.directions):
        state = tuple(_start(one, number, x, layer.hidden) for one in starts)
        backward = layer.direction == "reverse" or number == 1
        shown, state = _along_time(x, cells(number), state, backward, lengths)
        outputs.append(shown)
        last.append(state)
    parts = [torch.stack(one) for one in zip(*last, strict=True)]
    found = torch.stack(outputs, 1)
    if layer.batch_first:
        return found.permute(2, 0, 1, 3), *(one.transpose(0, 1) for one in parts)
    return found, *parts


def _start(given: Tensor | None, number: int, x: Tensor, hidden: int) -> Tensor:
    """The first state of a direction (batch, hidden): zeros if none is given."""
    if given is None:
        return torch.zeros_like(x[0, :, :1]).expand(-1, hidden)
    return given[number].expand(x.shape[1], hidden)


def _biases(bias: Tensor | None, number: int) -> tuple[Tensor | None, Tensor | None]:
    """The biases of the inputs and of the state."""
    if bias is None:
        return None, None
    first, second = bias[number].chunk(2)
    return first, second


@row("LSTM")
def lstm(
    x: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    sequence_lens: Ints | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    """Gates stand in the order input, output, forget, cell."""
    layer = _layer(
        ("Sigmoid", "Tanh", "Tanh"), hidden_size, direction, activations, activation_alpha,
        activation_beta, clip, layout,
    )  # fmt: skip

    def cells(number: int) -> Cell:
        f, g, h = layer.of_direction(number)
        of_x, of_h = _biases(bias, number)
        sight = None if peepholes is None else peepholes[number].chunk(3)

        def cell(now: Tensor, state: State) -> State:
            hidden, memory = state
            gates = F.linear(now, weight[number], of_x) + F.linear(hidden, recurrent[number], of_h)
            enters, leaves, stays, new = gates.chunk(4, 1)
            if sight is not None:
                enters, stays = enters + sight[0] * memory, stays + sight[2] * memory
            entering = f(layer.limited(enters))
            staying = 1 - entering if input_forget else f(layer.limited(stays))
            memory = staying * memory + entering * g(layer.limited(new))
            if sight is not None:
                leaves = leaves + sight[1] * memory
            return f(layer.limited(leaves)) * h(memory), memory

        return cell

    return _run(layer, x, cells, [initial_h, initial_c], sequence_lens)


@row("GRU")
def gru(
    x: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    sequence_lens: Ints | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[Tensor, ...]:
    """Gates stand in the order update, reset, hidden."""
    layer = _layer(
        ("Sigmoid", "Tanh"), hidden_size, direction, activations, activation_alpha,
        activation_beta, clip, layout,
    )  # fmt: skip

    def cells(number: int) -> Cell:
        f, g = layer.of_direction(number)
        of_x, of_h = _biases(bias, number)
        both, last = recurrent[number].split([2 * hidden_size, hidden_size])
        both_bias = last_bias = None
        if of_h is not None:
            both_bias, last_bias = of_h.split([2 * hidden_size, hidden_size])

        def cell(now: Tensor, state: State) -> State:
            (hidden,) = state
            update_x, reset_x, new_x = F.linear(now, weight[number], of_x).chunk(3, 1)
            update_h, reset_h = F.linear(hidden, both, both_bias).chunk(2, 1)
            update = f(layer.limited(update_x + update_h))
            reset = f(layer.limited(reset_x + reset_h))
            if linear_before_reset:
                seen = reset * F.linear(hidden, last, last_bias)
            else:
                seen = F.linear(reset * hidden, last, last_bias)
            new = g(layer.limited(new_x + seen))
            return ((1 - update) * new + update * hidden,)

        return cell

    return _run(layer, x, cells, [initial_h], sequence_lens)


@row("RNN")
def rnn(
    x: Tensor,
    weight: Tensor,
    recurrent: Tensor,
    bias: Tensor | None = None,
    sequence_lens: Ints | None = None,
    initial_h: Tensor | None = None,
    *,
    activation_alpha: Floats | None = None,
    activation_beta: Floats | None = None,
    activations: tuple[str, ...] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int,
    layout: int = 0,
) -> tuple[Tensor, ...]:
    layer = _layer(
        ("Tanh",), hidden_size, direction, activations, activation_alpha, activation_beta, clip,
        layout,
    )  # fmt: skip

    def cells(number: int) -> Cell:
        (f,) = layer.of_direction(number)
        of_x, of_h = _biases(bias, number)

        def cell(now: Tensor, state: State) -> State:
            (hidden,) = state
            total = F.linear(now, weight[number], of_x) + F.linear(hidden, recurrent[number], of_h)
            return (f(layer.limited(total)),)

        return cell

    return _run(layer, x, cells, [initial_h], sequence_lens)
