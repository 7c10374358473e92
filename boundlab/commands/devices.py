"""``--device`` and ``--threads``: where commands compute."""

from __future__ import annotations

import torch

from boundlab.errors import ArgumentError


def device_named(name: str | None) -> torch.device:
    """The device, if it can be used here."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).strip().split("\n")[0]
        raise ArgumentError(
            f"the device {name!r} cannot be used here ({first}); --device cpu always works"
        ) from None
    return device


def set_threads(count: int | None) -> None:
    """Compute with as many threads as were asked for."""
    if count is not None:
        if count < 1:
            raise ArgumentError(f"--threads must be at least 1, not {count}")
        torch.set_num_threads(count)
