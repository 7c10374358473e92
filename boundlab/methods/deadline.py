"""A time after which a question is given up.

    with until(time.monotonic() + 5):
        net.bounds(region)          # TimeLimit if it takes longer

Passes look at it at every node, so that it is kept to within one step of one node.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from boundlab.errors import TimeLimit

_LIMIT: ContextVar[float] = ContextVar("deadline", default=math.inf)


@contextmanager
def until(deadline: float) -> Iterator[None]:
    """Within it, questions raise TimeLimit after a time of time.monotonic(); the earliest of
    several counts."""
    token = _LIMIT.set(min(deadline, _LIMIT.get()))
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check_time() -> None:
    """TimeLimit if the time is over."""
    if time.monotonic() > _LIMIT.get():
        raise TimeLimit("the time for this question is over")
