"""Networks that are built so that rounding decides, after Zombori et al. (Fooling a complete neural
network verifier, 2021) and Jia and Rinard (Exploiting verified neural networks via floating point
numerical error, 2021)."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from tests.arithmetic.attack import METHODS


class Swallowed(nn.Module):
    """A large number is added and taken away again: exactly that does nothing, but in single
    precision it swallows what is small. The output is 0.25 less what was swallowed, which exactly
    is nothing: a backdoor that opens by rounding alone."""

    def __init__(self, large: float = 2.0**26) -> None:
        super().__init__()
        self.add, self.take = nn.Linear(2, 2), nn.Linear(2, 2)
        self.compare, self.last = nn.Linear(4, 4), nn.Linear(4, 1)
        with torch.no_grad():
            self.add.weight.copy_(torch.eye(2))
            self.add.bias.fill_(large)
            self.take.weight.copy_(torch.eye(2))
            self.take.bias.fill_(-large)
            signs = torch.cat([torch.eye(2), -torch.eye(2)], 1)
            self.compare.weight.copy_(torch.cat([signs, -signs]))
            self.compare.bias.zero_()
            self.last.weight.fill_(-1.0)
            self.last.bias.fill_(0.25)

    def forward(self, x: Tensor) -> Tensor:
        moved = self.take(torch.relu(self.add(x)))
        y: Tensor = self.last(torch.relu(self.compare(torch.cat([moved, x], 1))))
        return y


def holds(arithmetic: str | None) -> bl.Verdict:
    x = torch.full((1, 2), 0.5)
    prop = bl.Property(bl.Box(x - 0.25, x + 0.25), lambda y: y[:, 0] > 0)
    return bl.verify(Swallowed().eval(), prop, timeout=20, arithmetic=arithmetic)


def test_a_backdoor_is_proved_to_be_shut_only_where_it_is() -> None:
    """It is open in the network as executed, and shut in exact arithmetic. What the analysis itself
    swallows is 2^-27 of it."""
    verdict = holds("float32")
    assert verdict.status == "violated"
    assert verdict.counterexample is not None
    assert holds(None).status == "violated"


@pytest.mark.parametrize("method", METHODS)
def test_bounds_of_the_backdoor(method: str) -> None:
    model, x = Swallowed().eval(), torch.full((1, 2), 0.5)
    region = bl.Box(x - 0.25, x + 0.25)
    net = bl.capture(model, x)
    values = torch.stack([model(region.sample()) for _ in range(100)]).double()
    assert (values < 0).any(), "the backdoor is shut"
    executed = net.bounds(region, method=method, arithmetic="float32")
    assert (executed.lower <= values).all() and (values <= executed.upper).all()


def test_the_backdoor_is_shut_in_exact_arithmetic() -> None:
    """A proof in real arithmetic is right, and says nothing of the executed network."""
    model, x = Swallowed(2.0**24).eval(), torch.full((1, 2), 0.5)
    region = bl.Box(x, x + 2.0**-10)
    net = bl.capture(model, x)
    # x - x is not seen by intervals: what moves by 2^-10 counts four times
    assert float(net.bounds(region, arithmetic="real").lower.detach()) > 0
    assert float(model(x + 2.0**-11).detach()) < 0
    assert float(net.bounds(region, arithmetic="float32").lower) <= 0


@pytest.mark.parametrize("seed", range(20))
def test_thresholds_within_rounding(seed: int) -> None:
    """A property whose threshold is what the network takes on exactly: executed, sums in another
    order cross it. Whoever proves it for single precision is wrong."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(1, 64, generator=generator) * 10 ** torch.randint(
        0, 4, (1, 64), generator=generator
    )
    model = nn.Linear(64, 1)
    x = torch.rand(1, 64, generator=generator)
    region = bl.Box(x - 0.01, x + 0.01)
    worst = torch.where(weight > 0, region.lower, region.upper)
    with torch.no_grad():
        model.weight.copy_(weight)
        exact = (weight.double() * worst.double()).sum()
        model.bias.fill_(float(-exact))  # the exact minimum is the rounding of that
        values = [float(model(worst))]
        values += [
            float((weight * worst)[:, order].cumsum(1)[0, -1] + model.bias)
            for order in (torch.randperm(64, generator=generator) for _ in range(16))
        ]
    bounds = bl.capture(model.eval(), x).bounds(region, sides="lower", arithmetic="float32")
    assert float(bounds.lower) <= min(values)
    real = bl.capture(model, x).bounds(region, sides="lower", arithmetic="real")
    assert float(real.lower) <= float(exact + model.bias.detach().double())
