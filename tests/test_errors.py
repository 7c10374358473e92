"""Ways to get it wrong: each message says what was expected and what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.errors import did_you_mean

X = torch.zeros(2, 3)
Y = torch.zeros(2, dtype=torch.long)
SQUARE = nn.Linear(3, 3)


def mlp() -> bl.Net:
    torch.manual_seed(0)
    return bl.capture(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5)), X)


def bounds_around(f: Callable[..., Any], *entries: Any) -> Any:
    centres = [e.centre if isinstance(e, bl.Region) else e for e in entries]
    return bl.capture(f, *centres).bounds(*entries)


def branches(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


def takes_gradient(x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad(SQUARE(x).sum(), x)[0]


def of_two() -> bl.Net:
    return bl.capture(lambda a, b: a + b, X, X)


def with_complex_operator(x: Tensor) -> Tensor:
    return torch.special.i0(x)


CASES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "wrong shape": (lambda: mlp().bounds(bl.Linf(torch.zeros(2, 4), 0.1)), bl.ArgumentError, r"must have the shape \(batch, 3\)"),
    "wrong rank": (lambda: mlp().bounds(bl.Linf(torch.zeros(3), 0.1)), bl.ArgumentError, "must have the shape"),
    "eps as text": (lambda: bl.Linf(X, "8/255"), bl.ArgumentError, "eps must be a number.*'8/255': write 8/255 without quotes"),
    "range as text": (lambda: bl.L2(X, 0.1, lower="0"), bl.ArgumentError, "lower must be a number"),
    "budget as text": (lambda: bl.L0(X, "3"), bl.ArgumentError, "whole number >= 0 .* not '3'"),
    "norm as text": (lambda: bl.Lp(X, "linf", 0.1), bl.ArgumentError, "p must be a number"),
    "bytes": (lambda: bl.Linf(X.to(torch.uint8), 8), bl.ArgumentError, r"not uint8: of images in bytes give x.float\(\) / 255"),
    "region without values": (lambda: bl.Linf(X.to("meta"), 0.1), bl.ArgumentError, "device 'meta', which holds no values"),
    "input without values": (lambda: of_two().bounds(bl.Linf(X, 0.1), X.to("meta")), bl.ArgumentError, "'b' lies on the device 'meta'"),
    "wrong dtype": (lambda: mlp().bounds(bl.Linf(X.double(), 0.1)), bl.ArgumentError, "dtype torch.float32"),
    "negative eps": (lambda: bl.Linf(X, -0.1), bl.ArgumentError, "eps must not be negative"),
    "eps of a wrong shape": (lambda: bl.L2(X, torch.ones(7)), bl.ArgumentError, "one per sample"),
    "nan eps": (lambda: bl.Linf(X, float("nan")), bl.ArgumentError, "eps contains NaN"),
    "unknown method": (lambda: mlp().bounds(bl.Linf(X, 0.1), method="crwn"), bl.ArgumentError, "Did you mean 'crown'"),
    "unknown side": (lambda: mlp().bounds(bl.Linf(X, 0.1), sides="left"), bl.ArgumentError, "sides must be one of"),
    "unknown slopes": (lambda: mlp().bounds(bl.Linf(X, 0.1), slopes="two"), bl.ArgumentError, "slopes must be one of"),
    "unknown parameter": (lambda: mlp().bounds(X, perturb={"3.weight": bl.L2(eps=0.1)}), bl.ArgumentError, "no parameter '3.weight'.*0.weight"),
    "misspelt parameter": (lambda: mlp().bounds(X, perturb={"0.weights": bl.L2(eps=0.1)}), bl.ArgumentError, "Did you mean '0.weight'"),
    "parameter region is a number": (lambda: mlp().bounds(X, perturb={"0.weight": 0.1}), bl.ArgumentError, "must be a region"),
    # type: ignore[dict-item]
    "parameter region of a wrong shape": (lambda: mlp().bounds(X, perturb={"0.weight": bl.Linf(X, 0.1)}), bl.ArgumentError, r"must have the shape \(4, 3\)"),
    "nothing perturbed": (lambda: mlp().bounds(X), bl.ArgumentError, "nothing is perturbed"),
    "region on integers": (lambda: bl.Linf(torch.zeros(2, 3, dtype=torch.long), 1), bl.ArgumentError, "put the region on the embedding"),
    "region of a list": (lambda: bl.Linf([1.0, 2.0], 0.1), bl.ArgumentError, "must be a tensor, not list"),
    # type: ignore[arg-type]
    "nan in a region": (lambda: bl.Linf(torch.full((2, 3), torch.nan), 0.1), bl.ArgumentError, "contains NaN"),
    "nan in a plain input": (lambda: bounds_around(lambda x, y: x + y, bl.Linf(X, 0.1), torch.full((2, 3), torch.nan)), bl.ArgumentError, "'y' contains NaN|contains NaN"),
    "empty box": (lambda: bl.Box(X + 1, X), bl.ArgumentError, "the box is empty"),
    "box of two shapes": (lambda: bl.Box(X, torch.zeros(3)), bl.ArgumentError, "the shapes differ"),
    "empty valid range": (lambda: bl.Linf(X, 0.1, lower=2.0, upper=3.0), bl.ArgumentError, "the region is empty"),
    "norm below one": (lambda: bl.Lp(X, 0.5, 0.1), bl.ArgumentError, "p must be at least 1"),
    "fractional budget": (lambda: bl.L0(X, 1.5), bl.ArgumentError, "whole number"),
    # type: ignore[arg-type]
    "too many inputs": (lambda: mlp().bounds(bl.Linf(X, 0.1), X), bl.ArgumentError, "captured with the inputs"),
    "missing input": (lambda: mlp().bounds(), bl.ArgumentError, "captured with the inputs.*missing: input"),
    "missing second input": (lambda: of_two().bounds(bl.Linf(X, 0.1)), bl.ArgumentError, r"\(a, b\), in that structure; missing: b$"),
    "missing second input of margins": (lambda: of_two().margins(bl.Linf(X, 0.1), Y), bl.ArgumentError, "missing: b$"),
    "missing keyword": (lambda: bl.capture(lambda a, b: a + b, X, b=X).bounds(bl.Linf(X, 0.1)), bl.ArgumentError, "missing: b$"),
    "keyword that nobody has": (lambda: mlp().bounds(bl.Linf(X, 0.1), methods="ibp"), bl.ArgumentError, "unknown: methods. Did you mean 'method'"),
    "tuple instead of inputs": (lambda: of_two().bounds(bl.Linf(X, 0.1), (X, X)), bl.ArgumentError, "got 3 of another structure"),
    "labels forgotten": (lambda: mlp().margins(bl.Linf(X, 0.1)), bl.ArgumentError, r"labels are missing.*net.margins\(region, labels\)"),
    "labels first": (lambda: mlp().margins(Y, bl.Linf(X, 0.1)), bl.ArgumentError, "labels are missing: they come last"),
    "labels of the loss forgotten": (lambda: bl.robust_cross_entropy(mlp(), bl.Linf(X, 0.1)), bl.ArgumentError, "labels are missing"),
    "one-hot labels": (lambda: mlp().margins(bl.Linf(X, 0.1), torch.eye(5)[Y].long()), bl.ArgumentError, r"\(2,\), one a sample, not \(2, 5\): for one-hot labels give labels.argmax\(1\)"),
    "spec of a wrong width": (lambda: mlp().bounds(bl.Linf(X, 0.1), spec=torch.ones(2, 4)), bl.ArgumentError, r"\(specs, 5\) or \(2, specs, 5\)"),
    "spec that is shown as it was given": (lambda: mlp().bounds(bl.Linf(X, 0.1), spec=torch.eye(4)), bl.ArgumentError, r"got \(4, 4\)$"),
    "spec is a list": (lambda: mlp().bounds(bl.Linf(X, 0.1), spec=[[1.0]]), bl.ArgumentError, "spec must be a tensor"),
    # type: ignore[arg-type]
    "spec with two outputs": (lambda: bl.capture(lambda x: (x, x * 2), X).bounds(bl.Linf(X, 0.1), spec=torch.ones(1, 3)), bl.ArgumentError, "single tensor output"),
    "label out of range": (lambda: mlp().margins(bl.Linf(X, 0.1), torch.tensor([0, 5])), bl.ArgumentError, "between 0 and 4"),
    "fractional label": (lambda: mlp().margins(bl.Linf(X, 0.1), torch.tensor([0.0, 1.0])), bl.ArgumentError, "whole numbers"),
    "labels of another batch": (lambda: mlp().margins(bl.Linf(X, 0.1), torch.tensor([0])), bl.ArgumentError, "spec must have the shape|labels"),
    "no example inputs": (lambda: bl.capture(nn.Linear(3, 4)), bl.ArgumentError, "needs example inputs"),
    "region at capture": (lambda: bl.capture(nn.Linear(3, 4), bl.Linf(X, 0.1)), bl.ArgumentError, "takes example tensors"),
    "not a model": (lambda: bl.capture(3, X), bl.ArgumentError, "not int"),
    # type: ignore[arg-type]
    "model that fails": (lambda: bl.capture(nn.Linear(4, 4), X), bl.CaptureError, r"the model itself fails on the example: RuntimeError: .*\(2x3 and 4x4\)$"),
    "data-dependent control flow": (lambda: bl.capture(branches, X), bl.CaptureError, r"test_errors.py:\d+\). Write the choice with torch.where"),
    "derivative of a function": (lambda: bl.capture(lambda x: torch.func.jacrev(torch.sin)(x), X), bl.CaptureError, "derivatives inside"),
    "reverse derivative": (lambda: bl.capture(lambda x: torch.func.jacrev(SQUARE)(x), X), bl.CaptureError, "derivatives inside"),
    "forward derivative": (lambda: bl.capture(lambda x: torch.func.jacfwd(SQUARE)(x), X), bl.CaptureError, "derivatives inside"),
    "vector-Jacobian product": (lambda: bl.capture(lambda x: torch.func.vjp(SQUARE, x)[1](x)[0], X), bl.CaptureError, "derivatives inside"),
    "gradient": (lambda: bl.capture(takes_gradient, X), bl.CaptureError, "derivatives inside"),
    "operator that mixes samples": (lambda: bl.capture(lambda x: x - x.mean(0), X), bl.MixedSamples, "aten.*batched=False"),
    "unsupported operator": (lambda: bounds_around(with_complex_operator, bl.Linf(X, 0.1)), bl.UnsupportedOperator, r"special_i0.*test_errors.py:\d+.*Register one"),
    "operator of another kind": (lambda: bounds_around(torch.linalg.svdvals, bl.Linf(torch.ones(2, 3, 3), 0.1)), bl.UnsupportedOperator, "linalg_svdvals.*if it is affine, else a rule of its own"),
    "tiny budget": (lambda: mlp().bounds(bl.Linf(X, 0.1), memory=10), bl.MemoryLimit, r"takes about \d+ bytes in use, and the budget is 10 bytes"),
    "log reaches zero": (lambda: bounds_around(torch.log, bl.Linf(X + 1, 2.0)), bl.DomainError, r"aten.log.*must lie in \(0, inf\)"),
    "division by zero": (lambda: bounds_around(lambda x: 1 / x, bl.Linf(X + 1, 2.0)), bl.DomainError, "aten.reciprocal.*contains zero"),
    "square root of a negative": (lambda: bounds_around(torch.sqrt, bl.Linf(X + 1, 2.0)), bl.DomainError, "aten.sqrt"),
    "arcsine outside": (lambda: bounds_around(torch.asin, bl.Linf(X, 2.0)), bl.DomainError, r"\[-1, 1\]"),
    "tangent across a pole": (lambda: bounds_around(torch.tan, bl.Linf(X, 2.0)), bl.DomainError, "poles"),
    "fractional power of a negative": (lambda: bounds_around(lambda x: x**1.5, bl.Linf(X, 1.0)), bl.DomainError, "aten.pow"),
    "unknown intermediate": (lambda: mlp().bounds(bl.Linf(X, 0.1), intermediates=True)["layer9"], bl.ArgumentError, "no node or module 'layer9'"),
    "intermediates not kept": (lambda: mlp().bounds(bl.Linf(X, 0.1))["0"], bl.ArgumentError, "intermediates=True"),
    "second rule for an operator": (lambda: bl.affine(torch.ops.aten.relu), bl.ArgumentError, "already has a rule"),
    "region without a centre on an input": (lambda: mlp().bounds(bl.Linf(eps=0.1)), bl.ArgumentError, "has no centre"),
    "attention with dropout in train mode": (
        lambda: bounds_around(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, batch_first=True).train(), bl.Linf(torch.zeros(2, 3, 4), 0.1)),
        bl.BoundlabError,
        "eval",
    ),
    "dropout in train mode": (lambda: bounds_around(nn.Dropout(0.5).train(), bl.Linf(X, 0.1)), bl.BoundlabError, "eval"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_message_says_what_to_do(name: str) -> None:
    action, error, message = CASES[name]
    with pytest.raises(error, match=message) as caught:
        action()
    assert isinstance(caught.value, bl.BoundlabError)


def test_what_torch_says_of_a_choice_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(bl.CaptureError) as caught:
        bl.capture(branches, X)
    assert "u0" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


def test_a_model_that_fails_is_left_as_it_was() -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.Linear(4, 2)).train()
    with pytest.raises(bl.CaptureError, match="the model itself fails"):
        bl.capture(model, X + 1)
    assert not model[0].running_mean.any() and not model[0].num_batches_tracked


def test_labels_by_name() -> None:
    net, region = mlp(), bl.Linf(X, 0.1)
    assert torch.equal(net.margins(region, labels=Y), net.margins(region, Y))


@pytest.mark.parametrize(
    ("text", "options", "hint"),
    [
        ("mnist", ("flat-mnist", "mnist-0.1-ibp"), " Did you mean 'mnist-0.1-ibp'?"),
        ("OPTIMIZER", ("seed", "optimiser"), " Did you mean 'optimiser'?"),
        ("crown", ("CROWN-IBP",), " Did you mean 'CROWN-IBP'?"),
        ("xyz", ("crown",), ""),
        ("", ("crown",), ""),
        ("crown", (), ""),
    ],
)
def test_suggestions(text: str, options: tuple[str, ...], hint: str) -> None:
    assert did_you_mean(text, options) == hint


def test_a_failed_question_leaves_the_net_usable() -> None:
    net = mlp()
    before = net.bounds(bl.Linf(X, 0.1))
    for bad in (
        lambda: net.bounds(bl.Linf(torch.zeros(1, 7), 0.1)),
        lambda: net.bounds(bl.Linf(X, 0.1), method="none"),
    ):
        with pytest.raises(bl.BoundlabError):
            bad()
    after = net.bounds(bl.Linf(X, 0.1))
    assert torch.equal(before.lower, after.lower)
