"""A network that was read: steps, the constants that they read, and the sizes of all values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from boundlab.onnx.table import Operation, Reference, dereference, reference


class Ref(str):
    """The name of a value, as an argument of a step."""


@dataclass(frozen=True)
class Step:
    """A function of values and constants. args: references to values, or what the function takes
    besides; title: how messages call it."""

    title: str
    function: Operation
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[str, ...]

    def __reduce__(self) -> tuple[Any, ...]:
        """Rows are found again by their names: many of their functions have none of their own."""
        parts = (self.title, reference(self.function), self.args, dict(self.kwargs), self.outputs)
        return _step, parts

    @property
    def reads(self) -> tuple[str, ...]:
        return tuple(arg for arg in self.args if isinstance(arg, Ref))

    def run(self, values: Mapping[str, Tensor]) -> tuple[Any, ...]:
        """The outputs, from what holds the values."""
        args = [values[arg] if isinstance(arg, Ref) else arg for arg in self.args]
        return as_tuple(self.function(*args, **self.kwargs))


def _step(
    title: str, function: Reference, args: Any, kwargs: Any, outputs: tuple[str, ...]
) -> Step:
    return Step(title, dereference(function), args, kwargs, outputs)


def as_tuple(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


@dataclass(frozen=True)
class Value:
    """An input or output of a network. shape: as the file declares it, free sizes None."""

    name: str
    dtype: torch.dtype
    shape: tuple[int | None, ...]


@dataclass
class Network:
    """A network for one sample. steps in order; constants that they read; sizes of all values that
    depend on the inputs; trainable: names of constants that are weights."""

    inputs: tuple[Value, ...]
    outputs: tuple[str, ...]
    steps: list[Step] = field(default_factory=list)
    constants: dict[str, Tensor] = field(default_factory=dict)
    trainable: set[str] = field(default_factory=set)
    meta: dict[str, Tensor] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value or constant, for one sample."""
        if name in self.constants:
            return tuple(self.constants[name].shape)
        return tuple(self.meta[name].shape)

    def without_dead(self) -> Network:
        """Only the steps and constants on which the outputs depend."""
        needed = set(self.outputs)
        steps = []
        for step in reversed(self.steps):
            if needed & set(step.outputs):
                needed |= set(step.reads)
                steps.append(step)
        constants = {name: value for name, value in self.constants.items() if name in needed}
        return replace(self, steps=steps[::-1], constants=constants)

    def last_reads(self) -> list[list[str]]:
        """For each step, the values that are read there for the last time, or never."""
        seen = set(self.outputs) | set(self.constants)
        found = []
        for step in reversed(self.steps):
            names = [name for name in (*step.reads, *step.outputs) if name and name not in seen]
            found.append(list(dict.fromkeys(names)))
            seen.update(names)
        return found[::-1]
