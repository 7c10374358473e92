"""Where the batch is in every node, and operators that mix samples."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundlab as bl
from tests.helpers.contract import METHODS, assert_close, check_point, check_sound, steps
from tests.networks import NETWORKS, perceptron


@pytest.mark.parametrize("example", [1, 2, 3, 4])
def test_free_batch_size(example: int) -> None:
    model = perceptron()
    net = bl.capture(model, torch.rand(example, 3))
    x = torch.rand(6, 3)
    whole = net.bounds(bl.Linf(x, 0.1))
    for batch in (1, 2, 5):
        part = net.bounds(bl.Linf(x[:batch], 0.1))
        assert_close(part.lower, whole.lower[:batch])
        assert_close(part.upper, whole.upper[:batch])
    assert net.bounds(bl.Linf(x[:0], 0.1)).lower.shape == (0, 2)


def test_batch_size_that_equals_another_dimension() -> None:
    """Neither the example nor a later batch may be taken for features, heads or time of the same
    size."""
    case = NETWORKS["attention-by-hand"]
    model = case.model()
    reference = bl.capture(model, *case.inputs(2)).bounds(bl.Linf(case.inputs(5)[0], case.eps))
    for example in (3, 4):
        net = bl.capture(model, *case.inputs(example))
        bounds = net.bounds(bl.Linf(case.inputs(5)[0], case.eps))
        assert_close(bounds.lower, reference.lower)


class First(nn.Module):
    """The first of a module's outputs."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)[0]


class Centred(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x - x.mean(0)) @ x.T


UNBATCHED: dict[
    str, tuple[Callable[[], Callable[[Tensor], Tensor]], tuple[int, ...], bool | None]
] = {
    "features": (perceptron, (3,), None),
    "features, said": (perceptron, (3,), False),
    "image": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3), nn.ReLU(), nn.MaxPool2d(2)),
        (2, 6, 6),
        None,
    ),
    "image, said": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh()),
        (2, 4, 4),
        False,
    ),
    "sequence, said": (lambda: NETWORKS["graph"].model(), (4, 3), False),
    "sequence of an lstm": (lambda: First(nn.LSTM(3, 2)), (2, 3), None),
    "time first": (lambda: First(nn.GRU(3, 2)), (2, 2, 3), False),
    "mixing samples, said": (lambda: Centred(), (4, 3), False),
}


@pytest.mark.parametrize("name", UNBATCHED)
def test_unbatched_inputs(name: str) -> None:
    build, shape, batched = UNBATCHED[name]
    model, x = build(), torch.rand(shape)
    net = bl.capture(model, x, batched=batched)
    assert not net.graph.batched
    check_sound(model, (bl.Linf(x, 0.05),), net=net, count=4)
    check_sound(model, (bl.L2(x, 0.1),), net=net, count=4)
    size = model(x).numel()
    spec = net.bounds(bl.Linf(x, 0.05), spec=torch.eye(size)[:2])
    plain = net.bounds(bl.Linf(x, 0.05))
    assert spec.lower.shape == (2,)
    assert_close(spec.lower, plain.lower.flatten()[:2])


def test_margins_without_a_batch() -> None:
    model, x = perceptron(outputs=4), torch.rand(3)
    alone = bl.capture(model, x).margins(bl.Linf(x, 0.1), torch.tensor(2))
    batch = bl.capture(model, x[None]).margins(bl.Linf(x[None], 0.1), torch.tensor([2]))
    assert_close(alone, batch[0])


class Fixed(nn.Module):
    """A batch size written into the code."""

    def __init__(self) -> None:
        super().__init__()
        self.body = perceptron(6)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.view(4, -1))


def test_fixed_batch_size(caplog: pytest.LogCaptureFixture) -> None:
    model, x = Fixed(), torch.rand(4, 2, 3)
    with caplog.at_level(logging.WARNING, logger="boundlab"):
        net = bl.capture(model, x)
    assert any(
        "batch" in record.getMessage() and "4" in record.getMessage()
        for record in caplog.records
        if record.name == "boundlab"
    )
    assert "free batch" not in repr(net)
    free = bl.capture(lambda x: model.body(x.flatten(1)), x)
    for method in METHODS:
        bounds, reference = (
            n.bounds(bl.Linf(x, 0.1), method=method, alpha=steps(method)) for n in (net, free)
        )
        assert_close(bounds.lower, reference.lower)
        assert_close(bounds.upper, reference.upper)
    per_sample = net.bounds(bl.Linf(x, torch.tensor([0.0, 0.1, 0.2, 0.3])))
    assert_close(per_sample.lower[0], model(x)[0])
    assert net.margins(bl.Linf(x, 0.1), torch.tensor([0, 1, 0, 1])).shape == (4, 1)
    with pytest.raises(bl.ArgumentError, match="shape"):
        net.bounds(bl.Linf(torch.rand(3, 2, 3), 0.1))


class TimeFirst(nn.Module):
    """Batch in dimension 1 inside, and in the output."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.fc = nn.MultiheadAttention(4, 2), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        return self.fc(self.attention(x, x, x, need_weights=False)[0])


class MergedOutput(nn.Module):
    """Samples and time merged in dimension 0 of the output."""

    def __init__(self) -> None:
        super().__init__()
        self.body = perceptron()

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x.flatten(0, 1))


@pytest.mark.parametrize(("build", "dim"), [(TimeFirst, 1), (MergedOutput, 0)])
def test_batch_elsewhere_than_in_dimension_0(build: Callable[[], nn.Module], dim: int) -> None:
    model = build()
    x = torch.rand(3, 2, 4 if build is TimeFirst else 3)
    net = bl.capture(model, x)
    check_sound(model, (bl.Linf(x, 0.05),), net=net, count=4)
    whole, alone = net.bounds(bl.Linf(x, 0.05)), net.bounds(bl.Linf(x[1:2], 0.05))
    assert_close(
        whole.lower.select(1, 1) if dim else whole.lower[2:4],
        alone.lower.select(1, 0) if dim else alone.lower,
    )
    spec = net.bounds(bl.Linf(x, 0.05), spec=torch.eye(6 if dim else 4)[:2])
    flat = whole.lower.transpose(0, 1).flatten(1) if dim else whole.lower.reshape(3, -1)
    assert_close(spec.lower, flat[:, :2])


def test_integer_inputs_that_are_all_alike() -> None:
    """The example says nothing of where the samples lie: the shapes do."""

    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.fc = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, t: Tensor) -> Tensor:
            h = torch.relu(self.embed(t)).reshape(-1, 4)
            return self.fc(h).reshape(t.shape[0], -1)

    model, other = Tokens(), torch.tensor([[1, 2, 3], [4, 0, 2]])
    net = bl.capture(model, torch.zeros(2, 3, dtype=torch.long))
    bounds = net.bounds(other, perturb={"fc.weight": bl.Linf(eps=0.0)})
    assert_close(bounds.lower, model(other))


def test_elements_that_nothing_changes() -> None:
    """Dead units hide where the samples lie; that is no reason to refuse the model."""
    model = Dead()
    x = torch.rand(4, 3)
    check_point(model, x)
    check_sound(model, (bl.Linf(x, 0.1),), count=4)


class Dead(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x - 1000).reshape(-1, 1).exp().reshape(x.shape[0], -1) + x


MIXING: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "mean": (lambda x: x.mean(0), "mean"),
    "centred": (lambda x: x - x.mean(0), "mean"),
    "sum": (lambda x: x.sum(), "sum"),
    "norm": (lambda x: x / x.norm(), "sum"),
    "softmax": (lambda x: x.softmax(dim=0), "softmax"),
    "flip": (lambda x: x.flip(0), "flip"),
    "roll": (lambda x: x.roll(1, 0), "roll"),
    "cumsum": (lambda x: x.cumsum(0), "cumsum"),
    "gram matrix": (lambda x: x @ x.T, "matmul|mm"),
    "first sample": (lambda x: x - x[0], "select"),
    "first samples": (lambda x: x - x[:1], "slice"),
    "neighbours": (lambda x: x[1:] - x[:-1], "slice"),
    "largest": (lambda x: x / x.max(), "amax|max"),
    "sorted": (lambda x: x.sort(dim=0).values, "sort"),
    "behind a dead unit": (lambda x: x + torch.relu(x.mean(0) - 1000), "mean"),
    "an event that no sample shows": (lambda x: torch.where((x > 1000).any(0), x, -x), "any"),
    "reordered": (lambda x: x[torch.tensor([1, 0, 3, 2])], "index"),
    "swapped with the features": (
        lambda x: F.linear(x.T, torch.ones(2, x.shape[0])).T,
        "linear|matmul|mm",
    ),
}


@pytest.mark.parametrize("name", MIXING)
def test_operators_that_mix_samples_are_refused_by_name(name: str) -> None:
    f, operator = MIXING[name]
    with pytest.raises(bl.MixedSamples, match=operator):
        bl.capture(f, torch.rand(4, 3))


def test_the_refusal_names_the_line_of_the_user() -> None:
    class Mixing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0)  # the line

    with pytest.raises(bl.MixedSamples, match=r"test_layouts\.py:\d+: return x - x\.mean\(0\)"):
        bl.capture(Mixing(), torch.rand(4, 3))


def test_sorting_all_samples_together_is_refused_with_what_to_do() -> None:
    """As experts of a mixture do that sort the tokens of a batch by the expert they go to."""
    x = torch.randn(3, 4)
    with pytest.raises(bl.MixedSamples, match="token by token"):
        bl.capture(lambda x: torch.sort(x, 0).values, x)
