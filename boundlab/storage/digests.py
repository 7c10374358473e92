"""Digests of what a file belongs to: they tell accidents (a mixed up, cut or edited file), not
malice."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import torch
from torch import Tensor


def digest(parts: Iterable[Tensor | str]) -> str:
    """32 hexadecimal digits that change with every text and with the type, shape and values of
    every tensor."""
    found = hashlib.sha256()
    for part in parts:
        if isinstance(part, str):
            found.update(part.encode())
            continue
        tensor = part.detach().cpu().contiguous()
        found.update(f"{tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            found.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:32]
