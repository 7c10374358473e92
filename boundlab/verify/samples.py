"""The method ``complete`` of ``boundlab certify`` and ``boundlab evaluate``: samples with labels,
verified one by one, each for a limited time."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from boundlab.arithmetic.arithmetic import find_arithmetic
from boundlab.attacks.targets import Model
from boundlab.defaults import COMPLETE as COMPLETE
from boundlab.defaults import TIMEOUT
from boundlab.errors import ArgumentError
from boundlab.net import Net
from boundlab.regions import Region
from boundlab.regions.base import with_tensors
from boundlab.specs.property import robust
from boundlab.verify.copies import copied
from boundlab.verify.portfolio import Portfolio, as_module
from boundlab.verify.verdict import Verdict


def time_limit(timeout: float | None, methods: Sequence[str]) -> float | None:
    """The seconds for a sample, 60 if nothing is said; None if the methods do not verify."""
    if COMPLETE not in methods:
        if timeout is not None:
            raise ArgumentError(
                f"timeout is the time of the method {COMPLETE!r} for a sample, which is not among "
                "the methods: add it, or leave timeout out"
            )
        return None
    if timeout is None:
        return TIMEOUT
    if not 0 < timeout < math.inf:
        raise ArgumentError(f"timeout must be a positive number of seconds, not {timeout:g}")
    return float(timeout)


class SampleVerifier:
    """Verifies single samples of a classifier, each for so many seconds; on the CPU, wherever the
    classifier is. arithmetic: that proofs must hold for."""

    def __init__(self, model: Model, timeout: float, arithmetic: str | None = None) -> None:
        self.arithmetic = find_arithmetic(arithmetic)
        if isinstance(model, Net):
            _check_batch(model)
        self.model = _on_cpu(as_module(model))
        self.timeout = timeout

    def verify(self, region: Region, label: int) -> Verdict:
        """Whether output ``label`` is larger than all others on a region of one sample, (1,
        *shape), as :func:`boundlab.verify` says it; but an interruption goes on as
        KeyboardInterrupt: what was interrupted is not decided."""
        prop = robust(with_tensors(region, Tensor.cpu), label=label)
        search = Portfolio(self.model, prop, time.monotonic() + self.timeout, self.arithmetic)
        search.run()
        return search.verdict()


def _check_batch(net: Net) -> None:
    """An error if a net cannot be asked about one sample alone."""
    if not net.graph.examples[net.graph.inputs[0]][2]:
        raise ArgumentError(
            f"the method {COMPLETE!r} verifies one sample at a time, and this model has a fixed "
            "batch size: export it with a free one"
        )
    if isinstance(net.source, nn.Module) and net.source.training:
        raise ArgumentError(
            f"the method {COMPLETE!r} verifies models in eval mode, and this one is in train mode: "
            "call eval() first"
        )


def _on_cpu(model: nn.Module) -> nn.Module:
    """The model, or a copy of it if it lies elsewhere."""
    held = [*model.parameters(), *model.buffers()]
    if all(one.device == torch.device("cpu") for one in held):
        return model
    return copied(model).cpu()
