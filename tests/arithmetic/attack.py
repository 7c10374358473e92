"""An attack on bounds that are proved for an arithmetic: with no tolerance at all.

python -m tests.arithmetic.attack --count 20 --seed 0    every operator, in boxes of several sizes
python -m tests.arithmetic.attack --networks             every node of all networks of the tests
python -m tests.arithmetic.attack --compiled             executed as torch.compile makes them too

Executed values are compared with bounds as they are, in double precision. ``--plain`` attacks the
bounds that take rounding for nothing, to show what the attack finds.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

import boundlab as bl
from boundlab.errors import BoundlabError
from boundlab.graph.graph import Ref
from tests.networks import NETWORKS
from tests.operator_cases import BATCH, CASES, OperatorCase

METHODS = ("ibp", "crown-ibp", "forward", "forward+backward", "crown", "alpha-crown")
RADII = (0.0, 1e-6, 1e-3, 0.3)


@dataclass
class Counts:
    """How many bounds were attacked, how many were violated, and what was refused, with reasons."""

    attacked: int = 0
    violated: int = 0
    worst: dict[str, float] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def box(centre: Tensor, radius: float, low: float, high: float) -> bl.Box:
    """A box of exact ends."""
    return bl.Box((centre - radius).clamp(low, high), (centre + radius).clamp(low, high))


def points(region: bl.Box, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Members of a box: the ends, vertices, and others, all of them exactly inside."""
    lower, upper = region.lower, region.upper
    yield lower
    yield upper
    for _ in range(count):
        yield torch.where(torch.rand(lower.shape, generator=generator) < 0.5, lower, upper)
        share = torch.rand(lower.shape, generator=generator, dtype=lower.dtype)
        point = lower + share * (upper - lower)
        yield torch.minimum(torch.maximum(point, lower), upper)


def executions(model: Callable[[Tensor], Tensor], x: Tensor, batched: bool) -> Iterator[Tensor]:
    """The model's outputs, executed in several ways that sum in other orders."""
    yield model(x)
    threads = torch.get_num_threads()
    torch.set_num_threads(3 - min(threads, 2))  # two instead of one, one instead of more
    yield model(x)
    torch.set_num_threads(threads)
    if not batched:
        return
    yield torch.cat([model(part) for part in x.split(5)])
    strided = torch.stack([x, x], -1)[..., 0]
    yield model(strided)
    if x.dim() == 4:
        yield model(x.contiguous(memory_format=torch.channels_last))


def attack(
    name: str,
    model: Callable[[Tensor], Tensor],
    region: bl.Box,
    bounds: Callable[[str], bl.Bounds],
    counts: Counts,
    count: int,
    seed: int,
    batched: bool = True,
    compiled: bool = False,
) -> None:
    """Attack the bounds of every method with the same executions."""
    generator = torch.Generator().manual_seed(seed)
    models = [model]
    if compiled:
        torch.compiler.reset()
        models.append(torch.compile(model))
    low: Tensor | None = None
    high: Tensor | None = None
    with torch.no_grad():
        for x in points(region, count, generator):
            executed = (executions(one, x, batched) for one in models)
            for y in itertools.chain.from_iterable(executed):
                value = y.double()
                low = value if low is None else torch.minimum(low, value)
                high = value if high is None else torch.maximum(high, value)
    assert low is not None and high is not None
    for method in METHODS:
        try:
            found = bounds(method)
        except BoundlabError as error:
            counts.refused[f"{name}, {method}"] = f"{type(error).__name__}: {error}"[:300]
            continue
        compare(f"{name}, {method}", found, low, high, counts)


def regions(case: OperatorCase, generator: torch.Generator, dtype: torch.dtype) -> Iterator[bl.Box]:
    shape = (BATCH, *case.shape) if case.batched else case.shape
    low, high = max(case.low, -3.0), min(case.high, 3.0)
    for radius in RADII:
        centre = low + (high - low) * torch.rand(shape, generator=generator, dtype=dtype)
        yield box(centre, radius, case.low, case.high)


def attack_case(
    name: str,
    counts: Counts,
    arithmetic: str | None,
    count: int,
    seed: int,
    dtype: torch.dtype,
    compiled: bool = False,
) -> None:
    """Attack the bounds of one operator."""
    case = CASES[name]
    generator = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(case.model).to(dtype)
    net: bl.Net | None = None
    for region in regions(case, generator, dtype):
        if net is None:
            net = bl.capture(model, region.centre, batched=False if case.alone else None)
        net_ = net
        region_ = region

        def ask(method: str, net: bl.Net = net_, region: bl.Box = region_) -> bl.Bounds:
            alpha = bl.Alpha(iterations=2, inner=1) if method == "alpha-crown" else None
            found = net.bounds(region, method=method, alpha=alpha, arithmetic=arithmetic)
            leaf = found
            while isinstance(leaf, (tuple, list)):
                leaf = leaf[0]
            assert isinstance(leaf, bl.Bounds)
            return leaf

        def first(x: Tensor) -> Tensor:
            y = model(x)
            while isinstance(y, (tuple, list)):
                y = y[0]
            return y

        batched = case.batched and not case.alone
        attack(name, first, region, ask, counts, count, seed, batched, compiled)


def attack_network(
    name: str,
    counts: Counts,
    arithmetic: str | None,
    count: int,
    seed: int,
    compiled: bool = False,
) -> None:
    """Attack the bounds of every node of a network, executed node by node and as a whole, whose
    inputs all move."""
    case = NETWORKS[name]
    generator = torch.Generator().manual_seed(seed)
    model, inputs = case.model(), case.inputs(4, seed=seed)
    net = bl.capture(model, *inputs)
    for radius in (1e-6, 1e-2):
        boxes = [box(x, radius, -math.inf, math.inf) for x in inputs]
        drawn = [list(points(region, count, generator)) for region in boxes]
        orders: list[Callable[..., object]] = [permuted(model, generator) for _ in range(4)]
        if compiled:
            torch.compiler.reset()
            orders.append(torch.compile(model))
        low, high = ranges(net, list(zip(*drawn, strict=True)), orders)
        for method in METHODS[:-1]:
            try:
                found = net.bounds(*boxes, method=method, arithmetic=arithmetic, intermediates=True)
            except BoundlabError as error:
                counts.refused[f"{name}, {method}"] = f"{type(error).__name__}: {error}"[:300]
                continue
            while not isinstance(found, bl.Bounds):
                found = next(iter(found.values())) if isinstance(found, dict) else found[0]
            known = dict(found.intermediates)
            for node in low.keys() & known.keys():
                compare(f"{name}, {method}", known[node], low[node], high[node], counts)


def permuted(model: nn.Module, generator: torch.Generator) -> nn.Module:
    """The same function with the hidden units of a chain of layers in another order, so that sums
    are taken in another order; the model itself if it is none."""
    model = copy.deepcopy(model)
    if not isinstance(model, nn.Sequential):
        return model
    layers = [layer for layer in model if isinstance(layer, (nn.Linear, nn.Conv2d))]
    plain = (nn.Linear, nn.Conv2d, nn.ReLU, nn.Tanh, nn.Sigmoid, nn.GELU)
    if not all(isinstance(layer, plain) for layer in model):
        return model
    with torch.no_grad():
        for first, second in itertools.pairwise(layers):
            if type(first) is type(second):
                order = torch.randperm(first.weight.shape[0], generator=generator)
                first.weight.copy_(first.weight[order])
                second.weight.copy_(second.weight[:, order])
                if first.bias is not None:
                    first.bias.copy_(first.bias[order])
    return model


def ranges(
    net: bl.Net, members: list[tuple[Tensor, ...]], orders: list[Callable[..., object]]
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The least and the largest values of every floating-point node that were executed; of outputs
    by the model with its sums in other orders too."""
    low: dict[str, Tensor] = {}
    high: dict[str, Tensor] = {}
    # what padded tokens become is another function in the fast path of torch's encoders
    torch.backends.mha.set_fastpath_enabled(False)
    for xs in members:
        values = net.reader.entries(xs, {})[0]
        with torch.no_grad():
            run = net.graph.run(values)
            wholes = [pytree.tree_leaves(model(*xs)) for model in (net.source, *orders)]
        outputs = [out.name for out in net.graph.outputs if isinstance(out, Ref)]
        pairs = [*run.items()]
        for whole in wholes:
            pairs += zip(outputs, whole, strict=False)
        for node, value in pairs:
            if isinstance(value, Tensor) and value.is_floating_point():
                value = value.detach().double()
                low[node] = torch.minimum(low.get(node, value), value)
                high[node] = torch.maximum(high.get(node, value), value)
    return low, high


def compare(key: str, found: bl.Bounds, low: Tensor, high: Tensor, counts: Counts) -> None:
    """Count the bounds that hold and those that do not."""
    if not found.lower.is_floating_point():
        return
    excess = torch.maximum(found.lower.double() - low, high - found.upper.double())
    wrong = ~((found.lower.double() <= low) & (high <= found.upper.double()))
    wrong &= ~(torch.isneginf(found.lower) & torch.isposinf(found.upper))
    counts.attacked += 2 * excess.numel()
    if wrong.any():
        counts.violated += int(wrong.sum())
        worst = float(excess[wrong].nan_to_num(torch.inf).max())
        counts.worst[key] = max(worst, counts.worst.get(key, 0.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--arithmetic", default="float32")
    parser.add_argument("--networks", action="store_true", help="all networks of the tests instead")
    parser.add_argument("--compiled", action="store_true", help="by torch.compile too: slow")
    options = parser.parse_args()
    counts = Counts()
    arithmetic = None if options.plain else options.arithmetic
    dtype = torch.float64 if options.arithmetic == "float64" else torch.float32
    for name in options.only or (NETWORKS if options.networks else CASES):
        try:
            if options.networks:
                about = (options.count, options.seed, options.compiled)
                attack_network(name, counts, arithmetic, *about)
            else:
                about = (options.count, options.seed, dtype, options.compiled)
                attack_case(name, counts, arithmetic, *about)
        except BoundlabError as error:
            counts.refused[name] = f"{type(error).__name__}: {error}"[:300]
        except Exception as error:
            counts.refused[name] = f"CRASH {type(error).__name__}: {error}"[:300]
    print(f"{counts.attacked} bounds attacked, {counts.violated} violated")
    for key, worst in sorted(counts.worst.items(), key=lambda item: -item[1]):
        print(f"  {key}: by {worst:.3e}")
    print(f"refused: {len(counts.refused)}")
    for reason in dict.fromkeys(counts.refused.values()):
        keys = [key for key, other in counts.refused.items() if other == reason]
        print(f"  {keys[0]} and {len(keys) - 1} more: {reason}")


if __name__ == "__main__":
    main()
