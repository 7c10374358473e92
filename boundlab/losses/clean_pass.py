"""The clean pass of a training step, shared with the bounds.

A batch norm in train mode takes its statistics from the clean batch, in the bound pass too. The
model's own forward pass computes what these are taken from and updates the running statistics,
once; :class:`CleanPass` notes it, with its gradient, so that the bound pass need not compute it
again.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from boundlab.errors import ArgumentError
from boundlab.net import Net
from boundlab.rules.registry import clean


class CleanPass:
    """``with CleanPass(net) as seen: logits = model(x)``, then ``robust_cross_entropy(...,
    clean=seen)``."""

    def __init__(self, net: Net) -> None:
        if not isinstance(net.source, nn.Module):
            raise ArgumentError(
                "a clean pass can be noted of a captured module, not of an exported program"
            )
        self.values: dict[str, Tensor] | None = None
        """node -> its value for the clean input; None if a module is called more than once, so that
        it is not plain which is which."""
        self._net = net
        self._source = net.source
        self._nodes: dict[str, list[str]] = {}
        for node in net.graph.nodes.values():
            if node.op is clean:
                self._nodes.setdefault(node.origin.module, []).append(node.inputs[0])
        self._plain = all(len(names) == 1 for names in self._nodes.values())
        self._handles: list[RemovableHandle] = []

    def __enter__(self) -> CleanPass:
        if self._plain:
            self.values = {}
            for path, (name,) in self._nodes.items():
                module = self._source.get_submodule(path)
                self._handles.append(module.register_forward_pre_hook(self._note(name)))
        return self

    def _note(self, name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        """A hook that notes what a module is given as the value of a node."""

        def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            assert self.values is not None
            self.values[name] = inputs[0]

        return hook

    def of(self, net: Net) -> dict[str, Tensor]:
        """What was seen, for a net of the same module; nothing if it has another graph (for its
        batch size), which then computes it."""
        if net is not self._net or self.values is None:
            return {}
        return self.values

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
