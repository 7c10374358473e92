"""Rows that vanish outside a window give what dense rows give: the same bounds, for every operator
that knows windows."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

import boundlab as bl
from boundlab.coefficients.window import Constant, Placement, Run, Window, unravel
from boundlab.methods import backward, refine
from boundlab.rules.bilinear import Bilinear
from boundlab.rules.transposes import Convolution
from boundlab.rules.windows import _groups, _reshaped
from tests.helpers.contract import slack
from tests.networks import NETWORKS

# -- the algebra -----------------------------------------------------------------------------------


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """Any window, some of it outside of the node, with junk there unless it is clean."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    rows, samples = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    sizes: list[int] = []
    runs: list[Run | None] = []
    for whole in shape:
        if draw(st.booleans()):
            sizes.append(whole)
            runs.append(None)
            continue
        size, count, step = (
            draw(st.integers(1, 4)),
            draw(st.integers(1, 3)),
            draw(st.integers(1, 2)),
        )
        sizes.append(size)
        runs.append(
            Run(
                torch.randint(0, count, (rows, samples), generator=generator),
                count,
                draw(st.integers(-3, 2)),
                step,
            )
        )
    values = torch.randn(rows, samples, *sizes, generator=generator, dtype=torch.float64)
    return Window(values, Placement(shape, tuple(sizes), tuple(runs)), clean=False)


def dense_by_hand(window: Window) -> Tensor:
    """The dense rows, element by element."""
    places = window.places
    dense = torch.zeros(*window.values.shape[:2], *places.shape, dtype=window.values.dtype)
    for at in (
        torch.cartesian_prod(*[torch.arange(n) for n in window.values.shape])
        .reshape(-1, window.values.dim())
        .tolist()
    ):
        r, b, *inner = at
        where = [
            i if run is None else i + int(run.start[r, b])
            for i, run in zip(inner, places.runs, strict=True)
        ]
        if all(0 <= i < n for i, n in zip(where, places.shape, strict=True)):
            dense[(r, b, *where)] += window.values[tuple(at)]
    return dense


@settings(deadline=None)
@given(windows(), st.integers(1, 4))
def test_dense_in_parts(window: Window, rows: int) -> None:
    """Windows are put in their places some rows at a time."""
    places = window.places
    canvas = math.prod(n + sum(out) for n, out in zip(places.shape, places.overhang, strict=True))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "boundlab.coefficients.window.INDICES", rows * window.values.shape[1] * canvas
        )
        torch.testing.assert_close(window.dense(), dense_by_hand(window), rtol=0, atol=0)


@settings(deadline=None)
@given(windows())
def test_dense_is_the_window_in_its_place(window: Window) -> None:
    assert torch.equal(window.dense(), dense_by_hand(window))
    assert torch.equal(window.zero_padded().dense(), dense_by_hand(window))


@settings(deadline=None)
@given(windows(), st.integers(0, 99))
def test_products_with_constants(window: Window, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    constant = torch.randn(
        window.values.shape[1], *window.places.shape, generator=generator, dtype=torch.float64
    )
    dense = dense_by_hand(window)
    torch.testing.assert_close(window.dot(constant), (dense * constant).flatten(2).sum(2))
    torch.testing.assert_close(window.scaled(constant).dense(), dense * constant)
    same = constant[:1, ..., :1]
    torch.testing.assert_close(window.scaled(same).dense(), dense * same)


@settings(deadline=None)
@given(windows(), st.integers(0, 2), st.integers(-2, 2), st.integers(0, 99))
def test_sums(window: Window, grow: int, shift: int, seed: int) -> None:
    """Of windows that lie at a fixed distance, and of unrelated ones."""
    generator = torch.Generator().manual_seed(seed)
    p = window.places
    sizes = tuple(
        size if run is None else size + grow for size, run in zip(p.sizes, p.runs, strict=True)
    )
    runs = tuple(
        None if run is None else Run(run.index, run.count, run.first + shift, run.step)
        for run in p.runs
    )
    other = Window(
        torch.randn(*window.values.shape[:2], *sizes, generator=generator, dtype=torch.float64),
        Placement(p.shape, sizes, runs),
        clean=False,
    )
    torch.testing.assert_close(
        (window + other).dense(), dense_by_hand(window) + dense_by_hand(other)
    )
    chosen = torch.randint(
        0, max(1, torch.Size(p.shape).numel()), window.values.shape[:2], generator=generator
    )
    units = Window.units(torch.ones(chosen.shape, dtype=torch.float64), chosen, p.shape)
    torch.testing.assert_close(
        (units + window).dense(), dense_by_hand(window) + dense_by_hand(units)
    )


@settings(deadline=None)
@given(windows(), st.integers(0, 99))
def test_some_rows(window: Window, seed: int) -> None:
    kept = torch.randint(
        0,
        window.values.shape[0],
        (2, window.values.shape[1]),
        generator=torch.Generator().manual_seed(seed),
    )
    dense = dense_by_hand(window)
    expected = torch.stack(
        [torch.stack([dense[kept[r, b], b] for b in range(dense.shape[1])]) for r in range(2)]
    )
    assert torch.equal(window.pick(kept).dense(), expected)


@settings(deadline=None)
@given(windows(), st.data())
def test_reshapes(window: Window, data: st.DataObject) -> None:
    size = torch.Size(window.places.shape).numel()
    divisors = [n for n in range(1, size + 1) if size % n == 0]
    first = data.draw(st.sampled_from(divisors))
    second = data.draw(st.sampled_from([n for n in divisors if (size // first) % n == 0]))
    for shape in (
        (size,),
        (first, size // first),
        (first, second, size // first // second),
        (1, size),
        (size, 1),
    ):
        assert torch.equal(
            _reshaped(window.zero_padded(), shape).dense(),
            dense_by_hand(window).reshape(*window.values.shape[:2], *shape),
        )


def test_groups_of_dimensions() -> None:
    assert _groups((2, 3, 4), (6, 4)) == [([0, 1], [0]), ([2], [1])]
    assert _groups((6, 4), (2, 3, 4)) == [([0], [0, 1]), ([1], [2])]
    assert [run.index.tolist() for run in unravel(torch.tensor([[7]]), (2, 3, 4))] == [
        [[0]],
        [[1]],
        [[3]],
    ]


# -- bounds ----------------------------------------------------------------------------------------


def assert_same_bounds(
    model: Callable[..., Tensor], regions: tuple[bl.Region, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everything by windows, everything dense, and rows that never drop out."""
    net = bl.capture(model, *(region.centre for region in regions))
    found = {}
    for name, share, drop in (
        ("windows", 4.0, 0.8),
        ("dense", -1.0, 0.8),
        ("windows, all rows", 4.0, -1.0),
        ("default", 0.5, 0.8),
    ):
        monkeypatch.setattr(backward, "MAX_WINDOW_FRACTION", share)
        monkeypatch.setattr(refine, "WORTH_DROPPING", drop)
        with torch.no_grad():
            found[name] = net.bounds(*regions, method="crown")
    expected = found.pop("dense")
    room = 10 * slack(expected.lower) + 10 * slack(expected.upper)
    for name, bounds in found.items():
        assert (bounds.lower - expected.lower).abs().le(room).all() and (
            bounds.upper - expected.upper
        ).abs().le(room).all(), name


CONVOLUTIONS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "plain": (lambda: nn.Conv2d(3, 4, 3), (3, 9, 8)),
    "stride": (lambda: nn.Conv2d(3, 4, 3, stride=2), (3, 9, 8)),
    "stride and padding": (lambda: nn.Conv2d(3, 4, 3, stride=(2, 1), padding=(1, 2)), (3, 9, 8)),
    "stride past the kernel": (lambda: nn.Conv2d(3, 4, 2, stride=3), (3, 9, 8)),
    "dilation": (lambda: nn.Conv2d(3, 4, 3, dilation=2, padding=2), (3, 9, 8)),
    "groups": (lambda: nn.Conv2d(4, 6, 3, groups=2, padding=1), (4, 7, 7)),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (4, 7, 7)),
    "many channels": (lambda: nn.Conv2d(6, 4, 3, padding=1), (6, 6, 6)),
    "same padding": (lambda: nn.Conv2d(3, 4, 3, padding="same"), (3, 6, 6)),
    "reflecting padding": (
        lambda: nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect"),
        (3, 6, 6),
    ),
    "no bias": (lambda: nn.Conv2d(3, 4, 3, bias=False), (3, 6, 6)),
    "1d": (lambda: nn.Conv1d(3, 4, 3, stride=2, padding=1), (3, 12)),
    "3d": (lambda: nn.Conv3d(2, 3, 2, stride=2, padding=1), (2, 5, 5, 4)),
    "transposed": (
        lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        (3, 5, 4),
    ),
}


class Net(nn.Module):
    """A convolution, an activation, then a head around it."""

    def __init__(self, first: nn.Module, head: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.head = first, head

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.first(x)))


def _conv(channels: int, dims: int, **kwargs: int) -> nn.Module:
    return (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](channels, 3, 3, padding=1, **kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two convolutions in a row with an activation between and behind, and a shortcut around the
    second."""
    torch.manual_seed(0)
    make, shape = CONVOLUTIONS[name]
    first = make()
    out = first(torch.zeros(1, *shape)).shape
    second, third = _conv(out[1], len(shape) - 1), _conv(3, len(shape) - 1)
    shortcut = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[len(shape) - 2](out[1], 3, 1)
    linear = nn.Linear(torch.Size((3, *out[2:])).numel(), 5)
    modules = nn.ModuleList([second, third, shortcut, linear])

    def head(h: Tensor) -> Tensor:
        h = torch.relu(shortcut(h) + second(h) * 0.5 - 0.1)
        return linear(torch.tanh(third(h) + h).flatten(1))

    model = Net(first, head).to(dtype)
    modules.to(dtype)
    x = torch.rand(2, *shape, dtype=dtype)
    assert_same_bounds(model, (bl.Linf(x, 0.1),), monkeypatch)
    assert_same_bounds(model, (bl.L2(x, 0.3),), monkeypatch)


KERNEL = torch.randn(3, 4, 3, 3, generator=torch.Generator().manual_seed(3))

HEADS: dict[str, Callable[[Tensor], Tensor]] = {
    "average pooling": lambda h: F.relu(F.avg_pool2d(h, 2) - 0.2),
    "average pooling, overlapping": lambda h: F.relu(F.avg_pool2d(h, 3, stride=2, padding=1) - 0.2),
    "average pooling, edges apart": lambda h: F.relu(
        F.avg_pool2d(h, 3, stride=2, padding=1, count_include_pad=False) - 0.2
    ),
    "average pooling, uneven": lambda h: F.relu(F.avg_pool2d(h, (4, 5), ceil_mode=True) - 0.2),
    "average of all": lambda h: F.relu(F.adaptive_avg_pool2d(h, 1) - 0.2),
    "max pooling": lambda h: F.relu(F.max_pool2d(h, 2) - 0.4),
    "max pooling, overlapping": lambda h: F.relu(F.max_pool2d(h, 3, stride=2, padding=1) - 0.4),
    "resized": lambda h: F.relu(F.interpolate(h, scale_factor=2) - 0.2),
    "concatenated": lambda h: F.relu(torch.cat([h, h.flip(1)], 1) - 0.2),
    "concatenated places": lambda h: F.relu(
        F.conv2d(torch.cat([h, h - 1], 3), KERNEL.to(h), padding=1) - 0.2
    ),
    "concatenated with a constant": lambda h: F.relu(
        torch.cat([torch.ones_like(h), h], 1).mean(1) - 0.2
    ),
    "sliced channels": lambda h: F.relu(
        F.conv2d(F.pad(h, (1, 1))[:, :, :, 1:-1], KERNEL.to(h), padding=1)[:, :, 1:-2] - 0.2
    ),
    "selected": lambda h: F.relu(F.conv2d(h, KERNEL.to(h), padding=1)[:, 1] + h[:, -1] - 0.2),
    "selected column": lambda h: F.relu(F.conv2d(h, KERNEL.to(h), padding=1)[..., 2] - 0.2),
    "sliced": lambda h: F.relu(h[:, 1:, ::2] - 0.2),
    "permuted": lambda h: F.relu(h.permute(0, 2, 3, 1) - 0.2),
    "transposed": lambda h: F.relu(h.transpose(1, 3) - 0.2),
    "flattened": lambda h: F.relu(h.flatten(2) - 0.2),
    "all flattened": lambda h: F.relu(h.flatten(1) - 0.2),
    "unflattened": lambda h: F.relu(h.unflatten(1, (2, 2)) - 0.2),
    "squeezed": lambda h: F.relu(h.unsqueeze(1).squeeze(1) - 0.2),
    "scaled by channels": lambda h: F.relu(
        h * torch.tensor([1.0, -2.0, 0.5, 3.0])[:, None, None] - 0.2
    ),
    "scaled by places": lambda h: F.relu(h * torch.linspace(-1, 1, 6) - 0.1),
    "centred": lambda h: F.relu(h - h.mean((2, 3), keepdim=True)),
    "summed": lambda h: F.relu(h.sum(1) - h.mean(1)),
    "multiplied": lambda h: F.relu(h * h.flip(2) - 0.1),
    "negated": lambda h: F.relu(0.2 - (-h)),
    "matrix": lambda h: F.relu(h @ torch.linspace(-1, 1, 30, dtype=h.dtype).reshape(6, 5)),
    "matrices": lambda h: F.relu(h @ h.transpose(2, 3) - 0.3),
    "softmax": lambda h: F.relu(torch.softmax(h * 2, -1) - 0.2),
    "padded": lambda h: F.relu(F.pad(h, (1, 2), value=0.5) - 0.2),
    "shortcut to the same": lambda h: F.relu(F.relu(h - 0.2) - h * 0.5),
    "leaky": lambda h: F.leaky_relu(h - 0.2, 0.1),
    "chosen": lambda h: torch.where(torch.arange(6) > 2, F.relu(h - 0.3), h),
}


@pytest.mark.parametrize("name", HEADS)
def test_operators_behind_a_convolution(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model = Net(nn.Conv2d(2, 4, 3, padding=1), HEADS[name]).double()
    x = torch.rand(3, 2, 6, 6, dtype=torch.float64)
    assert_same_bounds(model, (bl.Linf(x, 0.1, lower=0.0, upper=1.0),), monkeypatch)


@pytest.mark.parametrize(
    "name", ["resnet", "densenet", "encoder-post-relu", "vit", "attention", "cnn"]
)
def test_networks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name = name if name in NETWORKS else next(key for key in NETWORKS if name in key)
    case = NETWORKS[name]
    assert_same_bounds(
        case.model(), tuple(bl.Linf(x, case.eps) for x in case.inputs(2)), monkeypatch
    )


def test_samples_with_more_and_with_less_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows drop out sample by sample: a batch gives what its samples give alone."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 20),
        nn.ReLU(),
        nn.Linear(20, 3),
    ).double()
    x = torch.rand(4, 1, 8, 8, dtype=torch.float64)
    eps = torch.tensor([0.0, 1e-3, 0.05, 0.5], dtype=torch.float64)
    assert_same_bounds(model, (bl.Linf(x, eps),), monkeypatch)
    net = bl.capture(model, x)
    together = net.bounds(bl.Linf(x, eps))
    for i in range(4):
        alone = net.bounds(bl.Linf(x[i : i + 1], float(eps[i])))
        torch.testing.assert_close(alone.lower[0], together.lower[i])
        torch.testing.assert_close(alone.upper[0], together.upper[i])


@pytest.mark.parametrize("first", [True, False])
def test_products_with_a_side_that_is_not_negative(
    first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As operators they give what the planes give that they stand for, backward, forward and as
    intervals."""
    torch.manual_seed(0)
    weight, other = torch.randn(4, 4, dtype=torch.float64), torch.randn(4, 4, dtype=torch.float64)

    def model(x: Tensor) -> Tensor:
        s, t = torch.relu(x @ weight), torch.tanh(x @ other)
        return s @ t if first else t @ s

    x = torch.randn(2, 4, 4, dtype=torch.float64)
    net = bl.capture(model, x)
    region = bl.Linf(x, 0.1)
    found = {
        method: net.bounds(region, method=method)
        for method in ("ibp", "forward", "crown-ibp", "crown")
    }
    monkeypatch.setattr(Bilinear, "_signed", lambda self, call: None)
    for method, bounds in found.items():
        expected = net.bounds(region, method=method)
        torch.testing.assert_close(bounds.lower, expected.lower)
        torch.testing.assert_close(bounds.upper, expected.upper)


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("groups", "stride", "padding", "dilation"),
    [(1, 2, 1, 1), (1, 3, 0, 1), (1, 2, 1, 2), (2, 2, 1, 1)],
)
def test_many_small_windows_through_one_matrix(
    groups: int, stride: int, padding: int, dilation: int, whole: bool
) -> None:
    """Many rows take one product with the matrix of the transpose, few take a convolution."""
    torch.manual_seed(0)
    conv = nn.Conv2d(2, 4, 3, stride, padding, dilation, groups, dtype=torch.float64)
    setting = Convolution(
        conv.weight, [stride] * 2, [padding] * 2, [dilation] * 2, groups, torch.Size((2, 9, 8))
    )
    shape = (
        conv(torch.zeros(1, 2, 9, 8, dtype=torch.float64)).shape[1:]
        if whole
        else torch.Size((4, 2, 2))
    )
    rows = torch.randn(4 * shape.numel(), *shape, dtype=torch.float64, requires_grad=True)
    one_by_one = torch.cat([setting.back(row, whole) for row in rows.split(1)])
    at_once = setting.back(rows, whole)
    torch.testing.assert_close(at_once, one_by_one)
    weights = torch.randn_like(at_once)
    first, second = (
        torch.autograd.grad((found * weights).sum(), [rows, conv.weight])
        for found in (at_once, one_by_one)
    )
    torch.testing.assert_close(first, second)


@settings(deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 6), st.integers(0, 99))
def test_strides_by_phases(data: st.DataObject, dims: int, into: int, seed: int) -> None:
    """With and without gradient, few channels and more."""
    some = lambda least, most: data.draw(
        st.lists(st.integers(least, most), min_size=dims, max_size=dims)
    )
    kernel, stride, padding, size = some(1, 4), some(1, 4), some(0, 2), some(1, 7)
    assume(all(n + 2 * pad >= k for n, pad, k in zip(size, padding, kernel, strict=True)))
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, into, *kernel, generator=generator, dtype=torch.float64)
    x = torch.zeros(2, into, *size, dtype=torch.float64, requires_grad=True)
    y = (F.conv1d, F.conv2d, F.conv3d)[dims - 1](x, weight, None, stride, padding)
    rows = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    (expected,) = torch.autograd.grad(y, x, rows)
    convolution = Convolution(weight, stride, padding, [1] * dims, 1, x.shape[1:])
    for some_rows in (rows, rows.clone().requires_grad_()):
        torch.testing.assert_close(convolution._by_phases(some_rows, padding, size), expected)


def test_constants_with_the_channels_last() -> None:
    """Windows read a constant by its strides, whatever its layout in memory is, also where they
    stick out of it."""
    torch.manual_seed(0)
    constant = torch.rand(2, 3, 4, 4)
    chosen = torch.randint(0, 16, (5, 2))
    runs = (None, Run(chosen // 4, 4, first=-1), Run(chosen % 4, 4, first=-1))
    places = Placement((3, 4, 4), (3, 3, 3), runs)
    plain, last = (
        places.take(constant),
        places.take(constant.contiguous(memory_format=torch.channels_last)),
    )
    assert torch.equal(plain, last)
    padded = F.pad(constant, (1, 1, 1, 1))
    for row in range(5):
        for sample in range(2):
            i, j = divmod(int(chosen[row, sample]), 4)
            assert torch.equal(plain[row, sample], padded[sample, :, i : i + 3, j : j + 3])


def test_what_windows_see_is_kept_for_windows_that_lie_alike_only() -> None:
    """Windows that stick out before a node and windows that stick out behind it have the same
    strides."""
    constant = Constant(torch.arange(1.0, 6.0)[None])
    index = torch.tensor([[0], [1], [2], [0], [1], [2]])
    for first in (-1, 0, -1):
        places = Placement((5,), (2,), (Run(index, 3, first, 2),))
        assert torch.equal(places.take(constant), places.take(constant.value))
    assert len(constant.seen) == 2
