"""Whether a captured graph computes what the model does: on the example, and while the module stays
as it was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.compiler import set_stance

from boundlab.capture.outputs import plain
from boundlab.compat.private import own_buffers, own_parameters, pytree
from boundlab.errors import ArgumentError, CaptureError

TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-3, torch.float16: 5e-2, torch.bfloat16: 2e-1}
"""How far values may be apart, relative to the largest one: the graph computes in another order."""


def compare(
    model: Callable[..., object],
    graph: Callable[..., object],
    args: tuple[object, ...],
    kwargs: dict[str, object],
) -> None:
    """Refuse a graph that gives something else than the model for the example; the model's buffers
    stay as they are."""
    with torch.no_grad():
        found = graph(*args, **kwargs)
    expected = plain(run_itself(model, args, kwargs))  # last: it may write into its inputs
    have, have_tree = pytree.tree_flatten(found)
    want, want_tree = pytree.tree_flatten(expected)
    if have_tree != want_tree:
        raise CaptureError(
            f"the captured graph returns {have_tree}, the model {want_tree}: torch.export has lost "
            "a part of the model"
        )
    for number, (a, b) in enumerate(zip(have, want, strict=True)):
        difference = _difference(a, b)
        if difference:
            raise CaptureError(
                "the captured graph does not give what the model gives for the example (output "
                f"{number}: {difference}). The model may depend on something that torch.export "
                "does not see: a random number, a global variable, its own derivative."
            )


def run_itself(
    model: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object]
) -> object:
    """What the model gives for the example; its buffers stay as they are. CaptureError if it
    fails."""
    modules = [model] if isinstance(model, nn.Module) else []
    # what torch.compile has wrapped computes the same uncompiled, in a fraction of the time
    with _restored(modules), gradients_if_possible(modules), set_stance("force_eager"):
        try:
            return model(*args, **kwargs)
        except Exception as error:  # whatever the model raises
            text = str(error).strip().split("\n")[0]
            raise CaptureError(
                f"the model itself fails on the example: {type(error).__name__}: {text}"
            ) from error


def _difference(found: object, expected: object) -> str:
    """What is not the same in two results, in words; empty if nothing is."""
    if not isinstance(expected, Tensor) or not isinstance(found, Tensor):
        same = type(found) is type(expected) and found == expected
    else:
        same = found.shape == expected.shape and found.dtype == expected.dtype
    if not same:
        return f"{_described(found)} instead of {_described(expected)}"
    if isinstance(expected, Tensor) and isinstance(found, Tensor):
        return _difference_of_values(found.detach(), expected.detach().to(found.device))
    return ""


def _difference_of_values(found: Tensor, expected: Tensor) -> str:
    """The same for tensors of one shape, dtype and device."""
    if not expected.is_floating_point():
        count = int((found != expected).sum())
        return f"{count} of {expected.numel()} entries differ" if count else ""
    if not expected.numel():
        return ""
    both_nan = torch.isnan(found) & torch.isnan(expected)
    same = (found == expected) | both_nan
    apart = torch.where(same, 0, (found - expected).abs()).nan_to_num(nan=torch.inf)
    worst = float(apart.max())
    largest = float(torch.where(torch.isfinite(expected), expected.abs(), 0).max())
    if worst <= TOLERANCE.get(expected.dtype, 1e-3) * (1 + largest):
        return ""
    return f"values up to {worst:.3g} apart"


def _described(value: object) -> str:
    if isinstance(value, Tensor):
        return f"{value.dtype} {tuple(value.shape)}"
    return repr(value)


def gradients_if_possible(modules: list[nn.Module]) -> AbstractContextManager[None]:
    """Tensors that were made in inference mode take part in no gradient."""
    tensors = [t for module in modules for t in (*module.parameters(), *module.buffers())]
    if any(tensor.is_inference() for tensor in tensors):
        return torch.no_grad()
    return nullcontext()


@contextmanager
def _restored(modules: list[nn.Module]) -> Iterator[None]:
    """Undo what a forward pass does to buffers (running statistics)."""
    buffers = [buffer for module in modules for buffer in module.buffers()]
    before = [buffer.detach().clone() for buffer in buffers]
    try:
        yield
    finally:
        for buffer, value in zip(buffers, before, strict=True):
            with torch.inference_mode(buffer.is_inference()), torch.no_grad():
                buffer.copy_(value)


@dataclass(frozen=True, eq=False)
class Snapshot:
    """What of a module a graph rests on beside the values of its parameters: its parts, their plain
    settings (``bn.eps``), whether they are in train mode, and the shapes of parameters and
    buffers."""

    parts: Mapping[str, nn.Module]
    settings: Mapping[str, Mapping[str, object]]
    modes: Mapping[str, bool]
    shapes: Mapping[str, tuple[torch.Size, torch.dtype]]

    @staticmethod
    def of(module: nn.Module) -> Snapshot:
        parts = dict(module.named_modules())
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        return Snapshot(
            parts,
            {path: _settings(part) for path, part in parts.items()},
            {path: part.training for path, part in parts.items()},
            {path: (tensor.shape, tensor.dtype) for path, tensor in tensors.items()},
        )

    def holds(self, module: nn.Module) -> bool:
        """Whether nothing has changed; the question that every call asks, so it takes no
        snapshot."""
        count = 0
        for path, part in cast("Iterator[tuple[str, nn.Module]]", module.named_modules()):
            count += 1
            if not self._holds_of_part(path, part):
                return False
        return count == len(self.parts)

    def _holds_of_part(self, path: str, part: nn.Module) -> bool:
        if part is not self.parts.get(path) or part.training != self.modes[path]:
            return False
        if _settings(part) != self.settings[path]:
            return False
        for name, tensor in (*own_parameters(part).items(), *own_buffers(part).items()):
            known = self.shapes.get(f"{path}.{name}" if path else name)
            if tensor is not None and known is not None and known[0] != tensor.shape:
                return False
        return True

    def check(self, now: Snapshot) -> None:
        """Refuse a module of which something else than the mode has changed."""
        comparisons: list[tuple[str, Mapping[str, object], Mapping[str, object]]] = [
            ("its part", _identities(self.parts), _identities(now.parts)),
            ("the settings of", self.settings, now.settings),
            ("the shape of", self.shapes, now.shapes),
        ]
        for what, before, after in comparisons:
            changed = [path for path in {**before, **after} if before.get(path) != after.get(path)]
            if changed:
                raise ArgumentError(
                    f"the module was changed after it was captured ({what} '{changed[0]}'): "
                    "capture it again"
                )


def _identities(parts: Mapping[str, nn.Module]) -> dict[str, int]:
    return {path: id(part) for path, part in parts.items()}


def _settings(part: nn.Module) -> dict[str, object]:
    """The plain attributes of torch's own layers, which forward passes never change; those of other
    modules may be counters."""
    if not type(part).__module__.startswith("torch.nn."):
        return {}
    plain = (bool, int, float, str, tuple, type(None))
    return {
        name: value
        for name, value in vars(part).items()
        if isinstance(value, plain) and name != "training"
    }
