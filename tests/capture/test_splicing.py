"""Operators are taken apart where they stand: what that gives is what torch gives when it traces
the whole program, also of models that write into tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.nn import functional

import boundlab as bl
from boundlab.capture import decompose as decomposing
from boundlab.capture.pieces import NotPlain
from boundlab.capture.splicing import splice
from boundlab.capture.writes import NEW
from boundlab.errors import CaptureError
from boundlab.rules.registry import COMPOSITIONS, aten

X = torch.rand(2, 4, generator=torch.Generator().manual_seed(0)) - 0.5


def never(program: ExportedProgram, table: Mapping[Any, Any]) -> ExportedProgram:
    raise NotPlain("told so")


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.unsqueeze(1).expand(-1, 3, -1)).flatten(1)


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv1d(1, 1, 3, padding=1), nn.BatchNorm1d(1)

    def forward(self, x: Tensor) -> Tensor:
        x = x.unsqueeze(1) * 2
        found = functional.relu(self.norm(self.conv(x)), inplace=True)
        found += x
        return found.flatten(1)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(2, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        states: Tensor = self.lstm(x.reshape(-1, 2, 2))[0]
        return states[:, -1]


def without_gradients(x: Tensor) -> Tensor:
    with torch.no_grad():
        scale = torch.arange(4.0).softmax(0)
    return functional.layer_norm(x * scale, [4])


def with_sizes(x: Tensor) -> Tensor:
    several = x.repeat(1, 2).view(x.shape[0] * 2, -1)
    return functional.softmax(several, -1).reshape(len(x), -1).to(torch.float64).float()


MODELS: dict[str, Callable[[], Callable[..., Any]]] = {
    "attention": Encoder,
    "in place": Residual,
    "recurrent": Recurrent,
    "without gradients": lambda: without_gradients,
    "sizes": lambda: with_sizes,
    "several of a kind": lambda: lambda x: functional.mish(functional.mish(x)) + x.std(1)[:, None],
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_graph_is_that_of_torch(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = MODELS[name]()
    if isinstance(model, nn.Module):
        model = model.eval()
    spliced = bl.capture(model, X)
    monkeypatch.setattr(decomposing, "splice", never)
    traced = bl.capture(model, X)
    region = bl.Linf(X, 0.1)
    with torch.no_grad():
        for method in ("ibp", "crown"):
            mine, torchs = (net.bounds(region, method=method) for net in (spliced, traced))
            torch.testing.assert_close(mine.lower, torchs.lower)
            torch.testing.assert_close(mine.upper, torchs.upper)
    kinds = [[str(node.op) for node in net.graph.nodes.values()] for net in (spliced, traced)]
    assert kinds[0] == kinds[1]


def exported(model: Callable[[Tensor], Tensor]) -> ExportedProgram:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return model(x)

    return torch.export.export(Model(), (X,), dynamic_shapes=({0: Dim.AUTO},))


def test_program_stays_as_it_was() -> None:
    program = exported(lambda x: functional.layer_norm(x.view(-1, 4), [4]))
    before = [(node.name, node.target) for node in program.graph.nodes]
    found = splice(program, COMPOSITIONS)
    assert [(node.name, node.target) for node in program.graph.nodes] == before
    targets = {node.target for node in found.graph.nodes}
    assert aten.layer_norm.default not in targets
    assert aten.rsqrt.default in targets


def test_an_operator_made_of_itself_is_refused() -> None:
    table = {aten.sin.default: lambda x: torch.sin(x) + 1}
    with pytest.raises(NotPlain):
        splice(exported(torch.sin), table)


# -- writing in place ------------------------------------------------------------------------------


def view_before(x: Tensor) -> Tensor:
    y = x * 2
    view = y[:, :2]
    y.add_(1)
    return view + y[:, 2:]


def through_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y[:, :2].mul_(3)
    return y


def through_dropout(x: Tensor) -> Tensor:
    y = x * 2
    kept = functional.dropout(y, training=False)
    kept.add_(1)
    return y * kept


@pytest.mark.parametrize("model", [view_before, through_a_view])
def test_what_is_read_elsewhere_later_is_left_to_torch(model: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(NotPlain):
        splice(exported(model), {})
    net = bl.capture(model, X)
    torch.testing.assert_close(net(X + 1), model(X + 1))


def test_an_operator_that_returns_its_argument_is_known() -> None:
    with pytest.raises(NotPlain):
        splice(exported(through_dropout), {})
    with pytest.raises(CaptureError, match="does not give what the model gives"):
        bl.capture(through_dropout, X)  # torch takes the result of dropout for a new tensor


@pytest.mark.parametrize(
    "model",
    [
        lambda x: functional.relu(x * 2, inplace=True),
        lambda x: (x * 2).add_(1).mul_(x)[:, :2],
        lambda x: (x * 2)[:, :2].add_(1),
    ],
)
def test_what_nothing_else_reads_is_a_new_value(model: Callable[[Tensor], Tensor]) -> None:
    found = splice(exported(model), {})
    targets = [node.target for node in found.graph.nodes if node.op == "call_function"]
    assert not any(target._schema.is_mutable for target in targets)
    torch.testing.assert_close(found.module()(X), model(X))


def test_input_that_is_written_into_is_left_to_torch() -> None:
    with pytest.raises(NotPlain):
        splice(exported(lambda x: x.add_(1)), {})


Step = tuple[str, int, int]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["new", "part", "turned", "flat", "add", "relu", "scale"]),
        st.integers(0, 9),
        st.integers(0, 9),
    ),
    min_size=1,
    max_size=8,
)
VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "part": lambda x: x[:1],
    "turned": lambda x: x.unsqueeze(0),
    "flat": lambda x: x.reshape(-1)[:3],
}
WRITES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, y: x.add_(y.sum()),
    "relu": lambda x, y: x.relu_(),
    "scale": lambda x, y: x.mul_(2),
}


def program_of(steps: list[Step]) -> Callable[[Tensor], Tensor]:
    """Values, views of values, and writes into some of them, as the steps say."""

    def model(x: Tensor) -> Tensor:
        values = [x * 2]
        for kind, first, second in steps:
            one, other = values[first % len(values)], values[second % len(values)]
            if kind == "new":
                values.append(one.sum() * x - 0.1)
            elif kind in VIEWS:
                values.append(VIEWS[kind](one))
            else:
                values.append(WRITES[kind](one, other))
        return torch.stack([value.sum() for value in values])

    return model


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_graph_of_a_model_that_writes_computes_the_same(steps: list[Step]) -> None:
    model = program_of(steps)
    net = bl.capture(model, X, batched=False)
    other = X.flip(0) * 3 + 0.2
    torch.testing.assert_close(net(other), model(other))


CALLS: dict[Any, tuple[Any, ...]] = {
    aten.linear.default: (torch.rand(1, 1), torch.ones(1, 1)),
    aten.matmul.default: (torch.rand(1, 1), torch.ones(1, 1)),
    aten.bilinear.default: (torch.rand(1, 1), torch.ones(1, 1), torch.ones(1, 1, 1)),
    aten.conv1d.default: (torch.rand(1, 1, 1), torch.ones(1, 1, 1)),
    aten.conv2d.default: (torch.rand(1, 1, 1, 1), torch.ones(1, 1, 1, 1)),
    aten.conv3d.default: (torch.rand(1, 1, 1, 1, 1), torch.ones(1, 1, 1, 1, 1)),
    aten.batch_norm.default: (
        torch.rand(2, 1), None, None, torch.zeros(1), torch.ones(1), False, 0.1, 0.0, False,
    ),
    aten.layer_norm.default: (torch.rand(2, 1), [1]),
    aten.group_norm.default: (torch.rand(2, 1, 1), 1),
    aten.softmax.int: (torch.ones(2, 1), 1),
    aten.log_softmax.int: (torch.zeros(2, 1), 1),
    aten.scaled_dot_product_attention.default: (torch.ones(1, 1, 1), *[torch.rand(1, 1, 1)] * 2),
}  # fmt: skip


@pytest.mark.parametrize("op", sorted(NEW, key=str), ids=str)
def test_results_that_are_new_share_no_memory(op: Any) -> None:
    args = CALLS[op]
    places = {arg.untyped_storage().data_ptr() for arg in args if isinstance(arg, Tensor)}
    assert op(*args).untyped_storage().data_ptr() not in places
