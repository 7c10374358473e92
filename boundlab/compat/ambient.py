"""What is set around a call and must not change its answer: autocast, inference mode, the default
device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

AUTOCAST = ("cpu", "cuda")
"""The kinds of devices whose autocast is looked at."""


@contextmanager
def undisturbed(of_model: bool = False) -> Iterator[None]:
    """Compute in the precision of the tensors, whatever autocast says, and with tensors that
    gradients may pass through, whatever inference mode says; results then carry no gradient, as the
    caller expects. of_model: run the user's code, which may rely on the default device; ours does
    not."""
    with ExitStack() as stack:
        for kind in AUTOCAST:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        # torch.get_default_device() of torch 2.6 does not know of ``with torch.device(...)``
        if not of_model and torch.empty(0).device.type != "cpu":
            stack.enter_context(torch.device("cpu"))
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
            stack.enter_context(torch.no_grad())
        yield


def usable(value: Any) -> Any:
    """A tensor that was made in inference mode as one that gradients may pass through; anything
    else as it is."""
    if isinstance(value, Tensor) and value.is_inference():
        return value.clone()
    return value
