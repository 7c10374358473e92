"""What pictures are given, as arrays in double precision: exact, whatever type the results have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.regions import Region
from boundlab.results import Bounds

Array = npt.NDArray[np.float64]
Set = Bounds | Region
"""A region counts as its hull."""


def array(values: object, what: str) -> Array:
    """Numbers without NaN."""
    try:
        numbers = torch.as_tensor(values).detach().cpu().to(torch.float64).numpy()
    except (TypeError, ValueError, RuntimeError):
        raise ArgumentError(f"{what} must be numbers, not {type(values).__name__}") from None
    if np.isnan(numbers).any():
        raise ArgumentError(f"{what} must not contain NaN")
    return numbers


def limits(bounds: Set) -> tuple[Array, Array]:
    """Lower and upper limits, in the shape that the bounds have."""
    if isinstance(bounds, Region):
        hull = bounds.hull()
        bounds = Bounds(hull.lower, hull.upper)
    if not isinstance(bounds, Bounds):
        raise ArgumentError(
            f"expected the result of net.bounds(...) or a region, got {type(bounds).__name__}"
        )
    lower, upper = array(bounds.lower, "lower bounds"), array(bounds.upper, "upper bounds")
    if (lower > upper).any():
        raise ArgumentError("these are bounds of nothing: a lower bound exceeds the upper one")
    if (lower == np.inf).any() or (upper == -np.inf).any():
        raise ArgumentError("these are bounds of nothing: a lower bound is inf, or an upper -inf")
    return lower, upper


def rows(bounds: Set | Sequence[Set]) -> tuple[Array, Array]:
    """Limits (sets, outputs): bounds of shape (..., outputs), or several of them one behind the
    other."""
    if isinstance(bounds, Bounds | Region):
        bounds = [bounds]
    if not len(bounds):
        raise ArgumentError("there are no bounds to draw")
    lowers, uppers = zip(*[limits(one) for one in bounds], strict=True)
    return _stacked(lowers), _stacked(uppers)


def _stacked(parts: Sequence[Array]) -> Array:
    widths = {part.shape[-1] if part.ndim else 1 for part in parts}
    if len(widths) > 1:
        raise ArgumentError(f"all bounds must have the same number of outputs, got {widths}")
    return np.concatenate([part.reshape(-1, widths.copy().pop()) for part in parts])


def steps(bounds: Set | Sequence[Set], sample: int) -> tuple[Array, Array]:
    """Limits (steps, states) of one sample: of bounds (samples, steps, states) or (steps, states),
    or of bounds (samples, states) or (states,) for each step."""
    if isinstance(bounds, Bounds | Region):
        lower, upper = limits(bounds)
        if lower.ndim == 3:
            lower, upper = _at(lower, sample), _at(upper, sample)
        if lower.ndim != 2:
            raise ArgumentError(
                "bounds of all steps must have the shape (samples, steps, states) or (steps, "
                f"states), got {lower.shape}"
            )
        return lower, upper
    one_by_one = [limits(one) for one in bounds]
    for lower, _ in one_by_one:
        if lower.ndim not in (1, 2):
            raise ArgumentError(
                "bounds of a step must have the shape (samples, states) or (states,), got "
                f"{lower.shape}"
            )
    picked = [Bounds(_sample(lower, sample), _sample(upper, sample)) for lower, upper in one_by_one]
    return rows(picked)


def _sample(side: Array, sample: int) -> Tensor:
    """Limits of a step, of one sample if there are several."""
    if side.ndim == 2:
        side = _at(side, sample)
    return torch.from_numpy(side)


def _at(values: Array, sample: int) -> Array:
    if not -len(values) <= sample < len(values):
        raise ArgumentError(f"there is no sample {sample}: there are {len(values)}")
    return values[sample]


def runs(trajectories: Tensor | Sequence[Tensor]) -> Array:
    """Trajectories (runs, steps, states), or the states (runs, states) of each step."""
    if not isinstance(trajectories, Tensor):
        trajectories = torch.stack(list(trajectories), 1)
    found = array(trajectories, "trajectories")
    if found.ndim != 3:
        raise ArgumentError(
            "trajectories must have the shape (runs, steps, states), or be a sequence of states "
            f"(runs, states) by step, got {found.shape}"
        )
    return found


def column(values: Array, index: int, what: str) -> Array:
    """values[..., index]."""
    if not -values.shape[-1] <= index < values.shape[-1]:
        raise ArgumentError(f"there is no {what} {index}: there are {values.shape[-1]}")
    return values[..., index]


def plane(points: object, dims: tuple[int, int]) -> Array:
    """Points (..., outputs) in two of their dimensions: (points, 2)."""
    numbers = array(points, "points")
    if numbers.ndim < 1:
        raise ArgumentError("points must have the shape (points, outputs)")
    flat = numbers.reshape(-1, numbers.shape[-1])
    return np.stack([column(flat, dim, "output") for dim in dims], 1)
