"""Every fact that a row of the table states of an operator holds, numerically, on small examples.

The tests are made from the registry: an operator that states facts and has no example here fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from boundlab.coefficients.outer import Outer
from boundlab.coefficients.window import Window
from boundlab.graph.graph import Node, Ref
from boundlab.relaxations.interval import Interval
from boundlab.rules.facts import Facts
from boundlab.rules.registry import RULES, Call, find_rule

aten = torch.ops.aten


class X(tuple[int, ...]):
    """The shape of a perturbed argument."""

    def __new__(cls, *shape: int) -> X:
        return super().__new__(cls, shape)


class C(X):
    """The shape of a constant one."""


def integers(*values: int) -> Tensor:
    return torch.tensor(values)


MASK = torch.tensor([True, False, True])
INDEX = torch.tensor([[0, 2], [1, 1]])

EXAMPLES: list[tuple[Any, ...]] = [
    (aten.view.default, X(2, 3, 4), [2, 12]),
    (aten.reshape.default, X(2, 3, 4), [2, 2, 6]),
    (aten.reshape.default, X(2, 6), [12]),
    (aten.flatten.using_ints, X(2, 3, 4), 1),
    (aten.unflatten.int, X(2, 6), 1, [2, 3]),
    (aten.squeeze.dim, X(2, 1, 3), 1),
    (aten.squeeze.default, X(2, 1, 3)),
    (aten.unsqueeze.default, X(2, 3), 1),
    (aten._unsafe_view.default, X(2, 3), [6]),
    (aten.ravel.default, X(2, 3)),
    (aten.atleast_1d.default, X(2)),
    (aten.atleast_2d.default, X(2)),
    (aten.view_as.default, X(2, 3), C(6)),
    (aten.view_as.default, X(2, 3), X(6)),
    (aten.reshape_as.default, X(2, 3), C(6)),
    (aten.grid_sampler_2d.default, X(2, 2, 3, 3), C(2, 4, 2, 2), 0, 0, False),
    (aten.grid_sampler_2d.default, X(2, 1, 4, 4), C(2, 2, 2, 2), 2, 1, True),
    (aten.grid_sampler_3d.default, X(2, 1, 2, 3, 2), C(2, 1, 2, 2, 3), 0, 2, False),
    (aten.permute.default, X(2, 3, 4, 2), [0, 3, 1, 2]),
    (aten.permute.default, X(2, 3, 4), [-1, 0, 1]),
    (aten.transpose.int, X(2, 3, 4), -1, 1),
    (aten.transpose.int, X(2, 3), 0, 1),
    (aten.t.default, X(2, 3)),
    (aten.movedim.int, X(2, 3, 4), 0, 2),
    (aten.swapaxes.default, X(2, 3, 4), 1, 2),
    (aten.numpy_T.default, X(2, 3)),
    (aten.mT.default, X(2, 3, 4)),
    (aten.flip.default, X(2, 3, 4), [1, -1]),
    (aten.fliplr.default, X(2, 3)),
    (aten.flipud.default, X(2, 3)),
    (aten.rot90.default, X(2, 3), 1, [0, 1]),
    (aten.roll.default, X(2, 3), [1], [1]),
    (aten.diagonal.default, X(2, 3, 3), 1, 1, 2),
    (aten.pixel_shuffle.default, X(1, 4, 2, 2), 2),
    (aten.pixel_unshuffle.default, X(1, 1, 4, 4), 2),
    (aten.channel_shuffle.default, X(1, 4, 2), 2),
    (aten.slice.Tensor, X(2, 5), 1, 1, 4),
    (aten.slice.Tensor, X(2, 5), 1, -4, 9, 2),
    (aten.slice.Tensor, X(2, 5)),
    (aten.select.int, X(2, 3, 4), 1, -1),
    (aten.narrow.default, X(2, 5), 1, 2, 2),
    (aten.unbind.int, X(2, 3), 1, {"output": 2}),
    (aten.split.Tensor, X(2, 5), 2, 1, {"output": 1}),
    (aten.split_with_sizes.default, X(2, 5), [2, 3], 1, {"output": 1}),
    (aten.chunk.default, X(2, 5), 3, 1, {"output": 2}),
    (aten.tensor_split.sections, X(2, 5), 3, 1, {"output": 0}),
    (aten.expand.default, X(2, 1, 3), [2, 4, 3]),
    (aten.expand.default, X(3), [2, 3]),
    (aten.expand_as.default, X(2, 1), C(2, 3)),
    (aten.broadcast_to.default, X(2, 1), [2, 3]),
    (aten.repeat.default, X(2, 3), [1, 2]),
    (aten.repeat_interleave.self_int, X(2, 3), 2, 1),
    (aten.tile.default, X(2, 3), [1, 2]),
    (aten.unfold.default, X(2, 5), 1, 3, 1),
    (aten.im2col.default, X(1, 1, 3, 3), [2, 2], [1, 1], [1, 1], [1, 1]),
    (aten.diag_embed.default, X(2, 3)),
    (aten.tril.default, X(2, 3, 3)),
    (aten.triu.default, X(2, 3, 3), 1),
    (aten.index.Tensor, X(2, 3), [None, integers(2, 0, 2)]),
    (aten.index.Tensor, X(2, 3), [None, MASK]),
    (aten.index_select.default, X(2, 3), 1, integers(2, 0, 2)),
    (aten.gather.default, X(2, 3), 1, INDEX),
    (aten.take.default, X(2, 3), INDEX),
    (aten.take_along_dim.default, X(2, 3), INDEX, 1),
    (aten.cat.default, [X(2, 3), X(2, 2)], 1),
    (aten.cat.default, [X(2, 3), C(2, 2)], -1),
    (aten.cat.default, [X(2, 3), X(1, 3)]),
    (aten.stack.default, [X(2, 3), X(2, 3)], 1),
    (aten.stack.default, [C(2, 3), X(2, 3)]),
    (aten.concat.default, [X(2, 3), C(2, 2)], 1),
    (aten.hstack.default, [X(2, 3), C(2, 2)]),
    (aten.vstack.default, [X(2, 3), C(1, 3)]),
    (aten.constant_pad_nd.default, X(2, 3), [1, 2], 0.5),
    (aten.index_put.default, X(2, 3), [None, integers(2, 0)], C(2, 2)),
    (aten.index_put.default, X(2, 3), [None, integers(1, 1)], X(2, 2), True),
    (aten.scatter.src, X(2, 3), 1, INDEX, C(2, 2)),
    (aten.scatter.value, X(2, 3), 1, INDEX, 0.5),
    (aten.scatter_add.default, X(2, 3), 1, INDEX, X(2, 2)),
    (aten.index_copy.default, X(2, 3), 1, integers(2, 0), C(2, 2)),
    (aten.masked_select.default, X(2, 3), MASK),
    (aten.broadcast_tensors.default, [X(2, 1), C(2, 3)], {"output": 0}),
    (aten.diag.default, X(3, 3)),
    (aten.col2im.default, X(1, 4, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
    (aten.diagonal_scatter.default, X(3, 3), C(3)),
    (aten.pad.default, X(2, 3), [1, 1], "constant", 0.5),
    (aten.reflection_pad1d.default, X(1, 2, 4), [1, 2]),
    (aten.reflection_pad2d.default, X(1, 1, 3, 3), [1, 1, 1, 1]),
    (aten.reflection_pad3d.default, X(1, 1, 2, 2, 2), [1] * 6),
    (aten.replication_pad1d.default, X(1, 2, 4), [1, 2]),
    (aten.replication_pad2d.default, X(1, 1, 3, 3), [1, 1, 1, 1]),
    (aten.replication_pad3d.default, X(1, 1, 2, 2, 2), [1] * 6),
    (aten._pad_circular.default, X(1, 2, 4), [1, 2]),
    (aten.upsample_nearest1d.default, X(1, 1, 3), [5]),
    (aten.upsample_nearest2d.default, X(1, 1, 2, 2), [3, 3]),
    (aten.upsample_nearest3d.default, X(1, 1, 2, 2, 2), [3, 3, 3]),
    (aten._upsample_nearest_exact1d.default, X(1, 1, 3), [5]),
    (aten._upsample_nearest_exact2d.default, X(1, 1, 2, 2), [3, 3]),
    (aten._upsample_nearest_exact3d.default, X(1, 1, 2, 2, 2), [3, 3, 3]),
    (aten.upsample_linear1d.default, X(1, 1, 3), [5], False),
    (aten.upsample_bilinear2d.default, X(1, 1, 2, 2), [3, 3], True),
    (aten.upsample_trilinear3d.default, X(1, 1, 2, 2, 2), [3, 3, 3], False),
    (aten.sum.default, X(2, 3)),
    (aten.sum.dim_IntList, X(2, 3, 4), [1, -1]),
    (aten.sum.dim_IntList, X(2, 3, 4), [2], True),
    (aten.mean.default, X(2, 3)),
    (aten.mean.dim, X(2, 3, 4), [1], True),
    (aten.mean.dim, X(2, 3, 4), [-1, 1]),
    (aten.cumsum.default, X(2, 3), 1),
    (aten.trace.default, X(3, 3)),
    (aten.avg_pool1d.default, X(2, 2, 5), [2]),
    (aten.avg_pool1d.default, X(2, 2, 5), [3], [1], [1]),
    (aten.avg_pool2d.default, X(2, 2, 4, 5), [2, 2]),
    (aten.avg_pool2d.default, X(2, 1, 4, 4), [3, 3], [1, 2], [1, 1]),
    (aten.avg_pool2d.default, X(2, 1, 4, 4), [3, 3], [2, 2], [1, 1], True, False),
    (aten.avg_pool3d.default, X(1, 1, 4, 2, 2), [2, 2, 2]),
    (aten.adaptive_avg_pool1d.default, X(1, 2, 5), [2]),
    (aten.adaptive_avg_pool2d.default, X(1, 2, 4, 3), [2, 2]),
    (aten.adaptive_avg_pool3d.default, X(1, 1, 4, 2, 2), [2, 1, 1]),
    (aten._adaptive_avg_pool2d.default, X(1, 2, 4, 3), [2, 2]),
    (aten._adaptive_avg_pool3d.default, X(1, 1, 4, 2, 2), [2, 1, 1]),
    (aten._to_copy.default, X(2, 3)),
    (aten.to.dtype, X(2, 3), torch.float64),
    (aten.type_as.default, X(2, 3), C(1)),
    (aten.dropout.default, X(2, 3), 0.5, False),
    (aten.feature_dropout.default, X(2, 3), 0.5, False),
    (aten.alpha_dropout.default, X(2, 3), 0.5, False),
    (aten.feature_alpha_dropout.default, X(2, 3), 0.5, False),
    (aten.clone.default, X(2, 3)),
    (aten.contiguous.default, X(2, 3)),
    (aten.alias.default, X(2, 3)),
    (aten.lift_fresh_copy.default, X(2, 3)),
    (aten.positive.default, X(2, 3)),
    (aten.neg.default, X(2, 3)),
    (aten.add.Tensor, X(2, 3), X(2, 3), {"alpha": -2}),
    (aten.add.Tensor, X(2, 3), C(3)),
    (aten.add.Tensor, C(2, 3), X(2, 3), {"alpha": 3}),
    (aten.add.Tensor, C(2, 3), X(3)),
    (aten.add.Tensor, X(2, 3), 0.5),
    (aten.add.Scalar, X(2, 3), 0.5, 2),
    (aten.sub.Tensor, X(2, 3), X(3), {"alpha": 2}),
    (aten.sub.Tensor, C(2, 3), X(2, 3)),
    (aten.sub.Tensor, X(2, 3), C(2, 3), {"alpha": -2}),
    (aten.mul.Tensor, X(2, 3), C(3)),
    (aten.mul.Tensor, C(2, 3), X(1, 3)),
    (aten.mul.Tensor, X(2, 3), -2.0),
    (aten.multiply.Tensor, X(2, 3), C(2, 3)),
    (aten.matmul.default, X(2, 3), C(3, 4)),
    (aten.matmul.default, X(2, 2, 3), C(3, 4)),
    (aten.matmul.default, C(2, 4, 3), X(2, 3, 2)),
    (aten.mm.default, X(2, 3), C(3, 4)),
    (aten.bmm.default, C(2, 4, 3), X(2, 3, 2)),
    (aten.mv.default, X(2, 3), C(3)),
    (aten.dot.default, C(3), X(3)),
    (aten.inner.default, X(2, 3), C(4, 3)),
    (aten.outer.default, X(2), C(3)),
    (aten.linear.default, X(2, 3), C(4, 3)),
    (aten.linear.default, X(2, 3), C(4, 3), C(4)),
    (aten.linear.default, X(2, 2, 3), C(4, 3), C(4)),
    (aten.linear.default, C(2, 3), X(4, 3), C(4)),
    (aten.linear.default, C(2, 3), X(4, 3), X(4)),
    (aten.linear.default, C(2, 2, 3), X(4, 3), X(4)),
    (aten.conv1d.default, X(2, 2, 5), C(3, 2, 3), C(3), [2], [1]),
    (aten.conv1d.default, C(2, 2, 5), X(3, 2, 3), X(3), [2], [1]),
    (aten.conv2d.default, X(2, 2, 4, 5), C(3, 2, 2, 3), C(3), [1, 1], [1, 1]),
    (aten.conv2d.default, X(1, 2, 7, 6), C(4, 1, 3, 3), None, [2, 2], [1, 1], [1, 1], 2),
    (aten.conv2d.default, X(1, 2, 7, 6), C(2, 2, 3, 3), None, [2, 3], [1, 0]),
    (aten.conv2d.default, X(1, 2, 7, 6), C(2, 2, 2, 2), None, [1, 1], [0, 1], [2, 2]),
    (aten.conv2d.default, C(2, 2, 4, 5), X(4, 1, 2, 3), X(4), [1, 2], [1, 1], [1, 1], 2),
    (aten.conv3d.default, X(1, 1, 3, 3, 3), C(2, 1, 2, 2, 2), C(2)),
]  # fmt: skip


def made(op: Any, *args: Any) -> Call:
    """The call of an example, with random constants and intervals around 0."""
    generator = torch.Generator().manual_seed(0)
    options = args[-1] if args and isinstance(args[-1], dict) else {}
    args = args[: len(args) - bool(options)]
    values: dict[str, Any] = {}

    def argument(leaf: Any) -> Any:
        if not isinstance(leaf, X):
            return leaf
        value = torch.randn(tuple(leaf), dtype=torch.float64, generator=generator)
        name = f"v{len(values)}"
        values[name] = value if isinstance(leaf, C) else Interval(value - 1, value + 1)
        return Ref(name)

    args = pytree.tree_map(argument, args, is_leaf=lambda leaf: isinstance(leaf, X))
    kwargs = {name: value for name, value in options.items() if name != "output"}
    return Call.of(Node("y", op, args, kwargs, options.get("output")), values.__getitem__)


def name(example: tuple[Any, ...]) -> str:
    return " ".join(str(part) for part in example if not isinstance(part, Tensor))


every_example = pytest.mark.parametrize("example", EXAMPLES, ids=name)


def jacobian(call: Call) -> tuple[Tensor, Tensor]:
    """J (elements of the result, elements of all perturbed arguments) and the constant term c."""
    zeros = tuple(torch.zeros_like(x.lower) for x in call.inputs)
    parts = torch.autograd.functional.jacobian(call.bind(), zeros)
    constant = call.bind()(*zeros)
    flat = [part.reshape(constant.numel(), x.numel()) for part, x in zip(parts, zeros, strict=True)]
    return torch.cat(flat, 1), constant


def facts(call: Call) -> Facts:
    return find_rule(call.node).facts


@every_example
def test_the_operator_is_affine(example: tuple[Any, ...]) -> None:
    call = made(*example)
    matrix, constant = jacobian(call)
    x = torch.cat([x.lower.flatten() for x in call.inputs])
    torch.testing.assert_close(
        call.bind()(*[x.lower for x in call.inputs]).flatten(), matrix @ x + constant.flatten()
    )


@every_example
def test_properties(example: tuple[Any, ...]) -> None:
    call = made(*example)
    stated = facts(call)
    matrix, constant = jacobian(call)
    entries = matrix != 0
    if stated.monotone:
        assert bool((matrix >= 0).all())
    if stated.linear:
        assert bool((constant == 0).all())
    if stated.moves:
        assert bool((entries.sum(1) <= 1).all())
        assert bool(((matrix == 0) | (matrix == 1)).all())
    if stated.one_to_one:
        assert bool((entries.sum(1) == 1).all())
        assert bool((matrix.abs()[entries] == 1).all())
        assert bool((constant == 0).all())
        assert stated.reads_once is True
    if stated.reads_once_in(call):
        assert bool((entries.sum(0) <= 1).all())
    known = stated.constant_of(call)
    if known is not None:
        expected = torch.as_tensor(known, dtype=constant.dtype).expand(constant.shape)
        torch.testing.assert_close(constant, expected)


@every_example
def test_the_transpose_equals_autograd(example: tuple[Any, ...]) -> None:
    call = made(*example)
    transpose = facts(call).transpose_of(call)
    if transpose is None:
        return
    matrix, constant = jacobian(call)
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(3, *constant.shape, dtype=torch.float64, generator=generator)
    found = transpose(rows)
    assert [part.shape[1:] for part in found] == [x.shape for x in call.inputs]
    torch.testing.assert_close(
        torch.cat([part.flatten(1) for part in found], 1), rows.reshape(len(rows), -1) @ matrix
    )


def single_elements(result: Tensor) -> Iterator[tuple[Window, Tensor]]:
    """Coefficients with one element of every sample each, as windows and as dense rows."""
    samples, size = result.shape[0], result[0].numel()
    chosen = torch.arange(size).unsqueeze(1).expand(size, samples)
    generator = torch.Generator().manual_seed(2)
    values = torch.randn(size, samples, dtype=torch.float64, generator=generator)
    window = Window.units(values, chosen, result.shape[1:])
    yield window, window.dense()


@every_example
def test_the_window_transpose_equals_the_dense_one(example: tuple[Any, ...]) -> None:
    call = made(*example)
    transpose = facts(call).window_of(call)
    matrix, constant = jacobian(call)
    alike = constant.dim() > 1 and all(x.shape[:1] == constant.shape[:1] for x in call.inputs)
    if transpose is None or not alike:  # windows are for samples in dimension 0
        return
    for window, rows in single_elements(constant):
        found = transpose(window.zero_padded())
        if found is None:
            continue
        dense = torch.cat([part.zero_padded().dense().flatten(1) for part in found], 1)
        torch.testing.assert_close(dense, rows.reshape(len(rows), -1) @ matrix)


@every_example
def test_weights_and_biases_per_sample_add_up(example: tuple[Any, ...]) -> None:
    call = made(*example)
    stated = facts(call)
    if stated.weight_per_sample is None or not isinstance(call["weight"], Interval):
        return
    matrix, constant = jacobian(call)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(3, *constant.shape, dtype=torch.float64, generator=generator)
    weight = stated.weight_per_sample(call, call["input"], call["weight"].shape)
    assert weight is not None and stated.bias_per_sample is not None
    parts = [weight(rows)]
    if isinstance(call["bias"], Interval):
        parts.append(stated.bias_per_sample(rows))
    whole = [part.dense() if isinstance(part, Outer) else part for part in parts]
    for sample in range(len(constant)):  # each from its own rows alone
        own = torch.zeros_like(rows)
        own[:, sample] = rows[:, sample]
        found = torch.cat([part[:, sample].flatten(1) for part in whole], 1)
        torch.testing.assert_close(found, own.flatten(1) @ matrix)


def test_every_operator_that_states_facts_has_an_example() -> None:
    shown = {op for op, *_ in EXAMPLES} | {op.overloadpacket for op, *_ in EXAMPLES}
    missing = [str(op) for op, rule in RULES.items() if rule.facts.stated and op not in shown]
    assert not [op for op in missing if "aten" in op], missing


def test_every_function_of_the_table_is_tried() -> None:
    """An example that a function declines shows nothing: each must take at least one."""
    taken: set[Any] = set()
    for example in EXAMPLES:
        call = made(*example)
        for fact in ("transpose", "window", "constant"):
            make = getattr(facts(call), fact)
            if make is not None and make(call) is not None:
                taken.add((find_rule(call.node), fact))
    stated = {
        (rule, fact)
        for rule in RULES.values()
        for fact in ("transpose", "window", "constant")
        if getattr(rule.facts, fact) is not None
    }
    assert stated <= taken, stated - taken
