"""Random branching networks, built directly as graphs or run through the PyTorch front end.

A program is a list of instructions (operator, operand, operand, seed); every value is a batch of
vectors (batch, WIDTH) and every instruction reads values made before, so any list of numbers is a
valid program.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from boundlab.graph.graph import Graph, Node, Ref
from boundlab.graph.layout import Layout
from boundlab.net.captured import Captured
from tests.helpers.contract import check_sound

aten = torch.ops.aten
WIDTH, BATCH = 4, 2
Instruction = tuple[int, int, int, int]


@dataclass
class Emit:
    """Writes nodes, or computes values: the same builder functions serve for graphs and for eager
    execution."""

    dtype: torch.dtype
    nodes: dict[str, Node] | None = None
    constants: dict[str, Tensor] | None = None

    def __call__(
        self, op: Callable[..., Any], *args: Any, batched: bool = True, **kwargs: Any
    ) -> Any:
        if self.nodes is None or self.constants is None:
            return op(*args, **kwargs)

        def store(leaf: Any) -> Any:
            if isinstance(leaf, Tensor):
                name = f"c{len(self.constants)}"  # type: ignore[arg-type]
                self.constants[name] = leaf  # type: ignore[index]
                self.nodes[name] = Node(name)  # type: ignore[index]
                return Ref(name)
            return leaf

        args, kwargs = pytree.tree_map(store, args), pytree.tree_map(store, kwargs)
        name = f"n{len(self.nodes)}"
        self.nodes[name] = Node(name, op, args, kwargs, layout=Layout() if batched else None)
        return Ref(name)

    def tensor(self, seed: int, *shape: int) -> Tensor:
        return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape)).to(self.dtype)


Builder = Callable[[Emit, Any, Any, int], Any]


def _unary(op: Callable[..., Any], *args: Any, **kwargs: Any) -> Builder:
    return lambda e, x, y, seed: e(op, x, *args, **kwargs)


def _after(first: Builder, second: Builder) -> Builder:
    return lambda e, x, y, seed: second(e, first(e, x, y, seed), y, seed)


def _tamed(op: Callable[..., Any], *args: Any) -> Builder:
    """op of a bounded argument, so that values do not explode."""
    return lambda e, x, y, seed: e(op, e(aten.mul.Tensor, e(aten.tanh.default, x), 2.0), *args)


def _positive(op: Callable[..., Any], *args: Any) -> Builder:
    return lambda e, x, y, seed: e(
        op, e(aten.add.Tensor, e(aten.pow.Tensor_Scalar, x, 2), 0.3), *args
    )


def _linear(e: Emit, x: Any, y: Any, seed: int) -> Any:
    return e(aten.linear.default, x, e.tensor(seed, WIDTH, WIDTH), e.tensor(seed + 1, WIDTH))


def _conv(e: Emit, x: Any, y: Any, seed: int) -> Any:
    image = e(aten.unsqueeze.default, x, 1)
    out = e(
        aten.conv1d.default,
        image,
        e.tensor(seed, 2, 1, 3),
        e.tensor(seed, 2),
        [1],
        [1 + seed % 2],
        [1 + seed % 2],
    )
    return e(aten.mean.dim, out, [1])


def _slices(e: Emit, x: Any, y: Any, seed: int) -> Any:
    cut = 1 + seed % (WIDTH - 1)
    return e(
        aten.cat.default,
        [e(aten.slice.Tensor, x, 1, cut, WIDTH), e(aten.slice.Tensor, y, 1, 0, cut)],
        1,
    )


def _pool(e: Emit, x: Any, y: Any, seed: int) -> Any:
    windows = torch.tensor([[0, 1, 2], [1, 2, 3], [2, 3, 0], [3, 0, 0]])
    gathered = e(aten.index_select.default, x, 1, windows.flatten())
    return e(aten.amax.default, e(aten.reshape.default, gathered, [-1, WIDTH, 3]), [-1])


def _larger(e: Emit, x: Any, y: Any, seed: int) -> Any:
    return e(aten.amax.default, e(aten.stack.default, [x, y], -1), [-1])


def _matmul(e: Emit, x: Any, y: Any, seed: int) -> Any:
    left, right = e(aten.reshape.default, x, [-1, 2, 2]), e(aten.reshape.default, y, [-1, 2, 2])
    return e(aten.reshape.default, e(aten.matmul.default, left, right), [-1, WIDTH])


def _attention(e: Emit, x: Any, y: Any, seed: int) -> Any:
    weights = e(
        aten._softmax.default, e(aten.linear.default, x, e.tensor(seed, WIDTH, WIDTH)), -1, False
    )
    return e(aten.mul.Tensor, weights, y)


def _choice(e: Emit, x: Any, y: Any, seed: int) -> Any:
    return e(aten.where.self, e(aten.gt.Tensor, x, y), x, e(aten.mul.Tensor, y, 0.5))


def _masked(e: Emit, x: Any, y: Any, seed: int) -> Any:
    return e(aten.where.self, e.tensor(seed, WIDTH) > 0, x, y)


def _normalised(e: Emit, x: Any, y: Any, seed: int) -> Any:
    centred = e(aten.sub.Tensor, x, e(aten.mean.dim, x, [-1], True))
    variance = e(aten.mean.dim, e(aten.pow.Tensor_Scalar, centred, 2), [-1], True)
    return e(aten.mul.Tensor, centred, e(aten.rsqrt.default, e(aten.add.Tensor, variance, 0.1)))


def _logsumexp(e: Emit, x: Any, y: Any, seed: int) -> Any:
    return e(aten.sub.Tensor, y, e(aten.logsumexp.default, x, [-1], True))


def _binary(op: Callable[..., Any]) -> Builder:
    return lambda e, x, y, seed: e(op, x, y)


BUILDERS: dict[str, Builder] = {
    **{op: _unary(getattr(aten, op).default) for op in (
        "relu", "tanh", "sigmoid", "gelu", "silu", "mish", "softplus", "elu", "celu", "selu",
        "hardtanh", "hardswish", "hardsigmoid",
        "relu6", "softshrink", "hardshrink", "abs", "neg", "atan", "erf", "sin", "cos", "sign",
        "floor", "ceil", "log_sigmoid", "asinh",
    )},
    "leaky": _unary(aten.leaky_relu.default, 0.2),
    "steep": _unary(aten.leaky_relu.default, 1.5),
    "gelu_tanh": _unary(aten.gelu.default, approximate="tanh"),
    "clamp": _unary(aten.clamp.default, -0.7, 0.9),
    "threshold": _unary(aten.threshold.default, 0.1, -0.4),
    "exp": _tamed(aten.exp.default), "square": _tamed(aten.pow.Tensor_Scalar, 2),
    "cube": _tamed(aten.pow.Tensor_Scalar, 3),
    "fourth": _tamed(aten.pow.Tensor_Scalar, 4), "sinh": _tamed(aten.sinh.default),
    "cosh": _tamed(aten.cosh.default),
    "log": _positive(aten.log.default), "sqrt": _positive(aten.sqrt.default),
    "rsqrt": _positive(aten.rsqrt.default),
    "reciprocal": _positive(aten.reciprocal.default),
    "power": _positive(aten.pow.Tensor_Scalar, 1.5),
    "inverse": _positive(aten.pow.Tensor_Scalar, -2),
    "linear": _linear, "conv": _conv, "slices": _slices, "pool": _pool, "larger": _larger,
    "matmul": _matmul, "attention": _attention,
    "choice": _choice, "masked": _masked, "normalised": _normalised, "logsumexp": _logsumexp,
    "softmax": _unary(aten._softmax.default, -1, False), "flip": _unary(aten.flip.default, [1]),
    "roll": _unary(aten.roll.default, [1], [1]),
    "cumsum": _unary(aten.cumsum.default, 1), "scale": lambda e, x, y,
    seed: e(aten.mul.Tensor, x, e.tensor(seed, WIDTH)),
    "shift": lambda e, x, y, seed: e(aten.add.Tensor, x, e.tensor(seed, WIDTH)),
    "add": _binary(aten.add.Tensor), "sub": _binary(aten.sub.Tensor),
    "mul": _binary(aten.mul.Tensor),
}  # fmt: skip
NAMES = tuple(BUILDERS)


def apply(program: list[Instruction], emit: Emit, x: Any) -> Any:
    """Run the program; the output adds the last value and an earlier one, squashed so that depth
    does not explode."""
    values = [x]
    for op, first, second, seed in program:
        value = BUILDERS[NAMES[op % len(NAMES)]](
            emit, values[first % len(values)], values[second % len(values)], seed
        )
        values.append(value)
    return values[-1]


def as_graph(program: list[Instruction], dtype: torch.dtype) -> bl.Net:
    """The program as a captured network, without the front end."""
    nodes: dict[str, Node] = {"x": Node("x", layout=Layout())}
    constants: dict[str, Tensor] = {}
    output = apply(program, Emit(dtype, nodes, constants), Ref("x"))
    examples = {"x": ((0, WIDTH), dtype, True)}
    graph = Graph(nodes, ("x",), {}, constants, (output,), batched=True, examples=examples)
    leaf = pytree.tree_structure(0)
    return bl.Net(Captured(nn.Module(), graph, pytree.tree_structure(((0,), {})), leaf))


class Program(nn.Module):
    """The program as a plain PyTorch module."""

    def __init__(self, program: list[Instruction], dtype: torch.dtype) -> None:
        super().__init__()
        self.program, self.dtype = program, dtype

    def forward(self, x: Tensor) -> Tensor:
        return apply(self.program, Emit(self.dtype), x)


def random_program(rng: random.Random, longest: int = 9) -> list[Instruction]:
    return [tuple(rng.randrange(1 << 16) for _ in range(4)) for _ in range(rng.randint(1, longest))]  # type: ignore[misc]


def random_region(rng: random.Random, dtype: torch.dtype) -> bl.Region:
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    x = torch.randn(BATCH, WIDTH, generator=generator, dtype=torch.float64).to(dtype) * rng.choice(
        [0.3, 1.0, 3.0]
    )
    eps = rng.choice([1e-4, 0.01, 0.1, 0.5, 2.0])
    per_element = torch.rand(BATCH, WIDTH, generator=generator, dtype=torch.float64).to(dtype) * eps
    per_element[:, 0] = 0
    return rng.choice(
        [
            lambda: bl.Linf(x, eps),
            lambda: bl.Linf(x, per_element),
            lambda: bl.L2(x, eps),
            lambda: bl.L1(x, torch.tensor([eps, eps / 2], dtype=dtype)),
            lambda: bl.Lp(x, 3, eps),
            lambda: bl.L0(x, 2, -1.0, 1.5),
            lambda: bl.Box(x - per_element, x + eps),
            lambda: bl.L2(x, eps, lower=x - eps / 2, upper=x + eps / 2),
        ]
    )()


def attack(
    program: list[tuple[int, int, int, int]],
    region: Callable[[torch.dtype], bl.Region],
    dtype: torch.dtype,
    **options: Any,
) -> bool:
    """Attack the bounds of a random graph. In single precision a deep graph can multiply rounding
    errors beyond any tolerance (the cosine of a number near 200): a failure there counts if double
    precision shows it too. Returns whether it did not."""
    ask = lambda kind: check_sound(
        Program(program, kind), (region(kind),), net=as_graph(program, kind), count=6, **options
    )
    with torch.no_grad():
        try:
            ask(dtype)
        except AssertionError:
            if dtype == torch.float64:
                raise
            ask(torch.float64)
            return True
    return False
