"""Constants, shapes and types."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from boundlab.errors import UnsupportedOperator
from boundlab.onnx.table import Floats, Ints, as_dtype, check_room, row


@row("Constant")
def constant(
    *,
    value: Tensor | None = None,
    value_float: float | None = None,
    value_floats: Floats | None = None,
    value_int: int | None = None,
    value_ints: Ints | None = None,
) -> Tensor:
    if value is not None:
        return value
    for number in (value_float, value_floats):
        if number is not None:
            return torch.tensor(number, dtype=torch.float32)
    for whole in (value_int, value_ints):
        if whole is not None:
            return torch.tensor(whole, dtype=torch.int64)
    raise UnsupportedOperator("it has no value that is a tensor or a number")


@row("ConstantOfShape")
def constant_of_shape(shape: Ints, *, value: Tensor | None = None) -> Tensor:
    if value is None:
        return torch.zeros(shape)
    return value.reshape(()).expand(shape).clone()


@row("EyeLike")
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = x.shape
    kind = x.dtype if dtype is None else as_dtype(dtype)
    down = torch.arange(rows, device=x.device)[:, None]
    right = torch.arange(columns, device=x.device)
    return (right == down + k).to(kind)


@row("Range")
def arange(start: Tensor, limit: Tensor, delta: Tensor) -> Tensor:
    first, step = start.reshape(()), delta.reshape(())
    count = int(torch.ceil((limit.reshape(()) - first).double() / step).clamp(min=0))
    check_room(count)
    return first + torch.arange(count).to(first.dtype) * step


@row("Shape")
def shape(x: Tensor, *, start: int = 0, end: int | None = None) -> Tensor:
    return torch.tensor(x.shape[start:end], dtype=torch.int64)


@row("Size")
def size(x: Tensor) -> Tensor:
    return torch.tensor(x.numel())


@row("Identity")
def identity(x: Tensor) -> Tensor:
    return x


@row("Dropout")
def dropout(
    x: Tensor,
    ratio: float | None = None,
    training_mode: int = 0,
    *,
    is_test: int = 1,
    seed: int = 0,
) -> tuple[Tensor, Tensor]:
    """What a network does that is in use: nothing. The second output is the mask."""
    if training_mode and ratio != 0:
        raise UnsupportedOperator("it drops out elements at random: export the model in eval mode")
    return x, torch.ones_like(x, dtype=torch.bool)


@row("Cast")
def cast(x: Tensor, *, to: int, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(as_dtype(to))


@row("CastLike")
def cast_like(x: Tensor, target: Tensor, *, saturate: int = 1, round_mode: str = "up") -> Tensor:
    return x.to(target.dtype)


WINDOWS: dict[str, tuple[float, ...]] = {
    "HannWindow": (0.5, 0.5),
    "HammingWindow": (25 / 46, 21 / 46),
    "BlackmanWindow": (0.42, 0.5, 0.08),
}
"""The coefficients of cosines, with alternating signs."""


def _window(coefficients: tuple[float, ...]) -> Callable[..., Tensor]:
    def apply(size: int, *, output_datatype: int = 1, periodic: int = 1) -> Tensor:
        """periodic: as one period, without the end that equals the beginning."""
        check_room(size)
        step = 2 * math.pi / (size if periodic else size - 1)
        places = torch.arange(size, dtype=torch.float64) * step
        terms = [(-1) ** k * a * torch.cos(k * places) for k, a in enumerate(coefficients)]
        return torch.stack(terms).sum(0).to(as_dtype(output_datatype))

    return apply


for _name, _coefficients in WINDOWS.items():
    row(_name)(_window(_coefficients))
