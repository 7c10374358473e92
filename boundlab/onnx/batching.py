"""Freeing the batch size of a network that was read for one sample.

Exported networks have their batch of 1 in reshapes, slices and constants. Such steps are written so
that they serve any number of samples: a reshape leaves the dimension that holds the samples free,
what flatten, squeeze and unsqueeze do is a reshape as well, and constants that are joined with
values are repeated for each sample. Where the samples are in a step's arguments is seen on a trial
of two samples. A network that cannot be written so, or with a step that gives anything else for two
samples than for each alone, is mapped over its samples instead
(:class:`boundlab.onnx.model.OnnxModel`).

Each step is tried on random numbers of its own, so that no step can hide what the one before did.
The trial can only refuse: that samples do not meet is proved by structure when the module is
captured.
"""

from __future__ import annotations

import logging
import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import BoundlabError
from boundlab.onnx.network import Network, Ref, Step, Value
from boundlab.onnx.rows.constants import eye_like
from boundlab.onnx.rows.indexing import gather, slice_
from boundlab.onnx.rows.resizing import resize
from boundlab.onnx.rows.shapes import concat, flatten, reshape, squeeze, trilu, unsqueeze, view
from boundlab.onnx.selecting import Selection, selected, selection

log = logging.getLogger("boundlab")

SAMPLES = 2
TOLERANCE = 1e-3
"""How far outputs of two samples may be from those of each alone, relative to their size: samples
that meet differ by far more."""
ATTEMPTS = 32
"""How many ways to write reshapes are tried."""
VIEWS = (reshape, flatten, squeeze, unsqueeze)
DIAGONALS = (trilu, eye_like)
"""What may only show for more samples than the trial has."""


class SamplesMeet(BoundlabError):
    """A step cannot be written for several samples at once."""


def holds_samples(value: Value) -> bool:
    """Whether dimension 0 of an input counts samples: it is free, or of size 1 before others."""
    if not value.shape:
        return False
    return value.shape[0] is None or (value.shape[0] == 1 and len(value.shape) > 1)


def trial_inputs(values: tuple[Value, ...], samples: int, seed: int = 0) -> list[Tensor]:
    """Random inputs (samples, *shape of one sample)."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for value in values:
        shape = [samples, *sample_shape(value)]
        if value.dtype.is_floating_point:
            drawn = torch.rand(shape, generator=generator).to(value.dtype)
        else:
            drawn = torch.randint(0, 2, shape, generator=generator).to(value.dtype)
        found.append(drawn)
    return found


def sample_shape(value: Value) -> tuple[int, ...]:
    """The shape of one sample of an input."""
    sizes = value.shape[1:] if holds_samples(value) else value.shape
    return tuple(size for size in sizes if size is not None)


@torch.no_grad()
def with_free_batch(network: Network) -> Network | None:
    """The network for any number of samples, in dimension 0; None if it cannot be written so."""
    if not network.inputs or not all(holds_samples(one) for one in network.inputs):
        return None
    inputs = trial_inputs(network.inputs, SAMPLES)
    choices: dict[int, int] = {}
    for _ in range(ATTEMPTS):
        trial = _Trial(network, inputs, choices)
        try:
            return trial.freed()
        except Exception as error:  # whatever a step says to two samples
            log.debug("the batch size stays fixed: %s", error)
        found = trial.next_choices()
        if found is None:
            break
        choices = found
    return None


def _counts_samples(alone: tuple[int, ...], together: Tensor) -> bool:
    """Whether a value has one entry of dimension 0 for each sample."""
    return alone[:1] == (1,) and tuple(together.shape) == (SAMPLES, *alone[1:])


def _parts(together: Tensor, dim: int, outer: int) -> list[Tensor]:
    """Each sample of a value that has them in a dimension, with so many elements around them."""
    split = together.unflatten(dim, (outer, SAMPLES, -1))
    return [split.select(dim + 1, sample).flatten(dim, dim + 1) for sample in range(SAMPLES)]


def _alike(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape:
        return False
    a, b = a.double(), b.double()
    scale = torch.nan_to_num(a, 0.0, 0.0, 0.0).abs().max() if a.numel() else 0.0
    return torch.allclose(a, b, TOLERANCE, TOLERANCE * float(scale), equal_nan=True)


class _Trial:
    """Some samples at once, and each alone, through one step after the other."""

    def __init__(self, network: Network, inputs: list[Tensor], choices: dict[int, int]) -> None:
        self.network = network
        self.added: dict[str, Tensor] = {}
        self.values: dict[str, Tensor] = dict(network.constants)
        self.alone = [dict(network.constants) for _ in range(SAMPLES)]
        self.generator = torch.Generator().manual_seed(1)
        self.outer: dict[str, int] = {one.name: 1 for one in network.inputs}
        self.choices = choices
        self.options: list[int] = []
        for one, x in zip(network.inputs, inputs, strict=True):
            self.values[one.name] = x
            for sample, values in enumerate(self.alone):
                values[one.name] = x[sample : sample + 1]

    def freed(self) -> Network:
        """The network for any number of samples; an error if this way leads to none."""
        network = self.network
        steps = [
            self.tried(step, dead)
            for step, dead in zip(network.steps, network.last_reads(), strict=True)
        ]
        for name in network.outputs:
            if not _counts_samples(network.shape(name), self.values[name]):
                raise SamplesMeet(f"the output {name} does not count samples")
        return replace(network, steps=steps, constants={**network.constants, **self.added})

    def next_choices(self) -> dict[int, int] | None:
        """The next way to write the reshapes; None if there is no other."""
        for place in reversed(range(len(self.options))):
            chosen = self.choices.get(place, 0) + 1
            if chosen < self.options[place]:
                earlier = {one: was for one, was in self.choices.items() if one < place}
                return {**earlier, place: chosen}
        return None

    def tried(self, step: Step, dead: list[str]) -> Step:
        """What does the same as a step for any number of samples; an error if there is nothing.
        dead: values that are not read any more."""
        found = self.rewritten(step)
        self.values.update(zip(found.outputs, found.run(self.values), strict=False))
        for values in self.alone:
            values.update(zip(step.outputs, step.run(values), strict=False))
        for name in step.outputs:
            if name:
                self.compare(step, name)
        for name in dead:
            for held in (self.values, *self.alone):
                held.pop(name, None)
        return found

    def compare(self, step: Step, name: str) -> None:
        """An error unless a value of some samples is made of those of each. Steps behind get other
        numbers."""
        dim = self.grown(Ref(name))
        if dim is None:
            raise SamplesMeet(f"{name} has no dimension for samples")
        together = self.values[name]
        parts = [values[name] for values in self.alone]
        for outer in self.outers(step, name, dim):
            if all(map(_alike, parts, _parts(together, dim, outer))):
                break
        else:
            raise SamplesMeet(f"{name} of a sample depends on another")
        self.outer[name] = outer
        self.values[name] = self.random(together)
        for values, part in zip(self.alone, _parts(self.values[name], dim, outer), strict=True):
            values[name] = part

    def outers(self, step: Step, name: str, dim: int) -> list[int]:
        """Around how many elements of a dimension the samples may stand: as a reshape has it, as
        the values do that are read, or any number. Few truth values or whole numbers could fit by
        chance."""
        if name in self.outer:
            return [self.outer[name]]
        found = list(dict.fromkeys(self.outer[one] for one in step.reads if one in self.outer))
        size = self.network.shape(name)[dim]
        if self.values[name].is_floating_point():
            found += [one for one in range(1, size + 1) if size % one == 0 and one not in found]
        return [one for one in found if size % one == 0]

    def random(self, like: Tensor) -> Tensor:
        if like.is_floating_point():
            return torch.randn(like.shape, generator=self.generator).to(like.dtype)
        return torch.randint(0, 2, like.shape, generator=self.generator).to(like.dtype)

    def grown(self, name: Any) -> int | None:
        """The dimension of a value that holds the samples, by itself or with others."""
        if not isinstance(name, Ref):
            return None
        alone, here = self.network.shape(name), self.values[name].shape
        found = [dim for dim, (a, b) in enumerate(zip(alone, here, strict=True)) if a != b]
        if len(found) != 1 or here[found[0]] != SAMPLES * alone[found[0]]:
            return None
        return found[0]

    def rewritten(self, step: Step) -> Step:
        """What does the same as a step for any number of samples, or the step."""
        if step.function is concat:
            return self.joined(step)
        found = selection(step, self.network)
        if found is not None:
            return self.chosen(step, found)
        first = self.grown(step.args[0]) if step.args else None
        ways = {
            **dict.fromkeys(VIEWS, self.viewed),
            **dict.fromkeys(DIAGONALS, self.diagonal),
            gather: self.gathered,
            slice_: self.sliced,
            resize: self.resized,
        }
        if first is None or step.function not in ways:
            return step
        return ways[step.function](step, first)

    def viewed(self, step: Step, dim: int) -> Step:
        """A reshape with the samples where as many elements stand before them as did. There may be
        several dimensions for that, which only later steps tell apart."""
        x, shape = step.args[0], list(self.network.shape(step.outputs[0]))
        before = math.prod(self.network.shape(x)[:dim]) * self.outer[x]
        found = []
        for place, size in enumerate(shape):
            outer, rest = divmod(before, math.prod(shape[:place]))
            if not rest and outer and size % outer == 0:
                found.append((outer > 1, place, outer))
        found.sort()
        _, place, self.outer[step.outputs[0]] = found[self.choice(len(found))]
        shape[place] = -1
        return Step(step.title, view, (x, tuple(shape)), {}, step.outputs)

    def diagonal(self, step: Step, dim: int) -> Step:
        """The step, unless its matrices have rows or columns of several samples."""
        if dim >= len(self.network.shape(step.args[0])) - 2:
            raise SamplesMeet("a diagonal runs through the samples")
        return step

    def sliced(self, step: Step, dim: int) -> Step:
        """A slice that leaves the dimension of the samples alone if it takes all of it."""
        x, starts, ends, axes, steps = [*step.args, None, None, None, None][:5]
        numbers = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
        numbers.update(step.kwargs)
        alone = self.network.shape(x)
        places = numbers["axes"] or range(len(numbers["starts"]))
        whole = self.network.shape(step.outputs[0])[dim] == alone[dim]
        kept = [place for place, axis in enumerate(places) if axis % len(alone) != dim]
        forward = not numbers["steps"] or min(numbers["steps"]) > 0
        if not whole or not forward or len(kept) == len(places):
            return step
        chosen = {
            name: tuple(given[place] for place in kept)
            for name, given in {**numbers, "axes": places}.items()
            if given is not None
        }
        return Step(step.title, slice_, (x,), chosen, step.outputs)

    def gathered(self, step: Step, dim: int) -> Step:
        """A gather that takes the only sample there was as a reshape."""
        alone = self.network.shape(step.args[0])
        axis = step.kwargs.get("axis", 0) % len(alone)
        index = self.network.constants.get(step.args[1])
        if axis != dim or alone[dim] != 1 or index is None or index.numel() != 1:
            return step
        return self.viewed(step, dim)

    def joined(self, step: Step) -> Step:
        """A concatenation whose constants are repeated for each sample."""
        dims = [self.grown(arg) for arg in step.args]
        held = [dim for dim in dims if dim is not None]
        if not held or None not in dims:
            return step
        like = dims.index(held[0])
        kwargs = {"axis": step.kwargs.get("axis", 1), "dim": held[0], "like": like}
        return Step(step.title, repeated, step.args, kwargs, step.outputs)

    def resized(self, step: Step, dim: int) -> Step:
        """A resize of all dimensions but that of the samples."""
        if dim != 0 or "axes" in step.kwargs:
            return step
        x, *given = step.args
        rank = len(self.network.shape(x))
        if given and given[0]:  # the region of interest: starts and ends
            given[0] = given[0][1:rank] + given[0][rank + 1 :]
        rest = [one[1:] if one else one for one in given[1:]]
        kwargs = {**step.kwargs, "axes": tuple(range(1, rank))}
        return Step(step.title, resize, (x, *given[:1], *rest), kwargs, step.outputs)

    def chosen(self, step: Step, found: Selection) -> Step:
        """A gather or scatter as a choice among the elements of each sample. The samples come to a
        dimension of size 1, if there is one: there may be several."""
        dims = tuple(self.grown(one) for one in found.values)
        shape = self.network.shape(step.outputs[0])
        places = [place for place, size in enumerate(shape) if size == 1]
        held = [
            (name, dim) for name, dim in zip(found.values, dims, strict=True) if dim is not None
        ]
        alone = all(self.network.shape(name)[dim] == 1 for name, dim in held)
        if not held or not alone or not places:
            return step
        places.sort(key=lambda place: place != held[0][1])
        table = self.unused(f"{step.outputs[0]}.table")
        self.values[table] = self.added[table] = found.table
        kwargs = {"dims": dims, "shape": shape, "dim": places[self.choice(len(places))]}
        return Step(step.title, selected, (*found.values, table), kwargs, step.outputs)

    def choice(self, count: int) -> int:
        """Which of so many ways is tried."""
        self.options.append(count)
        return self.choices.get(len(self.options) - 1, 0)

    def unused(self, name: str) -> Ref:
        """A name that the network does not have."""
        while name in self.network.constants or name in self.network.meta:
            name += "_"
        return Ref(name)


def repeated(*values: Tensor, axis: int, dim: int, like: int) -> Tensor:
    """A concatenation of values, those of one sample repeated for as many as ``like`` has."""
    wide = values[like]
    parts = []
    for value in values:
        sizes = [-1] * value.dim()
        sizes[dim] = wide.shape[dim]
        parts.append(value.expand(sizes))
    return torch.cat(parts, axis)
