"""Whether what a test replaces is really used: a constant that has moved leaves a test that can no
longer fail."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from torch.utils._python_dispatch import TorchDispatchMode


def watch(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[Any]:
    """What ``owner.name`` returns, call by call, from now on; it must exist, and be looked up
    there."""
    original: Callable[..., Any] = getattr(owner, name)
    results: list[Any] = []

    def watched(*args: Any, **kwargs: Any) -> Any:
        results.append(original(*args, **kwargs))
        return results[-1]

    monkeypatch.setattr(owner, name, watched)
    return results


class Operators(TorchDispatchMode):
    """Counts the operators that are called, by name: ``operators.counts["aten.scatter_.src"]``."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        self.counts[str(func)] += 1
        return func(*args, **(kwargs or {}))
