"""``--memory``: how much memory this process may take."""

from __future__ import annotations

import torch

from boundlab.errors import ArgumentError
from boundlab.methods.memory import in_bytes


def limit_memory(size: str | None) -> None:
    """Let this process take so much memory of its own, such as "4 GiB", and no more: what needs
    more fails."""
    if size is None:
        return
    limit = in_bytes(size, torch.device("cpu"))
    try:
        import resource
    except ImportError:
        raise ArgumentError("--memory needs a system that can limit it, such as Linux") from None
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    except (ValueError, OSError) as error:
        raise ArgumentError(f"--memory {size}: the system refuses: {error}") from None
