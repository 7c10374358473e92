"""How often a model is traced when it is captured: that is what capturing takes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import boundlab as bl
from boundlab.capture import decompose, torch_export


class Calls:
    """How often functions of modules are called while they are watched."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.exports = self.decompositions = 0
        export, taken_apart = torch_export._export, decompose._taken_apart

        def count_exports(*args, **kwargs):
            self.exports += 1
            return export(*args, **kwargs)

        def count_decompositions(*args, **kwargs):
            self.decompositions += 1
            return taken_apart(*args, **kwargs)

        monkeypatch.setattr(torch_export, "_export", count_exports)
        monkeypatch.setattr(decompose, "_taken_apart", count_decompositions)


def of_one_sample_otherwise(x: Tensor) -> Tensor:
    """Another way for one sample, which computes the same; some language models have such."""
    if x.shape[0] == 1:
        return torch.relu(x) + 0
    return torch.relu(x) + 0


def test_a_batch_size_that_the_first_graph_does_not_serve_is_traced_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It was traced three times: to compare, with a free size again, and alone."""
    x, calls = torch.randn(1, 3), Calls(monkeypatch)
    net = bl.capture(of_one_sample_otherwise, x)
    assert calls.exports == 2
    for size in (1, 4):
        y = torch.randn(size, 3)
        found = net.bounds(bl.Linf(y, 0.1))
        assert (found.lower <= torch.relu(y)).all() and (torch.relu(y) <= found.upper).all()
    assert calls.exports == 2


def test_one_sample_that_is_computed_otherwise_has_a_graph_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = lambda x: torch.relu(x) if x.shape[0] == 1 else torch.tanh(x)
    x, calls = torch.randn(1, 3), Calls(monkeypatch)
    net = bl.capture(model, x)
    assert calls.exports == 2
    for size in (1, 4):
        y = torch.randn(size, 3)
        torch.testing.assert_close(net(y), model(y))


def test_tensors_made_of_sizes_alone_need_no_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    """An arange of the batch size was taken apart for nothing, by tracing the model again."""
    calls = Calls(monkeypatch)
    net = bl.capture(lambda x: x + torch.arange(x.shape[0])[:, None], torch.randn(3, 2))
    assert calls.decompositions == 1
    torch.testing.assert_close(net(torch.zeros(2, 2)), torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
