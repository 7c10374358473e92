"""Every operator of the table, attacked: bounds by every method and norm must hold, at every node,
in both precisions."""

from __future__ import annotations

import copy
import functools
import itertools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from boundlab.graph.graph import Ref
from boundlab.rules.registry import COMPOSITIONS, aten
from tests.helpers.contract import METHODS, assert_inside, assert_within, check_sound, slack, steps
from tests.helpers.registry import built_in_operators
from tests.operator_cases import BATCH, CASES, ELEMENTWISE, Applied, OperatorCase

DTYPES = (torch.float32, torch.float64)


RADII = (1e-3, 0.3, 2.0)


dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=["float32", "float64"])


def _groups() -> dict[str, tuple[str, ...]]:
    """Name of a case -> the names of all that are captured together with it."""

    def key(name: str) -> tuple[Any, ...]:
        case = CASES[name]
        return case.shape, case.low, case.high, case.batched, name if case.alone else ""

    alike = [tuple(names) for _, names in itertools.groupby(sorted(CASES, key=key), key)]
    groups = [names[start : start + 40] for names in alike for start in range(0, len(names), 40)]
    return {name: names for names in groups for name in names}


GROUPS = _groups()


every_case = pytest.mark.parametrize("name", GROUPS)  # neighbours share a capture


# -- capturing many cases at once ------------------------------------------------------------------


class Bundle(nn.Module):
    """Several cases with the same input as one model: capturing it once is much faster than
    capturing each."""

    def __init__(self, names: tuple[str, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.names = names
        self.models = nn.ModuleList(copy.deepcopy(CASES[name].model).to(dtype) for name in names)

    def forward(self, x: Tensor) -> dict[str, Any]:
        return {name: model(x) for name, model in zip(self.names, self.models, strict=True)}


ModelAndNet = tuple[nn.Module, bl.Net]


def model_and_net(name: str, dtype: torch.dtype) -> ModelAndNet:
    found = _together(GROUPS[name], dtype)[name]
    if isinstance(found, Exception):
        raise found
    return found


@functools.cache
def _together(names: tuple[str, ...], dtype: torch.dtype) -> dict[str, ModelAndNet | Exception]:
    """Each case and its net; if one of them cannot be captured, the halves are tried."""
    bundle = Bundle(names, dtype)
    try:
        case = CASES[names[0]]
        net = bl.capture(bundle, centre(case, dtype), batched=None if case.batched else False)
    except Exception as error:  # whatever it is, it belongs to one case
        if len(names) == 1:
            return {names[0]: error}
        middle = len(names) // 2
        return _together(names[:middle], dtype) | _together(names[middle:], dtype)
    return {
        name: (model, _only(net, name)) for name, model in zip(names, bundle.models, strict=True)
    }


def _only(net: bl.Net, name: str) -> bl.Net:
    """The part of a bundle's net that computes one of its cases."""
    graph = net.graph
    outputs, tree = pytree.tree_flatten(pytree.tree_unflatten(graph.outputs, net._outputs)[name])
    needed = graph.ancestors(
        tuple(output.name for output in outputs if isinstance(output, Ref))
    ) | set(graph.inputs)
    keep = lambda table: {key: value for key, value in table.items() if key in needed}
    part = replace(
        graph,
        nodes=keep(graph.nodes),
        parameters=keep(graph.parameters),
        constants=keep(graph.constants),
        outputs=tuple(outputs),
    )
    return bl.Net(net.source, part, net._inputs, tree)


# -- regions ---------------------------------------------------------------------------------------


def centre(case: OperatorCase, dtype: torch.dtype, seed: int = 0) -> Tensor:
    """Samples near zero and away from it, in turn, inside the range of the case."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, *case.shape, generator=generator, dtype=torch.float64)
    x = x if case.batched else x[0]
    near = (torch.arange(len(x)) % 2 == 0).reshape(-1, *[1] * (x.dim() - 1))
    return torch.where(near, 0.2 * x, 1.5 * x + 2 * x.sign()).clamp(case.low, case.high).to(dtype)


def valid_range(case: OperatorCase) -> tuple[float | None, float | None]:
    return (None if case.low == -torch.inf else case.low), (
        None if case.high == torch.inf else case.high
    )


def radii(case: OperatorCase, dtype: torch.dtype, scale: float = 1.0) -> Tensor:
    """One per sample: every radius for samples near zero and away from it."""
    eps = torch.tensor(RADII, dtype=dtype)[torch.arange(BATCH) // 2 % len(RADII)]
    return scale * (eps if case.batched else eps[2])


def region(case: OperatorCase, dtype: torch.dtype, seed: int = 0, scale: float = 1.0) -> bl.Region:
    return bl.Linf(centre(case, dtype, seed), radii(case, dtype, scale), *valid_range(case))


def ball(kind: str, case: OperatorCase, dtype: torch.dtype, seed: int = 0) -> bl.Region:
    """Another set of the same size."""
    x, eps, ends = centre(case, dtype, seed), radii(case, dtype), valid_range(case)
    some = torch.arange(x.numel()).reshape(x.shape) % 3 == 0
    wide = eps.reshape(-1, *[1] * (x.dim() - 1)).expand(x.shape)
    if kind == "L0":
        return bl.L0(x, 2, max(case.low, -1.5), min(case.high, 1.5))
    if kind == "box":  # lopsided, every third element fixed
        box = bl.Linf(x, torch.where(some, 0, wide), *ends).hull()
        return bl.Box(torch.where(some, box.lower, (x + 2 * box.lower) / 3), box.upper)
    return {
        "L2": lambda: bl.L2(x, 2 * eps, *ends),
        "L1": lambda: bl.L1(x, 3 * eps, *ends),
        "L3": lambda: bl.Lp(x, 3.0, 2 * eps, *ends),
        "part": lambda: bl.Linf(x, torch.where(some, wide, 0), *ends),
        "L2, part": lambda: bl.L2(x, torch.where(some, wide, 0), *ends),
    }[kind]()


KINDS = ("L2", "L1", "L3", "L0", "box", "part", "L2, part")


SOME = (
    "linear", "conv2d, dilated depthwise", "batch_norm 2d", "avg_pool2d, count_include_pad",
    "pad, constant", "repeat", "gather",
    "constant with the batch dimension, added", "relu", "leaky_relu, -0.5", "gelu", "tanh",
    "pow, 4", "log", "sin", "mul, two variables", "maximum",
    "div, two variables", "matmul, two variables", "max_pool2d, padding", "softmax", "layer_norm",
    "attention", "comparison, where",
)  # fmt: skip
"""Cases that are attacked under every norm in the ordinary run."""


# -- tests -----------------------------------------------------------------------------------------


@every_case
@dtypes
def test_operator(name: str, dtype: torch.dtype) -> None:
    """The graph computes what the model computes; all bounds hold; with radius 0 they are the
    value."""
    model, net = model_and_net(name, dtype)
    check_graph(model, net, region(CASES[name], dtype, seed=1))
    check_sound(
        model, (region(CASES[name], dtype),), net=net, count=2, nodes=dtype == torch.float64
    )
    if dtype == torch.float64:
        check_radius_zero(model, net, centre(CASES[name], dtype, seed=2))


def check_graph(model: nn.Module, net: bl.Net, around: bl.Region) -> None:
    box = around.hull()
    for x in (box.centre, box.lower, box.upper):
        with torch.no_grad():
            values = net.graph.run(net._read_state() | dict.fromkeys(net.graph.inputs, x))
            truth = pytree.tree_leaves(model(x))
        for output, expected in zip(net.graph.outputs, truth, strict=True):
            torch.testing.assert_close(
                values[output.name],
                expected,
                msg=lambda text: f"the graph computes another value: {text}",
            )


def check_radius_zero(model: nn.Module, net: bl.Net, x: Tensor) -> None:
    """As contract.check_point, for a net that is already captured."""
    truth = [y.detach() for y in pytree.tree_leaves(model(x))]
    for method in METHODS:
        found = pytree.tree_leaves(
            net.bounds(bl.Linf(x, 0.0), method=method, alpha=steps(method)),
            is_leaf=lambda b: isinstance(b, bl.Bounds),
        )
        for bounds, value in zip(found, truth, strict=True):
            for end in bounds:
                apart = (end.detach() - value).abs()
                assert_within(apart, 10 * slack(value), f"{method}: with radius 0 a bound differs")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", SOME)
def test_sound_in_other_sets(name: str, kind: str) -> None:
    model, net = model_and_net(name, torch.float64)
    check_sound(model, (ball(kind, CASES[name], torch.float64),), net=net, count=3)


SPECIAL = (
    0.0,
    -0.0,
    0.5,
    -0.5,
    0.8,
    0.3,
    0.2,
    1.0,
    -1.0,
    1.2,
    -1.2,
    2.0,
    -2.0,
    3.0,
    -3.0,
    6.0,
    torch.pi,
    -torch.pi / 2,
)
"""Where something may happen to an elementwise function: kinks, jumps, turns."""


def intervals(case: OperatorCase, dtype: torch.dtype, count: int, seed: int = 0) -> bl.Box:
    """Intervals of every width and place inside the range of a case, some of them points, many with
    an end at a special value."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, *case.shape)
    uniform = lambda: torch.rand(shape, generator=generator, dtype=torch.float64)
    width = 10 ** (uniform() * 8 - 7)
    special = torch.tensor(SPECIAL, dtype=torch.float64)[
        torch.randint(len(SPECIAL), shape, generator=generator)
    ]
    middle = 3 * torch.randn(shape, generator=generator, dtype=torch.float64)
    at = torch.where(uniform() < 0.4, special, middle)
    share = torch.where(uniform() < 0.5, uniform().round(), uniform())
    width = torch.where(uniform() < 0.05, 0, width)
    ends = torch.stack([at - share * width, at + (1 - share) * width]).to(dtype)
    low, high = ends.clamp(case.low, case.high)
    return bl.Box(low, high)


@dtypes
@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_dense_grid(name: str, dtype: torch.dtype) -> None:
    attack_on_grid(name, dtype, count=60, seed=0)


def attack_on_grid(name: str, dtype: torch.dtype, count: int, seed: int) -> None:
    """Intervals and lines of an elementwise function hold on a grid in hundreds of intervals."""
    model, net = model_and_net(name, dtype)
    box = intervals(CASES[name], dtype, count, seed)
    bounds, lines = net.bounds(box, method="ibp"), net.linear_bounds(box)
    shares = torch.cat([torch.linspace(0, 1, 25), torch.tensor([1e-3, 1e-2, 0.99, 0.999])]).to(
        dtype
    )
    (source,) = net.graph.inputs
    with torch.no_grad():
        for share in shares:
            x = torch.minimum(
                torch.maximum(box.lower + share * (box.upper - box.lower), box.lower), box.upper
            )
            value, line = model(x), lines.evaluate({source: x})
            for kind, (lower, upper) in (("interval", bounds), ("line", line)):
                room = slack(value, lower, upper, x)
                assert_inside(value, lower, upper, f"{name}: {kind}", room)


# -- deeper ----------------------------------------------------------------------------------------


@pytest.mark.slow
@dtypes
@every_case
@pytest.mark.parametrize("scale", [0.1, 1.0, 4.0])
def test_sound_deep(name: str, dtype: torch.dtype, scale: float) -> None:
    model, net = model_and_net(name, dtype)
    for seed in (1, 2):
        check_sound(model, (region(CASES[name], dtype, seed, scale),), net=net, count=24)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@every_case
def test_sound_in_other_sets_deep(name: str, kind: str) -> None:
    model, net = model_and_net(name, torch.float32)
    check_sound(model, (ball(kind, CASES[name], torch.float32, seed=1),), net=net, count=16)


@pytest.mark.slow
@dtypes
@pytest.mark.parametrize("name", sorted(ELEMENTWISE))
def test_dense_grid_deep(name: str, dtype: torch.dtype) -> None:
    for seed in (1, 2, 3):
        attack_on_grid(name, dtype, count=1000, seed=seed)


# -- perturbed parameters, and two inputs ----------------------------------------------------------


class Weighted(nn.Module):
    """A function of x and parameters."""

    def __init__(self, function: Callable[..., Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        generator = torch.Generator().manual_seed(len(shapes))
        self.weights = nn.ParameterList(torch.randn(shape, generator=generator) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x, *self.weights)


WORDS = torch.tensor([[0, 3, 3], [1, 0, 4], [2, 2, 2], [4, 1, 0]])


PARAMETERS: dict[str, tuple[nn.Module, Any]] = {
    "embedding": (nn.Embedding(5, 3), WORDS),
    "embedding, padding_idx": (nn.Embedding(5, 3, padding_idx=0), WORDS),
    "embedding, nonlinear": (
        nn.Sequential(nn.Embedding(5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(9, 2)),
        WORDS,
    ),
    "linear": (nn.Linear(3, 4), (3,)),
    "linear, two": (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), (3,)),
    "conv1d": (nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 5)),
    "conv2d": (nn.Conv2d(2, 2, 2, dilation=2), (2, 4, 4)),
    "conv2d, reflect": (nn.Conv2d(1, 2, 2, padding=1, padding_mode="reflect"), (1, 3, 3)),
    "conv3d": (nn.Conv3d(1, 1, 2, bias=False), (1, 2, 2, 3)),
    "conv_transpose1d": (nn.ConvTranspose1d(2, 1, 2, stride=2, output_padding=1), (2, 3)),
    "conv_transpose2d": (nn.ConvTranspose2d(2, 2, 2, groups=2), (2, 2, 3)),
    "conv_transpose3d": (nn.ConvTranspose3d(1, 1, 2), (1, 2, 1, 2)),
    "batch_norm": (nn.BatchNorm1d(3).eval(), (3,)),
    "layer_norm": (nn.LayerNorm(3), (3,)),
    "group_norm": (nn.GroupNorm(2, 4), (4, 2)),
    "bilinear": (nn.Bilinear(3, 3, 2), None),
    "LSTM": (nn.LSTM(2, 2, batch_first=True), (2, 2)),
    "mul": (Weighted(torch.mul, (3,)), (3,)),
    "mul, parameters alone": (Weighted(lambda x, v, w: x + (v * w).sum(), (3,), (3,)), (3,)),
    "mm": (Weighted(torch.mm, (3, 3)), (3,)),
    "matmul, left": (Weighted(lambda x, w: w @ x.unsqueeze(-1), (3, 3)), (3,)),
    "matmul, batched": (Weighted(lambda x, w: x[:, None, None] @ w, (2, 3, 3)), (3,)),
    "mv": (Weighted(torch.mv, (3,)), (3,)),
    "dot": (Weighted(lambda x, v, w: x * torch.dot(v, w), (3,), (3,)), (3,)),
    "inner": (Weighted(torch.inner, (3, 3)), (3,)),
    "inner, vector": (Weighted(torch.inner, (3,)), (3,)),
    "outer": (Weighted(lambda x, v, w: x @ torch.outer(v, w), (3,), (3,)), (3,)),
    "addmm": (
        Weighted(lambda x, b, w: torch.addmm(b, x, w, alpha=2.0, beta=-1.0), (3,), (3, 3)),
        (3,),
    ),
    "addmv": (
        Weighted(lambda x, b, w, v: x * torch.addmv(b, w, v, beta=-1.0), (3,), (3, 3), (3,)),
        (3,),
    ),
    "einsum": (Weighted(lambda x, w: torch.einsum("bi,oi->bo", x, w), (3, 3)), (3,)),
    "einsum, outer": (Weighted(lambda x, w: torch.einsum("bi,o->bio", x, w), (3,)), (3,)),
    "div": (Weighted(lambda x, w: x / (w.abs() + 1), (3,)), (3,)),
    "expanded": (
        Weighted(lambda x, w: torch.cat([x, w.expand(x.shape[0], 2)], 1).tanh(), (2,)),
        (3,),
    ),
    "shared": (Weighted(lambda x, w: (x @ w).relu() @ w, (3, 3)), (3,)),
    "maximum": (Weighted(torch.maximum, (3,)), (3,)),
}


BALLS = {
    "Linf": lambda: bl.Linf(eps=0.2),
    "L2": lambda: bl.L2(eps=0.3),
    "L1": lambda: bl.L1(eps=0.4),
}


@pytest.mark.parametrize("both", [False, True], ids=["parameters", "parameters and input"])
@pytest.mark.parametrize("norm", ["Linf", "L2", pytest.param("L1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", PARAMETERS)
def test_perturbed_parameters(name: str, norm: str, both: bool) -> None:
    module, given = PARAMETERS[name]
    module = copy.deepcopy(module).double()
    generator = torch.Generator().manual_seed(1)
    draw = lambda shape: torch.randn(4, *shape, generator=generator, dtype=torch.float64)
    inputs = (
        (draw((3,)), draw((3,)))
        if given is None
        else (given,)
        if isinstance(given, Tensor)
        else (draw(given),)
    )
    if both and isinstance(given, Tensor):
        pytest.skip("words cannot move")
    net = net_of(name, module, inputs)
    entries = tuple(bl.Linf(x, 0.3) if both else x for x in inputs)
    perturb = {path: BALLS[norm]() for path, _ in module.named_parameters()}
    placed = {path: perturb[path].at(value.detach()) for path, value in module.named_parameters()}
    truth = []
    for sign in (0, 0, 0, 0, 0, 0, 1, -1):  # random members, and for boxes two corners
        at = {path: _member(set_, sign, generator, False) for path, set_ in placed.items()}
        points = tuple(
            _member(e, sign, generator, True) if isinstance(e, bl.Region) else e for e in entries
        )
        with torch.no_grad():
            truth.append(pytree.tree_leaves(torch.func.functional_call(module, at, points)))
    for method in METHODS:
        bounds = net.bounds(*entries, method=method, alpha=steps(method), perturb=perturb)
        leaves = pytree.tree_leaves(bounds, is_leaf=lambda b: isinstance(b, bl.Bounds))
        for values in truth:
            for value, bound in zip(values, leaves, strict=True):
                assert_inside(value, bound.lower.detach(), bound.upper.detach(), method)


def _member(set_: bl.Region, sign: int, generator: torch.Generator, batched: bool) -> Tensor:
    if sign and set_.is_box:
        return set_.hull().upper if sign > 0 else set_.hull().lower
    return set_.sample(generator, batched)


_NETS: dict[str, bl.Net] = {}


def net_of(name: str, module: nn.Module, inputs: tuple[Tensor, ...]) -> bl.Net:
    """The net of a module, captured once; parameters are read from the module at every question."""
    if name not in _NETS:
        _NETS[name] = bl.capture(module, *inputs)
    known = _NETS[name]
    return bl.Net(module, known.graph, known._inputs, known._outputs)


TWO = {
    "mul": torch.mul,
    "sub": torch.sub,
    "maximum": torch.maximum,
    "div": lambda x, y: x / (y * y + 1),
    "bmm": lambda x, y: torch.bmm(x.unsqueeze(1), y.unsqueeze(2)),
    "where": lambda x, y: torch.where(x > y, x, 2 * y),
    "cat": lambda x, y: torch.cat([x, y], 1).softmax(1),
    "nested": lambda x, y: torch.tanh(x * y) * x,
}


@pytest.mark.parametrize(
    "kinds",
    [("Linf", "Linf"), ("L2", "Linf"), ("L2", "L1"), ("Linf", "fixed"), ("fixed", "L1")],
    ids="-".join,
)
@pytest.mark.parametrize("name", TWO)
def test_two_inputs(name: str, kinds: tuple[str, str]) -> None:
    generator = torch.Generator().manual_seed(2)
    x, y = (torch.randn(6, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    sets = {
        "Linf": lambda t: bl.Linf(t, 0.5),
        "L2": lambda t: bl.L2(t, 0.8),
        "L1": lambda t: bl.L1(t, 1.0),
        "fixed": lambda t: t,
    }
    net = net_of(f"two inputs, {name}", Applied(TWO[name]), (x, y))
    check_sound(
        TWO[name],
        tuple(sets[kind](t) for kind, t in zip(kinds, (x, y), strict=True)),
        net=net,
        count=16,
    )


# -- is everything covered? ------------------------------------------------------------------------


VALUES: dict[Any, tuple[Any, ...]] = {
    aten._native_batch_norm_legit.no_stats: (
        torch.randn(4, 3),
        torch.rand(3),
        torch.rand(3),
        True,
        0.1,
        1e-5,
    ),
    aten.batch_norm.default: (
        torch.randn(4, 3),
        torch.rand(3),
        torch.rand(3),
        torch.rand(3),
        torch.rand(3),
        False,
        0.1,
        1e-5,
        False,
    ),
    aten.floor_divide.default: (torch.tensor([49.0, 98.0, -3.0, 7.5]), 49.0),
    aten.std.default: (torch.randn(4, 3),),
    aten.var.default: (torch.randn(4, 3), False),
    aten.embedding.default: (torch.randn(5, 3), WORDS),
}
"""Compositions that no case reaches -> arguments for which they must equal their operator."""


NO_CASE = {
    "torch.export takes it apart": (
        "atleast_1d atleast_2d broadcast_to broadcast_tensors chunk expand_as flatten "
        "hardshrink mT movedim narrow numpy_T ravel reshape_as softshrink "
        "swapaxes tensor_split to unflatten view_as"
    ),
    "it only copies, and torch.export leaves it out": (
        "alpha_dropout contiguous detach dropout feature_alpha_dropout feature_dropout "
        "lift_fresh_copy positive"
    ),
    "compositions and capture make it": (
        "clean cut_off reshape rounded rounded_in_place softsign tanhshrink within"
    ),
    "train mode: tested with whole networks": "_native_batch_norm_legit_functional.default",
}
"""Registered operators that no exported case contains, with the reason."""


@pytest.mark.parametrize("op", VALUES, ids=str)
def test_composition_equals_its_operator(op: Any) -> None:
    expected = op(*VALUES[op])
    found = COMPOSITIONS[op](*VALUES[op])
    for a, b in zip(pytree.tree_leaves(found), pytree.tree_leaves(expected), strict=True):
        if b.numel() and a.shape == b.shape:
            torch.testing.assert_close(a, b)
    torch.testing.assert_close(pytree.tree_leaves(found)[0], pytree.tree_leaves(expected)[0])


def test_every_registered_operator_is_tested() -> None:
    """Operators are looked for in the exported cases, before compositions are taken apart."""
    seen: set[Any] = set(VALUES)
    models = [
        (Bundle(names, torch.float32), (centre(CASES[names[0]], torch.float32),))
        for names in set(GROUPS.values())
    ]
    models += [(PARAMETERS[name][0], (torch.zeros(4, 3),)) for name in ("outer", "dot", "inner")]
    for model, inputs in models:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of its own constants while it exports
            program = torch.export.export(model, inputs).run_decompositions({})
        seen |= {node.target for node in program.graph.nodes}
    seen |= {getattr(op, "overloadpacket", op) for op in seen}
    excused = {name for names in NO_CASE.values() for name in names.split()}
    missing = {_short(op) for op in built_in_operators() if op not in seen} - excused
    assert not missing, f"operators without a case: {sorted(missing)}"


def _short(op: Any) -> str:
    return (
        str(op).removeprefix("aten.")
        if hasattr(op, "overloads") or hasattr(op, "overloadpacket")
        else op.__name__
    )
