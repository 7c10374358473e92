"""What models return, in structures that every front end knows: tuples, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor, nn

from boundlab.compat.private import pytree
from boundlab.errors import CaptureError

PLAIN = (
    Tensor, bool, int, float, complex, str, type(None),
    torch.SymBool, torch.SymInt, torch.SymFloat,
)  # fmt: skip
"""What may stand in a structure of outputs."""


def plain(outputs: object) -> object:
    """The outputs with dataclasses as dictionaries by field, and sizes as tuples. Classes that are
    registered with pytree stay what they are. CaptureError for objects of other classes."""
    return pytree.tree_map(_plain, outputs, is_leaf=lambda leaf: isinstance(leaf, torch.Size))


def _plain(leaf: object) -> object:
    if isinstance(leaf, torch.Size):
        return tuple(leaf)
    if is_dataclass(leaf):
        return {field.name: plain(getattr(leaf, field.name)) for field in fields(leaf)}
    if not isinstance(leaf, PLAIN):
        raise CaptureError(
            f"the model returns an object of the class {type(leaf).__name__}, whose tensors "
            "cannot be found: wrap the model in a function that returns the tensors themselves, "
            "or a tuple, list, dict or dataclass of them"
        )
    return leaf


@contextmanager
def returning_plain(model: nn.Module) -> Iterator[None]:
    """Within this context the model returns plain outputs."""
    handle = model.register_forward_hook(lambda module, inputs, outputs: plain(outputs))
    try:
        yield
    finally:
        handle.remove()
