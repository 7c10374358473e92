"""Each private interface of torch does what boundlab needs of it. A test that fails here names what
a new version of torch has changed; boundlab/compat/private.py says what depends on it."""

from __future__ import annotations

import inspect
import logging
import threading
import warnings

import pytest
import sympy
import torch
from torch import nn
from torch.export import _trace
from torch.nn.modules import transformer

import boundlab as bl
from boundlab.compat import private

aten = torch.ops.aten


def exported(forward, *args, free=True):
    """A program with a free dimension 0."""

    class Model(nn.Module):
        def forward(self, *inputs):
            return forward(*inputs)

    shapes = {"inputs": tuple({0: torch.export.Dim.AUTO} for _ in args)} if free else None
    return torch.export.export(Model(), args, dynamic_shapes=shapes, strict=False)


def first_size(program):
    (value, *_) = (fx.meta["val"] for fx in program.graph.nodes if fx.op == "placeholder")
    return value.shape[0]


def test_everything_is_tested_and_described():
    source = inspect.getsource(inspect.getmodule(test_everything_is_tested_and_described))
    described = inspect.getsource(private)
    for name in private.__all__:
        assert f"private.{name}" in source, f"no test of {name}"
        thing = getattr(private, name)
        own = inspect.isfunction(thing) and thing.__module__ == private.__name__
        assert thing.__doc__ if own else f"# ``{name}``:" in described, name


def test_pytree_is_the_one_of_torch_export():
    leaves, tree = private.pytree.tree_flatten(({"b": 1, "a": [2, None]}, 3))
    assert private.pytree.tree_unflatten(leaves, tree) == ({"b": 1, "a": [2, None]}, 3)
    assert isinstance(tree, private.pytree.TreeSpec)
    assert private.pytree.tree_leaves([1, None], is_leaf=lambda leaf: leaf is None) == [1, None]
    assert private.pytree.tree_map(lambda leaf: leaf + 1, {"a": (1, 2)}) == {"a": (2, 3)}
    assert private.pytree.tree_map_only(int, str, [1, 2.0]) == ["1", 2.0]
    program = exported(lambda x: {"y": x}, torch.ones(2, 3))
    assert isinstance(program.call_spec.in_spec, private.pytree.TreeSpec)
    assert program.call_spec.out_spec == private.pytree.tree_structure({"y": 0})


def test_operators_are_overloads():
    assert isinstance(aten.add.Tensor, private.OpOverload)
    assert not isinstance(torch.add, private.OpOverload)
    assert not isinstance(aten.add, private.OpOverload)
    assert aten.add.Tensor.overloadpacket is aten.add
    assert aten.add.Tensor.namespace == "aten"


def test_the_arguments_of_an_operator():
    *_, keep, dtype = private.op_arguments(aten.sum.dim_IntList)
    assert [a.name for a in private.op_arguments(aten.add.Tensor)] == ["self", "other", "alpha"]
    assert (keep.name, keep.kwarg_only, keep.default_value) == ("keepdim", False, False)
    assert (dtype.name, dtype.kwarg_only, dtype.default_value) == ("dtype", True, None)


def test_pointwise_operators():
    for op in (aten.add.Tensor, aten.leaky_relu.default, aten.ldexp.Tensor, aten.where.self):
        assert private.is_pointwise(op)
    for other in (aten.mm.default, aten.softmax.int, aten.add, torch.add):
        assert not private.is_pointwise(other)


def test_the_name_of_an_operator():
    assert private.qualified_name(aten.add) == "aten::add"
    assert private.qualified_name(torch.add) is None


def test_the_version_of_a_tensor_counts_changes_in_place():
    x = torch.ones(2)
    before = private.version(x)
    x.add_(1)
    assert private.version(x) > before
    x.view(2)[0] = 3.0
    assert private.version(x) > before + 1
    with torch.inference_mode():
        assert private.version(torch.ones(2)) == 0


def test_the_parameters_and_buffers_of_a_module_itself():
    norm = nn.BatchNorm1d(3)
    outer = nn.Sequential(norm)
    assert dict(private.own_parameters(norm)) == dict(norm.named_parameters())
    assert dict(private.own_buffers(norm)) == dict(norm.named_buffers())
    assert not private.own_parameters(outer) and not private.own_buffers(outer)
    linear = nn.Linear(2, 2, bias=False)
    assert private.own_parameters(linear)["bias"] is None


class Probe(torch.autograd.Function):
    """The identity, which notes in its backward pass what autograd says of ``Probe.node``."""

    node = None
    seen: list = []  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        Probe.seen.append((private.will_execute(Probe.node), private.backward_pass()))
        return gradient


def test_autograd_tells_whether_it_will_come_to_a_node():
    weight = torch.ones(2, requires_grad=True)
    x = torch.ones(2, requires_grad=True)
    gathered = weight * 1
    Probe.node, Probe.seen = gathered.grad_fn, []
    y = Probe.apply(x + gathered).sum()
    torch.autograd.grad(y, x, retain_graph=True)
    torch.autograd.grad(y, weight, retain_graph=True)
    assert [will for will, _ in Probe.seen] == [False, True]


def test_backward_passes_have_numbers():
    assert private.backward_pass() == -1
    x = torch.ones(2, requires_grad=True)
    y = Probe.apply(Probe.apply(x * 1)).sum()
    Probe.node, Probe.seen = y.grad_fn, []
    y.backward(retain_graph=True)
    y.backward()
    first, also_first, second, also_second = (number for _, number in Probe.seen)
    assert first == also_first != second == also_second
    assert first >= 0 <= second


def test_the_node_of_a_function_carries_what_its_context_was_given():
    """kernels/trained_linear.py leaves terms of a gradient there; documented nowhere."""

    class Noted(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x.view_as(x)

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.terms = []

        @staticmethod
        def backward(ctx, gradient):
            assert ctx.terms == ["left here"]
            return gradient

    x = torch.ones(2, requires_grad=True)
    y = Noted.apply(x)
    y.grad_fn.terms.append("left here")
    y.sum().backward()
    assert x.grad is not None


def test_the_last_states_of_a_recurrent_layer_have_their_shape():
    """``capture`` refuses a graph whose outputs have other shapes than the model's."""
    assert private.states_in_shape.__doc__
    net = bl.capture(nn.Sequential(nn.LSTM(2, 3, batch_first=True)), torch.ones(5, 4, 2))
    output, states = net(torch.rand(5, 4, 2))
    assert [tuple(x.shape) for x in (output, *states)] == [(5, 4, 3), (1, 5, 3), (1, 5, 3)]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_can_be_the_whole_model(kind):
    assert private.lists_of_weights.__doc__
    layer, x = kind(2, 3, num_layers=2, batch_first=True), torch.rand(5, 4, 2)
    weights = list(layer._flat_weights)
    net = bl.capture(layer, x)
    assert all(one is other for one, other in zip(weights, layer._flat_weights, strict=True))
    assert all(one is other for one, other in zip(weights, layer.parameters(), strict=True))
    torch.testing.assert_close(net(x), layer(x))


def test_masks_of_truth_values_become_numbers():
    assert private.masks_out_of_place.__doc__
    about = {
        "mask_name": "mask",
        "other_type": None,
        "other_name": "",
        "target_type": torch.float64,
    }
    found = private._mask_of_numbers(torch.tensor([True, False]), **about)
    assert found.tolist() == [-torch.inf, 0.0] and found.dtype == torch.float64
    assert private._mask_of_numbers(None, **about) is None
    attention, mask = (
        nn.MultiheadAttention(4, 2).eval(),
        torch.tensor([[False, True], [False, False]]),
    )
    x = torch.rand(2, 3, 4)
    net = bl.capture(lambda x: attention(x, x, x, attn_mask=mask)[0], x, batched=False)
    torch.testing.assert_close(net(x), attention(x, x, x, attn_mask=mask)[0])


@pytest.mark.parametrize("shares", [0.3, torch.tensor([0.2, 0.7])], ids=["one", "several"])
def test_operators_are_traced_by_functions(shares):
    """Those of quantiles are registered by boundlab/rules/compositions/order.py."""
    assert private.trace_by.__doc__

    class Quantile(nn.Module):
        def forward(self, x, q):
            return torch.quantile(x, q, dim=1)

    program = torch.export.export(Quantile(), (torch.rand(3, 4), shares), strict=False)
    assert any("quantile" in str(node.target) for node in program.graph.nodes)
    x = torch.rand(3, 4)
    torch.testing.assert_close(program.module()(x, shares), torch.quantile(x, shares, dim=1))


@pytest.mark.filterwarnings("ignore")  # of torch, about its own functions
def test_maps_are_recorded_as_operators_on_all_samples():
    """With values of around them, mapped in other dimensions, and inside of each other."""
    assert private.maps_recorded.__doc__
    linear = nn.Linear(3, 3)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = linear

        def forward(self, x):
            total = x.sum(0)

            def one(row, other):
                inner = torch.vmap(lambda a: a * other.sum())(row)
                return torch.relu(self.linear(inner)) @ total + row.shape[0]

            return torch.vmap(one, in_dims=(0, 1))(x, x.mT)

    x, original = torch.rand(4, 3), torch._functorch.vmap._flat_vmap
    with private.maps_recorded():
        program = torch.export.export(
            Model(), (x,), dynamic_shapes=({0: torch.export.Dim.AUTO},), strict=False
        )
        assert torch.equal(torch.vmap(torch.sin)(x), torch.sin(x))  # while nothing is traced
    assert torch._functorch.vmap._flat_vmap is original
    program = program.run_decompositions({})
    assert not any("vmap" in str(fx.target) for fx in program.graph.nodes)
    assert {name for name, _ in program.named_parameters()} == {"linear.weight", "linear.bias"}
    assert not program.constants
    for samples in (x, torch.rand(7, 3)):
        torch.testing.assert_close(program.module()(samples), Model()(samples))


def branching(x):
    return x * 2 if x.shape[0] == 1 else x * 3


def test_a_free_size_can_be_one_only_if_asked_for():
    x = torch.ones(4, 3)
    with private.any_free_size():
        wide = exported(branching, x)
    assert {str(guard) for guard in private.guards(first_size(wide))} & {
        f"Ne({private.size_expression(first_size(wide))}, 1)"
    }
    size = first_size(exported(branching, x))  # torch takes for granted that it is not
    assert not any("1" in str(guard) for guard in private.guards(size))


def test_guards_are_written_in_the_sizes_that_are_left():
    def both(x, y):
        return x + y[:, :3] if x.shape[0] * 2 < 100 else x

    with private.any_free_size():
        program = exported(both, torch.ones(4, 3), torch.ones(4, 5))
    size = first_size(program)
    left = private.size_expression(size).free_symbols
    found = [relation for relation in private.guards(size) if relation.free_symbols]
    assert found and all(relation.free_symbols <= left for relation in found)
    (symbol,) = left
    assert any(relation.subs({symbol: 50}) == sympy.false for relation in found)
    assert all(relation.subs({symbol: 49}) == sympy.true for relation in found)


def test_sizes_are_expressions():
    program = exported(lambda x: torch.cat([x, x]), torch.ones(4, 3))
    (symbol,) = private.size_expression(first_size(program)).free_symbols
    (output,) = (fx for fx in program.graph.nodes if fx.op == "call_function")
    assert private.size_expression(output.meta["val"].shape[0]) == 2 * symbol
    assert private.size_expression(3) == sympy.Integer(3)


def encoder():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, 1, enable_nested_tensor=False).eval()


def test_a_mask_is_not_looked_into():
    model, x = encoder(), torch.randn(2, 4, 8)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    with pytest.raises(Exception, match=r"[Dd]ata-dependent|guard"), private.quiet():
        torch.export.export(model, (x, mask), strict=False)
    with private.masks_as_given(), private.quiet():
        program = torch.export.export(model, (x, mask), strict=False)
    assert torch.allclose(program.module()(x, mask), model(x, mask), atol=1e-6)


def test_the_function_that_looks_is_put_back_by_the_last_context():
    original = transformer._detect_is_causal_mask
    inside, outside = threading.Event(), threading.Event()

    def other():
        with private.masks_as_given():
            inside.set()
            outside.wait(10)

    thread = threading.Thread(target=other)
    with private.masks_as_given():
        thread.start()
        inside.wait(10)
    assert transformer._detect_is_causal_mask is not original
    outside.set()
    thread.join()
    assert transformer._detect_is_causal_mask is original
    with pytest.raises(ValueError, match="left"), private.masks_as_given():
        raise ValueError("left")
    assert transformer._detect_is_causal_mask is original


def test_the_signature_of_the_function_that_looks():
    names = list(inspect.signature(transformer._detect_is_causal_mask).parameters)
    assert names == ["mask", "is_causal", "size"]


@pytest.mark.filterwarnings("ignore")  # of torch, about its own functions
def test_operators_are_listed_once(monkeypatch):
    program = exported(torch.relu, torch.ones(2, 3), free=False)
    program.run_decompositions({})  # torch itself remembers one namespace
    count, ask = [], torch._C._dispatch_get_registrations_for_dispatch_key

    def asked(*key):
        count.append(key)
        return ask(*key)

    monkeypatch.setattr(torch._C, "_dispatch_get_registrations_for_dispatch_key", asked)
    found = program.run_decompositions({})
    usual = len(count)
    assert usual > 10
    for _ in range(2):  # in every context
        count.clear()
        with private.operators_listed_once():
            quick = program.run_decompositions({})
        assert len(count) == 1
    assert str(quick.graph) == str(found.graph)
    count.clear()
    program.run_decompositions({})
    assert len(count) == usual


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.found = []

    def emit(self, record):
        self.found.append(record)


def test_failed_exports_are_logged_under_this_name():
    def attempt():
        with pytest.raises(RuntimeError, match="reduction dim"):
            exported(lambda x: x @ torch.ones(7, 7), torch.ones(2, 3), free=False)

    logger = logging.getLogger("torch._subclasses.fake_tensor")
    level = logger.level
    records = Records()
    logger.addHandler(records)
    try:
        with private.quiet():
            attempt()
        assert not records.found and logger.level == level
        attempt()
        assert records.found
    finally:
        logger.removeHandler(records)


def test_nothing_of_a_failed_export_is_printed(capfd):
    def attempt():
        with pytest.raises(Exception, match=r"[Dd]ata-dependent|guard"):
            exported(lambda x: x * 2 if x.sum() == 1 else x, torch.ones(2, 3), free=False)

    with private.quiet():
        attempt()
    assert capfd.readouterr() == ("", "")
    attempt()
    if "print(" in inspect.getsource(_trace):  # torch 2.6 prints nothing
        assert "def forward" in capfd.readouterr().err


def test_compiled_parts_are_traced_as_if_they_were_not():
    part = torch.compile(nn.Linear(3, 2), backend="eager")
    model, x = nn.Sequential(part, nn.ReLU()), torch.ones(2, 3)
    with private.parts_uncompiled():
        program = torch.export.export(model, (x,), strict=False)
    assert {str(fx.target) for fx in program.graph.nodes if fx.op == "call_function"} == {
        "aten.linear.default", "aten.relu.default"
    }  # fmt: skip


def test_operators_that_are_called_by_hand_compute_free_sizes():
    with private.any_free_size():
        program = exported(torch.sin, torch.ones(4, 3, 5))
        (value, *_) = (fx.meta["val"] for fx in program.graph.nodes if fx.op == "placeholder")
        with private.free_sizes_computed():
            found = aten.matmul.default(value, value.new_empty(5, 7))
    assert found.shape[1:] == (3, 7)
    assert private.size_expression(found.shape[0]) == private.size_expression(value.shape[0])


def test_fourier_transforms_of_free_sizes_are_traced():
    with private.any_free_size():
        program = exported(torch.fft.rfft, torch.ones(4, 5))
    (output,) = (fx for fx in program.graph.nodes if "fft" in str(fx.target))
    assert output.meta["val"].shape[1:] == (3,)
    size = private.size_expression(output.meta["val"].shape[0])
    assert size == private.size_expression(first_size(program))


def test_constants_without_values_are_left_in_programs():
    program = exported(lambda x: torch.func.jacrev(torch.sin)(x), torch.ones(2, 3), free=False)
    assert any(map(private.is_fake, program.constants.values()))
    assert not private.is_fake(torch.ones(2))


def test_operators_of_a_call_can_be_counted():
    class Counting(private.TorchDispatchMode):
        found: list = []  # noqa: RUF012

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.found.append(func)
            return func(*args, **(kwargs or {}))

    with Counting() as mode:
        torch.ones(2) + 1
    assert aten.add.Tensor in mode.found


def test_traced_modules_are_told_from_scripted_ones() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2))
        scripted = torch.jit.script(nn.Linear(2, 2))
    assert private.is_traced(traced) and not private.is_traced(scripted)
