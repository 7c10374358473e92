"""Labels: wrong answers of the past, one test a cause."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import boundlab as bl
from tests.helpers.models import perceptron


@pytest.mark.parametrize(
    "dtype",
    [torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.uint32, torch.uint64],
)
def test_labels_of_every_integer_type(dtype: torch.dtype) -> None:
    """Bytes as an index are a mask."""
    x, labels = torch.rand(3, 4), torch.tensor([1, 2, 1])
    net = bl.capture(perceptron(4, 8, 3), x)
    region = bl.Linf(x, 0.1)
    assert torch.equal(net.margins(region, labels.to(dtype)), net.margins(region, labels=labels))
    assert torch.equal(
        bl.robust_cross_entropy(net, region, labels=labels.to(dtype)),
        bl.robust_cross_entropy(net, region, labels),
    )


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        (torch.tensor([True, False, True]), "bool"),
        (torch.tensor([1.0, 0.0, 2.0]), "float32"),
        (F.one_hot(torch.tensor([1, 2, 0])), r"one-hot.*argmax"),
        (torch.tensor([[1], [2], [0]]), r"\(3,\)"),
        (torch.tensor([1, 2]), r"\(3,\)"),
        (torch.tensor([1, 2, 3]), "between 0 and 2"),
        (None, "labels are missing"),
    ],
)
def test_other_labels_are_refused(labels: Tensor | None, words: str) -> None:
    x = torch.rand(3, 4)
    net, region = bl.capture(perceptron(4, 8, 3), x), bl.Linf(x, 0.1)
    with pytest.raises(bl.ArgumentError, match=words):
        net.margins(region, labels)
    with pytest.raises(bl.ArgumentError, match=words):
        bl.robust_cross_entropy(net, region, labels)
