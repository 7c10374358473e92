"""Captured graphs: wrong answers of the past, one test a cause."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundlab as bl
from boundlab.capture.faithful import compare
from tests.helpers.models import perceptron

# -- samples that meet -----------------------------------------------------------------------------


class FixedPair(nn.Module):
    """Of six samples the fifth reads the fourth."""

    def forward(self, x: Tensor) -> Tensor:
        mix = torch.eye(6)
        mix[4, 3] = 1.0
        return mix @ x.reshape(6, -1)


MIXES: dict[str, tuple[Callable[..., Tensor], tuple[Tensor, ...]]] = {
    "behind a ReLU that noise does not open": (
        lambda x: x + F.relu(x - 1e3).flip(0),
        (torch.rand(4, 3),),
    ),
    "behind a clamp": (lambda x: x + x.clamp(min=1e4).mean(0), (torch.rand(4, 3),)),
    "behind a comparison": (
        lambda x: x + torch.where(x > 1e5, 1.0, 0.0).sum(0),
        (torch.rand(4, 3),),
    ),
    "behind a mask that is all False": (
        lambda x, m: torch.where(m, x.flip(0), x),
        (torch.rand(4, 3), torch.zeros(4, 3, dtype=torch.bool)),
    ),
    "times an integer that is 0": (
        lambda x, k: x + k * x.roll(1, 0),
        (torch.rand(4, 3), torch.zeros(4, 1, dtype=torch.long)),
    ),
    "three samples further": (lambda x: x + x.roll(3, 0), (torch.rand(6, 3),)),
    "one pair of a fixed batch": (FixedPair(), (torch.rand(6, 3),)),
    "through an index": (lambda x, i: x[i], (torch.rand(4, 3), torch.arange(4))),
    "through an index, of a fixed batch": (
        lambda x, i, j: (x + x[torch.arange(4), i].unsqueeze(1)).index_select(0, j),
        (torch.rand(4, 3), torch.tensor([0, 2, 1, 1]), torch.arange(4)),
    ),
    "the first sample for all": (
        lambda x: x[torch.zeros_like(torch.arange(x.shape[0]))],
        (torch.rand(4, 3),),
    ),
    "the next sample": (
        lambda x: x[(torch.arange(x.shape[0]) + 1) % x.shape[0]],
        (torch.rand(4, 3),),
    ),
    "into features": (lambda x: x.reshape(2, -1), (torch.rand(4, 3),)),
}


@pytest.mark.parametrize("name", MIXES)
def test_samples_that_meet_where_no_probe_sees_it(name: str) -> None:
    model, example = MIXES[name]
    try:
        net = bl.capture(model, *example)
    except bl.MixedSamples:
        return
    assert not net.graph.batched


def test_samples_that_stay_apart_in_unusual_ways() -> None:
    """What structure must see, lest it refuses ordinary models."""
    choose = lambda x, i: x[torch.arange(x.shape[0]), i]
    twins = lambda x: torch.cat([x, 2 * x], 0).chunk(2, 0)[1]
    heads = lambda x: (
        x.unsqueeze(1).expand(-1, 2, -1).reshape(-1, x.shape[1]).reshape(x.shape[0], 2, -1).sum(1)
    )
    for model, rest in ((choose, (torch.tensor([0, 2, 1, 1]),)), (twins, ()), (heads, ())):
        x = torch.rand(4, 3)
        net = bl.capture(model, x, *rest)
        assert net.graph.batched and repr(net).endswith("free batch size)")
        found = net.bounds(bl.Linf(x, 0.1), *rest)
        assert (found.lower <= model(x, *rest)).all() and (model(x, *rest) <= found.upper).all()


def test_an_operator_that_nothing_is_known_of() -> None:
    """What a registration vouches for may be refuted by a trial, and no trial vouches for what
    nobody has registered."""
    library = torch.library.Library("wrong_answers", "FRAGMENT")
    for name, function in (("turn", lambda x: x.flip(0)), ("twice", lambda x: 2 * x)):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, function, "CompositeExplicitAutograd")
        library.impl(name, lambda x: torch.empty_like(x), "Meta")
    turn, twice = torch.ops.wrong_answers.turn, torch.ops.wrong_answers.twice
    x = torch.rand(4, 3)
    net = bl.capture(lambda x, k: x * twice(k), x, torch.rand(4, 3))
    with pytest.raises(
        bl.MixedSamples,
        match=(
            r"nothing is known about how wrong_answers\.twice "
            r"treats"
        ),
    ):
        net.bounds(bl.Linf(x, 0.1), torch.rand(4, 3))
    bl.affine(turn)
    bl.affine(twice)
    assert bl.capture(twice, x).graph.batched
    with pytest.raises(bl.MixedSamples, match="turn"):
        bl.capture(turn, x)


# -- what the export assumed -----------------------------------------------------------------------


class Branch(nn.Module):
    def __init__(self, condition: Callable[[int], bool]) -> None:
        super().__init__()
        self.condition = condition

    def forward(self, x: Tensor) -> Tensor:
        return 2 * x if self.condition(x.shape[0]) else x + 1


@pytest.mark.parametrize(
    "condition",
    [lambda n: n > 4, lambda n: n == 1, lambda n: n % 2 == 0, lambda n: n < 3],
    ids=["> 4", "== 1", "even", "< 3"],
)
@pytest.mark.parametrize("example", [1, 2, 6])
def test_a_model_that_branches_on_the_batch_size(
    condition: Callable[[int], bool], example: int
) -> None:
    model = Branch(condition)
    net = bl.capture(model, torch.rand(example, 3))
    for size in (1, 2, 3, 4, 5, 8):
        x = torch.rand(size, 3)
        found = net.bounds(bl.Linf(x, 0.0))
        torch.testing.assert_close(found.lower, model(x))
        torch.testing.assert_close(net(x), model(x))


def test_a_squeeze_takes_the_batch_dimension_of_one_sample() -> None:
    model = lambda x: x.squeeze() * 2
    net = bl.capture(model, torch.rand(4, 3))
    x = torch.rand(1, 3)
    assert net(x).shape == model(x).shape
    assert net.bounds(bl.Linf(x, 0.0)).lower.shape == model(x).shape


def test_a_graph_that_lost_a_part_of_the_model() -> None:
    """A derivative in the model was captured with output None."""
    with pytest.raises(bl.CaptureError, match="None"):
        compare(lambda x: (x, x**2), lambda x: (x, None), (torch.rand(3),), {})
    with pytest.raises(bl.CaptureError, match="lost a part"):
        compare(lambda x: (x, x**2), lambda x: x, (torch.rand(3),), {})


def test_a_graph_that_is_not_the_model() -> None:
    counter = [0.0]

    def changing(x: Tensor) -> Tensor:
        counter[0] += 1.0
        return x * counter[0]

    with pytest.raises(bl.CaptureError, match=r"does not give what the model gives.*apart"):
        bl.capture(changing, torch.rand(3, 2))


def test_capture_leaves_running_statistics_alone() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    bl.capture(model, torch.rand(5, 3))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_capture_under_autocast_is_refused() -> None:
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(bl.CaptureError, match="autocast"),
    ):
        bl.capture(perceptron(4, 8, 3), torch.rand(2, 4))


# -- attention written by hand ---------------------------------------------------------------------


class HandWritten(nn.Module):
    """As in many small language models: heads are put together by a view."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.Linear(6, 18)

    def forward(self, x: Tensor) -> Tensor:
        batch, time, size = x.shape
        q, k, v = (
            part.view(batch, time, 2, 3).transpose(1, 2) for part in self.heads(x).split(6, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v)
        return y.transpose(1, 2).contiguous().view(batch, time, size)


def test_heads_that_are_put_together_by_a_view() -> None:
    torch.manual_seed(0)
    model, x = HandWritten(), torch.rand(2, 4, 6)
    found = bl.capture(model, x).bounds(bl.Linf(x, 0.01))
    assert (found.lower <= model(x)).all() and (model(x) <= found.upper).all()


# -- modules that change ---------------------------------------------------------------------------


def changing() -> tuple[nn.Sequential, bl.Net, bl.Linf]:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).eval()
    x = torch.rand(5, 4)
    return model, bl.capture(model, x), bl.Linf(x, 0.1)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda model: model.__setitem__(2, nn.Tanh()), "part '2'"),
        (lambda model: setattr(model[1], "eps", 0.5), "settings of '1'"),
        (
            lambda model: setattr(model[0], "weight", nn.Parameter(torch.rand(6, 5))),
            "shape of '0.weight'",
        ),
        (lambda model: model.train(), "another mode"),
    ],
    ids=["activation", "eps", "shape", "mode"],
)
def test_a_module_that_was_changed_is_refused(
    change: Callable[[nn.Sequential], object], words: str
) -> None:
    model, net, region = changing()
    net.bounds(region)
    change(model)
    with pytest.raises(bl.ArgumentError, match=words):
        net.bounds(region)


def test_a_mode_that_changes_nothing_is_no_change() -> None:
    x = torch.rand(5, 4)
    model = perceptron(4, 6, 3).train()
    net = bl.capture(model, x)
    model.eval()
    net.bounds(bl.Linf(x, 0.1))


def test_statistics_of_the_batch_are_told_of_once() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)).train()
    x, labels = torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
    net = bl.capture(model, x)
    with pytest.warns(UserWarning, match=r"train mode.*CleanPass"):
        net.bounds(bl.Linf(x, 0.1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        net.bounds(bl.Linf(x, 0.1))
        other = bl.capture(model, x)
        with bl.CleanPass(other) as seen:
            model(x)
        bl.robust_cross_entropy(other, bl.Linf(x, 0.1), labels, clean=seen).sum().backward()
    assert float(model[1].running_mean.abs().sum()) > 0
