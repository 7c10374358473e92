"""Bounds are differentiable in inputs, radii and parameters."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.net.questions import Questions
from boundlab.net.reading import Reader
from tests.helpers.captures import net_of
from tests.helpers.contract import METHODS, steps

NETWORKS = {
    "relu": lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)),
    "tanh": lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2), nn.Sigmoid()),
    "gelu": lambda: nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2)),
    "softmax": lambda: nn.Sequential(nn.Linear(3, 4), nn.Softmax(-1), nn.Linear(4, 2)),
    "norm": lambda: nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)),
    "conv": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 3)), nn.Conv1d(1, 2, 2), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten()
    ),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", NETWORKS)
def test_gradcheck_in_inputs_radii_and_parameters(name: str, method: str) -> None:
    torch.manual_seed(1)
    model = NETWORKS[name]().double()
    x = torch.randn(2, 3, dtype=torch.float64)
    net = net_of((__name__, name), model, x)
    eps = torch.tensor([0.3, 0.2], dtype=torch.float64, requires_grad=True)
    centre = x.clone().requires_grad_()
    parameters = dict(model.named_parameters())

    def bounds(centre: Tensor, eps: Tensor, *values: Tensor) -> Tensor:
        for value, parameter in zip(values, parameters.values(), strict=True):
            parameter.data.copy_(value.detach())
        live = dict(zip(parameters, values, strict=True))
        result = _with_parameters(net, live).bounds(
            bl.Linf(centre, eps), method=method, alpha=steps(method)
        )
        return torch.cat([result.lower.flatten(), result.upper.flatten()])

    values = [value.detach().clone().requires_grad_() for value in parameters.values()]
    assert torch.autograd.gradcheck(
        bounds, (centre, eps, *values), atol=1e-4, rtol=1e-3, fast_mode=True
    )


def _with_parameters(net: bl.Net, live: dict[str, Tensor]) -> bl.Net:
    """The same graph, reading the given tensors instead of the module's parameters."""

    class Live(Reader):
        def parameters(self) -> dict[str, Any]:
            paths = self.captured.graph.parameters
            given = {name: live[path] for name, path in paths.items() if path in live}
            return super().parameters() | given

    found = bl.Net(net.captured)
    found.reader = Live(net.captured)
    found.questions = Questions(net.captured, found.reader)
    return found


@pytest.mark.parametrize("method", METHODS)
def test_gradient_reaches_parameters_as_in_training(method: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x, labels = torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])
    net = bl.capture(model, x)
    optimiser = torch.optim.SGD(model.parameters(), 0.2)
    losses = []
    for _ in range(8):
        margins = net.margins(bl.Linf(x, 0.05), labels, method=method, alpha=steps(method))
        loss = torch.logsumexp(torch.cat([torch.zeros(len(x), 1), -margins], 1), 1).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("region", [bl.L2, bl.L1])
def test_gradcheck_of_balls_with_a_valid_range(region: type) -> None:
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).double()
    x = torch.rand(2, 3, dtype=torch.float64)
    net = bl.capture(model, x)

    def bounds(centre: Tensor, eps: Tensor) -> Tensor:
        result = net.bounds(region(centre, eps, lower=-0.1, upper=1.1))
        return torch.cat([result.lower, result.upper])

    eps = torch.tensor([0.3, 0.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        bounds, (x.requires_grad_(), eps), atol=1e-4, rtol=1e-3, fast_mode=True
    )
