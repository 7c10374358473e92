"""What of capture does not know torch.export: graphs that are made by hand are simplified, and get
their batch, as any front end's would."""

from __future__ import annotations

import pytest
import sympy
import torch
from torch import Tensor

from boundlab.capture.batch import Trial, find_batch
from boundlab.capture.normalise import normalise
from boundlab.capture.simplify import simplify
from boundlab.capture.values import SOME, Values
from boundlab.errors import CaptureError, MixedSamples
from boundlab.graph.graph import Graph, Node, Origin, Ref
from boundlab.graph.layout import Layout
from boundlab.rules.casts import rounded, rounded_in_place

aten = torch.ops.aten
S = sympy.Symbol("s", integer=True, positive=True)


def call(name, op, *args, **kwargs):
    return Node(name, op, args, kwargs, origin=Origin(module=f"of {name}"))


def graph(*nodes, outputs, inputs=("x",), constants=None):
    first = [Node(name) for name in (*inputs, *(constants or {}))]
    named = {node.name: node for node in (*first, *nodes)}
    return Graph(named, inputs, {}, constants or {}, outputs, batched=False)


def test_copies_and_what_is_not_needed_are_dropped():
    given = graph(
        call("copy", aten.clone.default, Ref("x")),
        call("all", aten.slice.Tensor, Ref("copy"), 0, 0, 2**63 - 1),
        call("square", aten.mul.Tensor, Ref("all"), Ref("copy")),
        call("flat", aten.view.default, Ref("square"), [-1]),
        call("unused", aten.exp.default, Ref("x")),
        outputs=(Ref("flat"), 3),
        constants={"c": torch.ones(1)},
    )
    found = simplify(given)
    assert list(found.nodes) == ["x", "square", "flat"] and not found.constants
    assert found.nodes["square"].op is aten.pow.Tensor_Scalar
    assert found.nodes["square"].args == (Ref("x"), 2)
    assert found.nodes["flat"].op is aten.reshape.default
    assert found.outputs == (Ref("flat"), 3)
    assert found.modules["of all"] == "x" and found.modules["of square"] == "square"
    x = torch.randn(2, 3)
    assert torch.equal(found.run({"x": x})["flat"], given.run({"x": x, "c": x})["flat"])


def test_a_slice_of_a_part_stays():
    given = graph(call("part", aten.slice.Tensor, Ref("x"), 0, 1), outputs=(Ref("part"),))
    assert "part" in simplify(given).nodes


def known(**shapes):
    values = Values()
    for name, shape in shapes.items():
        values.note_tensor(name, map(sympy.sympify, shape), torch.float32)
    return values


def test_shapes_for_a_batch():
    other = sympy.Symbol("u")
    values = known(x=(S, 3), twice=(2 * S, 3), odd=(S + 1, 3), some=(other, 3))
    values.numbers.update(n=3 * S, k=sympy.Integer(5), m=S**2)
    values.note_input("x")
    values.note_input("twice")
    assert values.free == {"x": S}
    found = values.with_samples(7)
    assert found.tensors == {"x": (7, 3), "twice": (14, 3), "odd": (0, 3), "some": (SOME, 3)}
    assert found.numbers == {"n": 21, "k": 5} and found.odd == {"odd"}


def linear():
    return graph(
        call("y", aten.linear.default, Ref("x"), Ref("w")),
        outputs=(Ref("y"),),
        constants={"w": torch.ones(2, 3)},
    )


def trial(**inputs):
    return Trial(inputs, {})


def test_a_free_batch_is_followed():
    values = known(x=(S, 3), w=(2, 3), y=(S, 2))
    values.note_input("x")
    found = find_batch(linear(), values, trial(x=torch.ones(4, 3)), None)
    assert found.batched and found.nodes["y"].layout == Layout()
    assert not found.nodes["w"].layout.batched
    assert values.examples(found) == {"x": ((0, 3), torch.float32, True)}
    assert values.sizes(found).symbols == {"x": S}


def test_a_fixed_batch_is_followed():
    values = known(x=(4, 3), w=(2, 3), y=(4, 2))
    found = find_batch(linear(), values, trial(x=torch.ones(4, 3)), None)
    assert found.batched and found.nodes["y"].layout == Layout()


def test_samples_that_meet_are_refused_or_count_as_one():
    given = graph(call("y", aten.sum.dim_IntList, Ref("x"), [0]), outputs=(Ref("y"),))
    values = known(x=(4, 3), y=(3,))
    inputs = trial(x=torch.ones(4, 3))
    assert not find_batch(given, values, inputs, None).batched
    with pytest.raises(MixedSamples, match="depends on other samples"):
        find_batch(given, values, inputs, True)


def test_inputs_of_several_batch_sizes():
    given = graph(
        call("z", aten.matmul.default, Ref("x"), Ref("y")), outputs=(Ref("z"),), inputs=("x", "y")
    )
    inputs = trial(x=torch.ones(4, 3), y=torch.ones(3, 2))
    values = known(x=(4, 3), y=(3, 2), z=(4, 2))
    assert not find_batch(given, values, inputs, None).batched
    with pytest.raises(CaptureError, match=r"do not agree on a batch size: \[3, 4\]"):
        find_batch(given, values, inputs, True)


def test_a_squeeze_gets_its_dimensions_and_an_assumption():
    values = known(x=(S, 1, 3))
    (found,) = normalise(call("y", aten.squeeze.default, Ref("x")), {}, values)
    assert found.op is aten.squeeze.dims and found.args == (Ref("x"), [1])
    assert values.assumptions == [sympy.Ne(S, 1)]


def test_casts_that_round_have_names_of_their_own():
    values = known(x=(S, 3))
    nodes = {"x": Node("x")}
    values.note_tensor("half", values.shapes["x"], torch.float16)
    (half,) = normalise(
        call("half", aten._to_copy.default, Ref("x"), dtype=torch.float16), nodes, values
    )
    assert half.op is rounded
    values.note_tensor("back", values.shapes["x"], torch.float32)
    (back,) = normalise(
        call("back", aten._to_copy.default, Ref("half"), dtype=torch.float32),
        {**nodes, "half": half},
        values,
    )
    assert back.op is rounded_in_place and back.args == (Ref("x"),)
    cast, total = normalise(
        call("sum", aten.sum.default, Ref("x"), dtype=torch.float64), nodes, values
    )
    assert cast.name == "sum_of" and values.dtypes["sum_of"] == torch.float64
    assert total.args == (Ref("sum_of"),) and not total.kwargs
    assert isinstance(total.call((torch.ones(2),), {}), Tensor)
