"""How many coefficient rows may be held at once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

from boundlab.coefficients.coefficients import Coefficients
from boundlab.errors import ArgumentError, MemoryLimit
from boundlab.methods.analysis import Analysis

SPEED = 1 << 21
"""Coefficients of a node beyond which more rows at once are not faster: they only leave the
cache."""
COPIES = 8
"""How many tensors of the size of the rows a backward step keeps alive."""
BLOCK = (1 << 25) - (1 << 16)
"""The largest block, in bytes, that raises the limits of glibc's allocator."""
HARMLESS = 1 << 26
"""What autograd may keep, in bytes, whatever the budget is."""
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


@cache
def reuse_freed_blocks() -> None:
    """Let the allocator of the C library keep what coefficients free, instead of giving it back to
    the system and taking it page by page again: glibc raises its limits for that to the largest
    block freed so far, 32 MiB at most. The block is never touched, so it costs nothing; other
    allocators do not mind."""
    torch.empty(BLOCK, dtype=torch.uint8)


def in_bytes(memory: int | str | None, device: torch.device) -> int:
    """A budget in bytes: a number, a text such as "2 GiB", or None for half of what is free."""
    reuse_freed_blocks()
    if memory is None:
        return free_memory(device) // 2
    found = memory
    if isinstance(memory, str):
        number, unit = memory.strip()[:-3].strip(), memory.strip()[-3:]
        try:
            found = int(float(number) * UNITS[unit])
        except (KeyError, ValueError):
            raise ArgumentError(
                'memory must be a number of bytes or a text such as "2 GiB" (KiB, MiB, GiB), '
                f"not {memory!r}"
            ) from None
    if isinstance(found, bool) or not isinstance(found, int) or found <= 0:
        raise ArgumentError(
            f'memory must be a positive number of bytes or a text such as "2 GiB", not {memory!r}'
        )
    return found


def free_memory(device: torch.device) -> int:
    """What is free on a device: what its allocator keeps from earlier tensors is free for new
    ones."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free) + kept
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not known on this system
        return 4 << 30


class KeptForGradients(MemoryLimit):
    """What autograd keeps exceeds the budget: smaller parts would not help."""


CURE = (
    "Ask under torch.no_grad() if the bounds need no gradient: then coefficients are "
    "worked on in parts that fit."
)


@contextmanager
def running_out() -> Iterator[None]:
    """Memory that ran out as a MemoryLimit that says what helps."""
    try:
        yield
    except RuntimeError as error:
        if isinstance(error, MemoryLimit) or not _ran_out(error):
            raise
        cure = "Give less memory=..., or a smaller batch."
        if torch.is_grad_enabled():
            cure = CURE
        raise KeptForGradients(f"memory ran out: {str(error).splitlines()[0]}. {cure}") from error


def keep(analysis: Analysis, rows: Iterable[Coefficients]) -> None:
    """Count the coefficients that autograd keeps for the backward pass, and refuse more of them
    than the budget allows."""
    tensors = [tensor for part in rows for tensor in part.stored if tensor.requires_grad]
    analysis.kept += sum(tensor.numel() * tensor.dtype.itemsize for tensor in tensors)
    if analysis.kept > max(analysis.memory, HARMLESS):
        raise KeptForGradients(
            f"for gradients of the bounds {in_words(analysis.kept)} and more would have to be "
            f"kept; the budget is {in_words(analysis.memory)}. {CURE}"
        )


def _ran_out(error: RuntimeError) -> bool:
    return (
        isinstance(error, torch.OutOfMemoryError)
        or "can't allocate memory" in str(error)
        or "not enough memory" in str(error)
    )


def in_words(size: float) -> str:
    """A number of bytes with a unit."""
    for unit in reversed(UNITS):
        if size >= UNITS[unit]:
            return f"{size / UNITS[unit]:.3g} {unit}"
    return f"{size:.0f} bytes"


def coefficients(analysis: Analysis) -> int:
    """How many coefficients of one node may be held at once."""
    return min(SPEED, _fitting(analysis))


def _fitting(analysis: Analysis) -> int:
    """How many coefficients of one node fit the budget, in the largest dtype of a source."""
    sources = [analysis.interval(name) for name in analysis.regions]
    itemsize = max((source.dtype.itemsize for source in sources), default=4)
    return analysis.memory // (COPIES * itemsize)


def rows_from_now_on(
    analysis: Analysis, target: str, rows: int, peak: int, widest: int | None
) -> int:
    """How many rows of ``target`` may be held at once, from what some have taken: windows take less
    than dense rows.

    peak: the most coefficients of one node that all these rows took together, many having dropped
    out before. widest: the most that one of them took; None if none came all the way, so that
    others may take as much as a dense one.
    """
    if widest is None:
        widest = max(analysis.interval(name).shape.numel() for name in analysis.plan.behind(target))
    return min(SPEED * rows // max(1, peak), _fitting(analysis) // max(1, widest))


def rows_at_once(analysis: Analysis, target: str, count: int | None = None) -> int:
    """How many dense rows of ``target`` fit the budget at its largest ancestor; an error if not
    even one does. count: of how many, which are then taken in parts of about one size, somewhat
    larger ones than else if that spares a part."""
    sizes = {name: analysis.interval(name).shape.numel() for name in analysis.plan.behind(target)}
    largest = max(sizes, key=sizes.__getitem__)
    size = sizes[largest]
    fit = coefficients(analysis) // max(1, size)
    most = _fitting(analysis) // max(1, size)
    if count and most:
        parts = max(1, round(count * size / SPEED), -(-count // most))
        fit = -(-count // parts)
    needed = COPIES * size * analysis.interval(largest).dtype.itemsize
    if not fit and analysis.memory < needed:
        raise MemoryLimit(
            f"{analysis.graph.nodes[largest]}: one row of coefficients for it takes about "
            f"{in_words(needed)} in use, and the budget is {in_words(analysis.memory)}. Give more "
            "memory=..., or a smaller batch."
        )
    return max(1, fit)
