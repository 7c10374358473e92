"""Settings of operators that name dimensions, or give one number for each."""

from __future__ import annotations

from collections.abc import Sequence


def dimensions(given: int | Sequence[int] | None, count: int) -> list[int]:
    """The dimensions that an argument names, of ``count``, as sorted numbers from 0; None and an
    empty list stand for all of them."""
    if count == 0:
        return []
    if isinstance(given, int):
        given = [given]
    return sorted({d % count for d in given or range(count)})


def each(value: int | Sequence[int], dims: int) -> list[int]:
    """One number for each of ``dims`` dimensions; a single one stands for all of them."""
    if isinstance(value, int):
        return [value] * dims
    return list(value) * dims if len(value) == 1 else list(value)
