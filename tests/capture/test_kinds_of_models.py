"""Models of every kind that PyTorch has: captured and bounded, or refused in a sentence that says
what to do."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import boundlab as bl
from tests.helpers.contract import assert_all_inside, members

X = torch.linspace(-1, 1, 8).view(2, 4)
METHODS = ("crown", "forward+backward")


@dataclass
class Detection:
    scores: Tensor
    boxes: Tensor
    name: str = "cat"


@dataclass
class Nested:
    first: Detection
    rest: list[Tensor]


class Holder:
    """Keeps a tensor where nobody finds it."""

    def __init__(self, value: Tensor) -> None:
        self.value = value


class Caller:
    """A callable that is no module."""

    def __init__(self) -> None:
        self.body = mlp()

    def __call__(self, x: Tensor) -> Tensor:
        return self.body(x)

    def method(self, x: Tensor) -> Tensor:
        return self.body(x)


class Written(nn.Module):
    """A module whose forward is a function of itself and the inputs."""

    def __init__(self, function: Callable[..., Any], **buffers: Tensor) -> None:
        super().__init__()
        self.function, self.body = function, mlp()
        for name, tensor in buffers.items():
            self.register_buffer(name, tensor)

    def forward(self, x: Tensor, scale: float = 2.0, **options: Any) -> Any:
        return self.function(self, x)


def mlp() -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)).eval()


def with_first(change: Callable[[nn.Module], object]) -> nn.Module:
    model = mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the older ways are deprecated, and still in use
        change(model[0])
    return model.eval()


def tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    model[2].weight = model[0].weight
    return model


def in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU()).eval()


def hooked() -> nn.Module:
    model = mlp()
    model[0].register_forward_pre_hook(lambda module, inputs: (inputs[0] * 2,))
    model.register_forward_hook(lambda module, inputs, output: output + 1)
    return model


def writes_into_views(model: Written, x: Tensor) -> Tensor:
    y = model.body(x)
    y[:, 0].mul_(2.0)
    y[:, 1:] += 1
    return y.relu_()


def writes_into_input(model: Written, x: Tensor) -> Tensor:
    x.mul_(2)
    x[:, :2].add_(1)
    return model.body(x)


def without_gradient(model: Written, x: Tensor) -> Tensor:
    with torch.no_grad():
        hidden = model.body(x)
    return hidden * 2


BOUNDED: dict[str, Callable[[], Callable[..., Any]]] = {
    "hooks": hooked,
    "weight norm": lambda: with_first(parametrizations.weight_norm),
    "older weight norm": lambda: with_first(nn.utils.weight_norm),
    "spectral norm": lambda: with_first(parametrizations.spectral_norm),
    "older spectral norm": lambda: with_first(nn.utils.spectral_norm),
    "tied weights": tied,
    "the input": nn.Identity,
    "defaults": lambda: Written(lambda model, x: model.body(x)),
    "partial": lambda: functools.partial(lambda model, x: model(x), mlp()),
    "bound method": lambda: Caller().method,
    "callable": Caller,
    "frozen": lambda: mlp().requires_grad_(False),
    "written views": lambda: Written(writes_into_views),
    "written input": lambda: Written(writes_into_input),
    "no gradient": lambda: Written(without_gradient),
    "traced": lambda: scripted(lambda model: torch.jit.trace(model, X)),
    "compiled part": lambda: nn.Sequential(torch.compile(mlp(), backend="eager"), nn.ReLU()),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_bounds_hold(name: str) -> None:
    model = BOUNDED[name]()
    region = bl.Linf(X, 0.1)
    net = bl.capture(model, X)
    plain = model.forward if isinstance(model, nn.DataParallel) else model
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        values = torch.stack([plain(point.clone()) for point in members(region, 6, seed=0)])
        for method in METHODS:
            found = net.bounds(region, method=method)
            assert_all_inside(values, found.lower, found.upper, f"{name}, {method}")


def quantised() -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecated, and still in use
        return torch.ao.quantization.quantize_dynamic(mlp(), {nn.Linear})


def scripted(make: Callable[[nn.Module], nn.Module]) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make(mlp())


def dropping(model: Written, x: Tensor) -> Tensor:
    return nn.functional.dropout(model.body(x))


REFUSED: dict[str, tuple[Callable[[], Callable[..., Any]], str]] = {
    "scripted": (
        lambda: scripted(torch.jit.script),
        "^the model is a torch.jit.script.*capture the original module",
    ),
    "scripted part": (
        lambda: nn.Sequential(scripted(torch.jit.script), nn.ReLU()),
        "^the part '0' of the model is a torch.jit.script",
    ),
    "quantised": (quantised, "'0' of the model is quantised.*before it is quantised"),
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(3)), r"'0.weight' has no shape yet.*model\(x\)"),
    "meta": (lambda: mlp().to("meta"), "'0.weight' lies on the device 'meta'.*load its weights"),
    "inference mode": (in_inference_mode, "'0.weight' was made in inference mode.*outside"),
    "object": (
        lambda: Written(lambda model, x: [Holder(model.body(x))]),
        "returns an object of the class Holder.*returns the tensors",
    ),
    "set": (lambda: Written(lambda model, x: {model.body(x)}), "object of the class set"),
    "dropout in train mode": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout()).train(),
        r"is random.*\(model.eval\(\)\).*In a training loop.*layer.eval\(\).*bl.CleanPass",
    ),
    "dropout in eval mode": (
        lambda: Written(dropping).eval(),
        "draws in eval mode as well.*training=self.training",
    ),
    "noise around a module": (
        lambda: functools.partial(lambda model, x: model(x + torch.randn_like(x)), mlp()),
        "draws in eval mode as well.*as an input of the model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_what_to_do(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    make, words = REFUSED[name]
    model = make()
    capfd.readouterr()
    with pytest.raises(bl.CaptureError, match=words) as caught:
        bl.capture(model, X)
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_dataclasses_are_dictionaries_by_field() -> None:
    def model(x: Tensor) -> Nested:
        return Nested(Detection(x * 2, -x), [x + 1])

    net = bl.capture(model, X)
    found = net.bounds(bl.Linf(X, 0.5))
    assert found.keys() == {"first", "rest"}
    assert found["first"].keys() == {"scores", "boxes", "name"}
    assert found["first"]["name"] == "cat"
    torch.testing.assert_close(found["first"]["scores"].upper, 2 * X + 1)
    torch.testing.assert_close(found["rest"][0].lower, X + 0.5)
    assert torch.equal(net(X)["first"]["boxes"], -X)


def test_traced_modules_are_read_at_every_question() -> None:
    model = scripted(lambda plain: torch.jit.trace(plain, X))
    net = bl.capture(model, X)
    before = net(X[:1])
    with torch.no_grad():
        model.get_parameter("2.bias").add_(1)
    torch.testing.assert_close(net(X[:1]), before + 1)
    assert all(parameter.requires_grad for parameter in net.parameters().values())


def test_capture_leaves_outputs_of_the_module_alone() -> None:
    model = Written(lambda model, x: Detection(model.body(x), x))
    bl.capture(model, X)
    assert isinstance(model(X), Detection)


def test_sizes_are_tuples() -> None:
    net = bl.capture(lambda x: (x * 2, x[0].shape), X)
    assert net.bounds(bl.Linf(X, 0.5))[1] == (4,)


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
@pytest.mark.parametrize("short", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("method", ["forward", "forward+backward", "forward+crown"])
def test_forward_mode_goes_through_shorter_types(
    short: torch.dtype, method: str, scale: float
) -> None:
    """Where a value in double precision becomes a shorter one, so do its linear bounds."""
    body = mlp().to(short)
    region = bl.Linf(X.double() * scale, 0.1 * scale)

    def model(x: Tensor) -> Tensor:
        return body((x * 1.1 + x.flip(1) * 0.3).to(short))

    found = bl.capture(model, region.centre).bounds(region, method=method)
    assert not torch.isnan(torch.stack([found.lower, found.upper])).any()
    values = torch.stack([model(point).detach() for point in members(region, 40, seed=0)])
    if short == torch.float32:  # sums in half precision are not followed to their last bit
        lower, upper = found.lower.float(), found.upper.float()  # judged in the model's precision
        assert_all_inside(values, lower.detach(), upper.detach(), method)


def test_narrowed_forms_lie_outside() -> None:
    """The cast alone: no rounding of layers behind it hides what is lost."""
    region = bl.Linf(1 + X.double() / 3, 0.1)

    def model(x: Tensor) -> Tensor:
        return (x * 1.1 - x.flip(1) * 0.7).to(torch.bfloat16) + 0

    net = bl.capture(model, region.centre)
    found = net.bounds(region, method="forward")
    for point in members(region, 200, seed=1):
        value = model(point)
        assert (found.lower <= value).all() and (value <= found.upper).all()
