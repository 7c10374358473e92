"""Wrong answers and unsafe paths that attacks have found around the relaxations: one test a cause,
each failed before it was mended."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import boundlab as bl
from boundlab.capture.faithful import compare
from boundlab.demo.model import load_digits, load_model

METHODS = ("ibp", "forward", "crown", "crown-ibp", "forward+backward", "alpha-crown")


def perceptron(*sizes: int) -> nn.Sequential:
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


# -- labels ----------------------------------------------------------------------------------------


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


def test_a_squeeze_of_one_sample() -> None:
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


# -- losses, casts, ambient modes ------------------------------------------------------------------


@pytest.mark.parametrize("beta", [1.0, 0.5])
@pytest.mark.parametrize("fused", [True, False])
def test_a_loss_far_below_that_of_intervals(fused: bool, beta: float) -> None:
    """x - x is 0 for crown, while intervals see hundreds: exponentials relative to these
    underflow."""
    model = lambda x: torch.stack([300 * x[:, 0] - 300 * x[:, 0].abs(), x[:, 0] - 1.0], 1)
    x = torch.full((1, 1), 3.0)
    loss = bl.robust_cross_entropy(
        bl.capture(model, x),
        bl.Linf(x, 0.5),
        torch.tensor([0]),
        method="crown",
        fused=fused,
        beta=beta,
    )
    assert torch.isfinite(loss).all()
    for point in torch.linspace(2.5, 3.5, 11):
        assert F.cross_entropy(model(point.reshape(1, 1)), torch.tensor([0])) <= loss + 1e-4


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.int8, torch.int64])
def test_casts_that_lose_something(dtype: torch.dtype, method: str) -> None:
    model = lambda x: x.to(dtype).to(x.dtype) * 2
    x = torch.linspace(-90, 90, 64).reshape(8, 8)
    found = bl.capture(model, x).bounds(bl.Linf(x, 0.3), method=method)
    for share in torch.linspace(-1, 1, 41):
        value = model(x + 0.3 * share)
        assert (found.lower - 1e-4 <= value).all() and (value <= found.upper + 1e-4).all()


def test_casts_beyond_the_range_of_whole_numbers_are_refused() -> None:
    x = torch.tensor([[100.0]])
    net = bl.capture(lambda x: x.to(torch.int8).float(), x)
    with pytest.raises(bl.DomainError, match="wrap around"):
        net.bounds(bl.Linf(x, 50.0))


def test_sums_in_another_type() -> None:
    model = lambda x: x.sum(1, dtype=torch.int64).float()
    x = torch.full((2, 3), 0.5)
    found = bl.capture(model, x).bounds(bl.Linf(x, 0.6))
    assert (found.lower <= 0).all() and (found.upper >= 3).all()


@pytest.mark.parametrize("method", METHODS)
def test_ambient_modes_do_not_matter(method: str) -> None:
    x = torch.rand(3, 4)
    net = bl.capture(perceptron(4, 16, 3), x)
    expected = net.bounds(bl.Linf(x, 0.1), method=method)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = net.bounds(bl.Linf(x, 0.1), method=method)
    assert torch.equal(found.lower, expected.lower) and found.lower.dtype == torch.float32
    with torch.inference_mode():
        inside = net.bounds(bl.Linf(x.clone(), 0.1), method=method)
    torch.testing.assert_close(inside.lower, expected.lower.detach())
    before = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        found = net.bounds(bl.Linf(x, 0.1), method=method)
    finally:
        torch.set_default_dtype(before)
    assert found.lower.dtype == torch.float32
    torch.testing.assert_close(found.lower, expected.lower)


def test_capture_under_autocast_is_refused() -> None:
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(bl.CaptureError, match="autocast"),
    ):
        bl.capture(perceptron(4, 8, 3), torch.rand(2, 4))


# -- regions ---------------------------------------------------------------------------------------


def test_one_dimension_is_one_per_sample() -> None:
    x, eps = torch.zeros(3, 3), torch.tensor([0.1, 0.2, 0.3])
    assert torch.equal(bl.Linf(x, eps).hull().upper, eps[:, None].expand(3, 3))
    assert torch.equal(bl.Linf(x, eps[None]).hull().upper, eps.expand(3, 3))
    assert torch.equal(bl.Linf(x, 1.0, upper=eps).hull().upper, eps[:, None].expand(3, 3))
    for kind in (bl.Linf, bl.L2, bl.L1):
        with pytest.raises(
            bl.ArgumentError,
            match=(
                r"one per sample, a tensor of shape \(2,\).*\(1, "
                r"3\)"
            ),
        ):
            kind(torch.zeros(2, 3), eps)


class Positions(nn.Module):
    """Truncation swallows what a word says of another position."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1).to(torch.int64).to(x.dtype) ** 2


def test_words_behind_a_cast() -> None:
    torch.manual_seed(0)
    x, others = torch.rand(1, 3, 2) * 4, torch.rand(1, 3, 2, 2) * 4
    region = bl.Words(x, others, budget=3)
    found = bl.capture(Positions(), x).bounds(region, method="ibp")
    for seed in range(200):
        value = Positions()(region.sample(torch.Generator().manual_seed(seed)))
        assert (found.lower - 1e-4 <= value).all() and (value <= found.upper + 1e-4).all()


@pytest.mark.parametrize("work", ["times", "plus", "sum", "negated"])
def test_whole_numbers_wrap_around(work: str) -> None:
    """A square of 16 bits of -574 is 649 beside squares of -797 and -341 that are -21744 and
    -14791."""
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "times": lambda y: y * y,
        "plus": lambda y: y + 100,
        "sum": lambda y: y + y,
        "negated": lambda y: -y,
    }
    x = torch.tensor([[-128.0]])
    region = bl.Box(x, x + 8)
    net = bl.capture(lambda x: functions[work](x.to(torch.int8)).float(), x)
    if work == "plus":
        assert net.bounds(region).lower == -28
    else:
        with pytest.raises(bl.DomainError, match="wrap around"):
            net.bounds(region)
    small = net.bounds(bl.Box(torch.tensor([[-8.0]]), torch.tensor([[8.0]])))
    assert small.lower <= functions[work](torch.tensor([[3.0]])) <= small.upper


@pytest.mark.parametrize("method", ["crown", "crown-ibp", "alpha-crown", "forward+backward"])
def test_a_bound_that_overflows_says_nothing(method: str) -> None:
    lower, upper = (
        torch.full((1, 1), 1.8445492829477143e19),
        torch.full((1, 1), 1.844799531794196e19),
    )
    squared = lambda x: (x.double() * x.double()).float()
    found = bl.capture(squared, lower).bounds(bl.Box(lower, upper), method=method)
    assert found.lower <= squared(lower) <= found.upper


@pytest.mark.parametrize("function", ["softmax", "logsumexp"])
@pytest.mark.parametrize("method", ["crown", "alpha-crown", "forward"])
def test_scores_far_apart(function: str, method: str) -> None:
    """The tangent of log-sum-exp was taken relative to the largest upper bound: at a centre 100
    below it exp(-100) is no normal number."""
    score = lambda x: torch.cat([x, torch.zeros_like(x)], 1)
    functions = {
        "softmax": lambda x: score(x).softmax(1)[:, :1],
        "logsumexp": lambda x: score(x).logsumexp(1, keepdim=True),
    }
    for low, up in (
        (-3.1553847789764404, 203.76866149902344),
        (-1043.16845703125, 104.51286315917969),
        (8525.9970703125, 8526.005859375),
    ):
        lower, upper = torch.full((1, 1), low), torch.full((1, 1), up)
        lines = bl.capture(functions[function], lower).linear_bounds(bl.Box(lower, upper))
        found = bl.capture(functions[function], lower).bounds(bl.Box(lower, upper), method=method)
        for share in torch.linspace(0, 1, 33):
            x = torch.clamp((1 - share) * lower + share * upper, lower, upper)
            value, at = functions[function](x), lines.evaluate(dict.fromkeys(lines.lower_A, x))
            room = 4e-7 * value.abs()
            assert (found.lower - room <= value).all() and (value <= found.upper + room).all()
            assert (at.lower - 1e-3 <= value).all() and (value <= at.upper + 1e-3).all()


# -- extreme arguments -----------------------------------------------------------------------------


def _three(x: Tensor) -> Tensor:
    return torch.cat([x, -x, 0.5 * x], 1).amax(1, keepdim=True)


def _pooled(x: Tensor) -> Tensor:
    return F.max_pool1d(torch.cat([x, -x, 0.5 * x], 1)[:, None], 3)[:, 0]


EXTREMES: dict[str, tuple[Callable[[Tensor], Tensor], float, float, torch.dtype]] = {
    "sin, 1e15": (torch.sin, 1e15, 1e15 + 0.5, torch.float64),
    "cos, 1e6 in single precision": (torch.cos, 1e6, 1e6 + 0.25, torch.float32),
    "acosh at 1": (torch.acosh, 1.0, 1.0 + 1e-6, torch.float32),
    "acos at 1": (torch.acos, 1.0 - 1e-6, 1.0, torch.float32),
    "asinh, 1e32": (torch.asinh, 1e32, 1.5e32, torch.float32),
    "reciprocal, 1e20": (torch.reciprocal, 1e20, 2e20, torch.float32),
    "softplus beyond what exp can": (
        lambda x: F.softplus(x, 1.0, 100.0),
        98.5,
        7196.0,
        torch.float32,
    ),
    "remainder, 9e15": (
        lambda x: torch.remainder(x, 0.7),
        -9001468635671159.0,
        -9001468635671157.0,
        torch.float64,
    ),
    "softplus at its threshold": (F.softplus, 20.0 - 1e-9, 20.0 + 1e-9, torch.float64),
    "x / 1e-39": (lambda x: x / 1e-39, 1e-20, 2e-20, torch.float32),
    "hypot, 1e20": (lambda x: torch.hypot(x, 2 * x), 1e20, 1.1e20, torch.float32),
    "hypot, 1e-25": (lambda x: torch.hypot(x, 2 * x), 1e-25, 1.1e-25, torch.float32),
    "lerp at the end": (
        lambda x: torch.lerp(x, torch.ones_like(x), 1.0),
        1e20,
        1e20,
        torch.float32,
    ),
    "lerp at the end, tensor": (
        lambda x: torch.lerp(x, torch.ones_like(x), torch.ones_like(x)),
        1e20,
        1e20,
        torch.float32,
    ),
    "remainder, 1e20": (lambda x: torch.remainder(x, 3.0), 1e20, 1e20, torch.float32),
    "a minimum of the largest numbers": (
        lambda x: torch.minimum(x, -x),
        -0.9e38,
        0.9e38,
        torch.float32,
    ),
    "a maximum of three of the largest numbers": (_three, -3.0e38, 3.2e38, torch.float32),
    "max pooling of the largest numbers": (_pooled, -3.0e38, 3.2e38, torch.float32),
    "the largest numbers": (lambda x: x * 0.5, 3.3e38, 3.4e38, torch.float32),
}


@pytest.mark.parametrize("method", ["ibp", "forward", "crown", "alpha-crown"])
@pytest.mark.parametrize("name", EXTREMES)
def test_extreme_arguments(name: str, method: str) -> None:
    function, low, up, dtype = EXTREMES[name]
    lower, upper = torch.full((1, 1), low, dtype=dtype), torch.full((1, 1), up, dtype=dtype)
    found = bl.capture(function, lower).bounds(bl.Box(lower, upper), method=method)
    for share in torch.linspace(0, 1, 65, dtype=dtype):
        value = function(torch.clamp((1 - share) * lower + share * upper, lower, upper))
        room = 8 * torch.finfo(dtype).eps * value.abs()
        assert (found.lower - room <= value).all() and (value <= found.upper + room).all(), (
            share,
            value,
            found.lower,
            found.upper,
        )


def test_a_factor_that_torch_gives_up() -> None:
    """silu(x) = x / (1 + exp(-x)) is 0 in single precision from -88.73 on, where it should be
    -2.6e-37."""
    box = bl.Box(torch.full((1, 1), -89.34821319580078), torch.full((1, 1), -87.50228118896484))
    x = torch.full((1, 1), -88.74253845214844)
    lines = bl.capture(F.silu, x).linear_bounds(box)
    found = lines.evaluate(dict.fromkeys(lines.lower_A, x))
    assert found.lower <= F.silu(x) <= found.upper


def test_a_pole_that_rounding_hides() -> None:
    x = torch.full((1, 1), 318300.5 * math.pi)
    with pytest.raises(bl.DomainError, match="poles"):
        bl.capture(torch.tan, x).bounds(bl.Linf(x, 0.05))


@pytest.mark.parametrize(
    "function", [torch.log, torch.rsqrt, torch.log2, torch.log1p, torch.acosh, torch.reciprocal]
)
def test_up_to_infinity(function: Callable[[Tensor], Tensor]) -> None:
    lower, upper = torch.full((1, 1), 2.0), torch.full((1, 1), math.inf)
    found = bl.capture(function, lower).bounds(bl.Box(lower, upper), method="ibp")
    ends = torch.stack([function(lower), function(upper)])
    assert torch.equal(found.lower, ends.amin(0)) and torch.equal(found.upper, ends.amax(0))


# -- the order of methods and regions --------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_crown_is_never_looser_than_crown_ibp(seed: int) -> None:
    torch.manual_seed(seed)
    model, x, labels = perceptron(6, 20, 20, 20, 4), torch.randn(5, 6), torch.randint(0, 4, (5,))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    net = bl.capture(model, x)
    for eps in (0.05, 0.2):
        region = bl.Linf(x, eps)
        slack = 1e-5 * net.bounds(region, method="ibp").upper.abs().max()
        assert (
            net.margins(region, labels) >= net.margins(region, labels, method="crown-ibp") - slack
        ).all()
        crown, cheap = net.bounds(region), net.bounds(region, method="crown-ibp")
        assert (crown.lower >= cheap.lower - slack).all() and (
            crown.upper <= cheap.upper + slack
        ).all()


def test_crown_proves_what_crown_ibp_proves() -> None:
    """In the demo it did not: tighter intervals make other lines."""
    pixels, labels = load_digits(30)
    images = pixels.float() / 255
    net, region = bl.capture(load_model(), images), bl.Linf(images, 0.15, lower=0.0, upper=1.0)
    with torch.no_grad():
        proved = [
            (net.margins(region, labels, method=method) > 0).all(1)
            for method in ("crown-ibp", "crown")
        ]
    assert not (proved[0] & ~proved[1]).any()


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 4.0])
@pytest.mark.parametrize("method", ["crown", "crown-ibp", "ibp"])
def test_a_ball_that_is_cut_is_never_looser(p: float, method: str) -> None:
    torch.manual_seed(3)
    model, x, labels = perceptron(6, 20, 20, 4), torch.rand(5, 6), torch.randint(0, 4, (5,))
    net = bl.capture(model, x)
    cut = bl.Lp(x, p, 0.5, lower=0.0, upper=1.0)
    hull = cut.hull()
    margins = net.margins(cut, labels, method=method)
    for larger in (bl.Lp(x, p, 0.5), bl.Box(hull.lower, hull.upper)):
        assert (margins >= net.margins(larger, labels, method=method) - 1e-5).all()


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0])
def test_the_minimum_over_a_ball_that_is_cut_is_exact(p: float) -> None:
    """Against the multiplier found by bisection."""
    torch.manual_seed(1)
    x, c = torch.rand(2, 9, dtype=torch.float64), torch.randn(40, 2, 9, dtype=torch.float64)
    for eps in (0.1, 0.4, 0.8, 2.0):
        found = bl.Lp(x, p, eps, lower=0.0, upper=1.0).minimum(c)
        least = _by_bisection(c, x, p, eps)
        assert (found <= least + 1e-9).all()
        torch.testing.assert_close(found, least, rtol=1e-3, atol=1e-3)


def _by_bisection(c: Tensor, x: Tensor, p: float, eps: float) -> Tensor:
    low, up = -torch.clamp(x, max=eps), torch.clamp(1 - x, max=eps)
    # a linear programme: the best of all orders in which the elements use up the radius is the
    # greedy one
    if p == 1.0:
        gains, order = c.abs().sort(-1, descending=True)
        most = torch.where(c > 0, -low, up).gather(-1, order)
        used = torch.minimum(most, (eps - (most.cumsum(-1) - most)).clamp(min=0))
        return (c * x).sum(-1) - (gains * used).sum(-1)
    small, large = (
        torch.full((*c.shape[:2], 1), 1e-12, dtype=c.dtype),
        torch.full((*c.shape[:2], 1), 1e12, dtype=c.dtype),
    )
    step = torch.zeros_like(c)
    for _ in range(200):
        middle = (small * large).sqrt()
        step = -torch.sign(c) * eps * (c.abs() * eps / (p * middle)) ** (1 / (p - 1))
        step = torch.minimum(torch.maximum(step, low), up)
        outside = ((step / eps).abs() ** p).sum(-1, keepdim=True) > 1
        small, large = torch.where(outside, middle, small), torch.where(outside, large, middle)
    return (c * (x + step)).sum(-1)


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
