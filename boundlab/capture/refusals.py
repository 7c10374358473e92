"""Models that cannot be read, known before anyone tries: each is refused in a sentence that says
what to do."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from boundlab.compat.private import is_traced
from boundlab.errors import CaptureError

Refusal = str
"""What is wrong, and what to do."""

TENSORS: tuple[tuple[Callable[[Tensor], bool], Refusal], ...] = (
    (is_lazy, "has no shape yet: run the model once on an example (model(x)) before capturing it"),
    (
        lambda tensor: tensor.is_meta,
        "lies on the device 'meta', which holds no values: give the model memory "
        "(model.to_empty(device='cpu')) and load its weights before capturing it",
    ),
    (
        lambda tensor: tensor.is_inference() and tensor.requires_grad,
        "was made in inference mode, where torch.export cannot read it: build or load the model "
        "outside of torch.inference_mode()",
    ),
)
"""Whether a parameter or buffer cannot be read; the first that holds is told."""

PARTS: tuple[tuple[Callable[[nn.Module], bool], Refusal], ...] = (
    (
        lambda part: isinstance(part, torch.jit.ScriptModule) and not is_traced(part),
        "is a torch.jit.script, which torch.export does not read: capture the original module, "
        "with its weights (original.load_state_dict(scripted.state_dict()))",
    ),
    (
        lambda part: ".quantized." in f"{type(part).__module__}.",
        "is quantised, and its integer kernels have no rules: capture the model before it is "
        "quantised",
    ),
)
"""The same of a module."""


def refuse_unreadable(model: nn.Module) -> None:
    """CaptureError for a model with parts or tensors that cannot be read."""
    for path, part in model.named_modules():
        for is_so, words in PARTS:
            if is_so(part):
                raise CaptureError(f"{_part(path)} {words}")
    for path, tensor in (*model.named_parameters(), *model.named_buffers()):
        for is_wrong, words in TENSORS:
            if is_wrong(tensor):
                raise CaptureError(f"'{path}' {words}")


def _part(path: str) -> str:
    return f"the part '{path}' of the model" if path else "the model"
