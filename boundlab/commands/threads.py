"""How many threads a network is worth: two that wait for each other are slower than one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import torch
from torch import Tensor

from boundlab.compat.private import pytree
from boundlab.errors import ArgumentError
from boundlab.onnx.checking import Loaded

SAMPLES = 256
"""Inputs that are passed at once at most: about as many subdomains are bounded at once."""
ENOUGH = 0.002
"""Seconds that a pass should take for it to tell something."""
ROUNDS, ROUNDS_SECONDS = 7, 0.1
"""How often a pass is timed, and for how long at most."""
GAIN = 0.75
"""The share of the time of one thread that more must stay below."""


def set_threads(model: Loaded, threads: int | None) -> int:
    """Let torch use so many threads; if it is not said how many, one or all that there are,
    whichever passes this network faster. Returns how many."""
    if threads is None:
        threads = faster_threads(model)
    if threads < 1:
        raise ArgumentError(f"--threads must be at least 1, not {threads}")
    torch.set_num_threads(threads)
    return threads


def faster_threads(model: Loaded) -> int:
    """One thread, or all that torch would take if a forward and backward pass is clearly faster
    with them."""
    most = torch.get_num_threads()
    floating = [one for one in model.inputs if one.dtype.is_floating_point]
    if most == 1 or not floating:
        return 1
    torch.set_num_threads(1)
    samples = 1
    inputs = _inputs(model, samples)
    _pass_seconds(model, inputs)
    while samples < SAMPLES and min(_pass_seconds(model, inputs) for _ in range(2)) < ENOUGH:
        samples *= 4
        inputs = _inputs(model, samples)
    alone = _usual_seconds(model, inputs)
    torch.set_num_threads(most)
    together = _usual_seconds(model, inputs)
    return most if together < GAIN * alone else 1


def _inputs(model: Loaded, samples: int) -> list[Tensor]:
    given = model.example(samples)
    return [x.requires_grad_() if x.is_floating_point() else x for x in given]


def _usual_seconds(model: Loaded, inputs: Sequence[Tensor]) -> float:
    """The median of some passes after one that does not count."""
    _pass_seconds(model, inputs)
    found: list[float] = []
    while len(found) < ROUNDS and sum(found) < ROUNDS_SECONDS:
        found.append(_pass_seconds(model, inputs))
    return statistics.median(found)


def _pass_seconds(model: Loaded, inputs: Sequence[Tensor]) -> float:
    start = time.perf_counter()
    leaves = pytree.tree_leaves(model(*inputs))
    total = sum(leaf.sum() for leaf in leaves if leaf.requires_grad)
    if isinstance(total, Tensor):
        moved = [x for x in inputs if x.requires_grad]
        torch.autograd.grad(total, moved, allow_unused=True)
    return time.perf_counter() - start
