"""Wrong answers that attacks on perturbed weights and masked scores have found, one test each."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.training.weights import attack_weights


@pytest.mark.parametrize("p", [1.02, 1.05, 1.1, 20.0])
def test_norms_of_large_order_do_not_vanish(p: float) -> None:
    """Sums of |c|^q with large q underflowed to 0, and the bound shrank to a point."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 2))
    x = torch.rand(3, 5) * 1e-2
    net = bl.capture(model, x)
    for entry, perturb in ((bl.Lp(x, p, 1e-3), {}), (x, {"0.weight": bl.Lp(p=p, eps=1e-3)})):
        for method in ("ibp", "crown"):
            found = net.bounds(entry, perturb=perturb, method=method)
            step = torch.zeros_like(x if not perturb else model[0].weight)
            step.view(-1)[0] = 1e-3
            moved = (
                net(x + step)
                if not perturb
                else model[1](nn.functional.linear(x, model[0].weight + step, model[0].bias))
            )
            assert (found.lower <= moved + 1e-7).all() and (found.upper >= moved - 1e-7).all()
            assert float(found.width.detach().min()) > 0


def test_balls_on_both_operands_of_einsum_and_on_broadcast_weights() -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale, self.first, self.second = (
                nn.Parameter(torch.rand(shape)) for shape in ((1, 1, 3), (1, 3, 4), (4, 4))
            )

        def forward(self, x: Tensor) -> Tensor:
            return torch.einsum("bti,ij->btj", torch.relu(x * self.scale) @ self.first, self.second)

    torch.manual_seed(0)
    model = Scaled().double()
    x = torch.rand(2, 2, 3, dtype=torch.float64)
    net = bl.capture(model, x)
    for kind in (bl.L2, bl.Linf, bl.L1):
        perturb = {name: kind(eps=0.05) for name in ("scale", "first", "second")}
        for method in ("ibp", "crown", "forward+backward", "alpha-crown"):
            found = net.bounds(bl.L2(x, 0.1), perturb=perturb, method=method)
            for seed in range(20):
                generator = torch.Generator().manual_seed(seed)
                state = {
                    name: region.at(net.parameters()[name].detach()).sample(
                        generator, batched=False
                    )
                    for name, region in perturb.items()
                }
                value = torch.func.functional_call(model, state, (bl.L2(x, 0.1).sample(generator),))
                assert (found.lower <= value + 1e-9).all() and (found.upper >= value - 1e-9).all()


def test_the_reach_of_large_and_of_no_perturbations_is_finite() -> None:
    model = nn.Linear(4, 2)
    x = torch.full((2, 4), 1e5)
    net = bl.capture(model, x)
    for method in ("ibp", "crown"):
        for eps in (0.0, 0.1, torch.tensor(0.1, dtype=torch.float64)):
            for kind in (bl.L1, bl.L2):
                found = net.bounds(x, perturb={"weight": kind(eps=eps)}, method=method)
                assert torch.isfinite(found.width).all() and found.lower.dtype == torch.float32
    single = bl.capture(nn.Linear(3, 2), torch.rand(3), batched=False)
    found = single.bounds(
        torch.rand(3), perturb={"weight": bl.L2(eps=torch.full((1, 1), 0.1))}, method="ibp"
    )
    assert found.lower.shape == (2,)


def test_losses_at_the_edges_of_perturbed_weights() -> None:
    x, labels = torch.rand(2, 3), torch.zeros(2, dtype=torch.int64)
    one = bl.capture(nn.Linear(3, 1), x)
    for method in ("ibp", "crown-ibp"):
        assert (
            float(
                bl.mean_loss_bound(
                    one, x, labels, perturb={"weight": bl.L2(eps=0.1)}, method=method
                ).detach()
            )
            == 0.0
        )
    with pytest.raises(bl.ArgumentError, match="empty batch"):
        bl.flatness(one, x[:0], labels[:0], 0.1)
    tied = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    tied[2].weight = tied[0].weight
    net = bl.capture(tied, x)
    balls = bl.weight_balls(net, 0.1)
    worst, moved = attack_weights(tied, x, labels, balls, steps=5)
    assert set(moved) == set(balls)
    with torch.no_grad():
        assert worst <= float(bl.mean_loss_bound(net, x, labels, perturb=balls)) + 1e-6
    with pytest.raises(bl.ArgumentError, match="Euclidean"):
        attack_weights(tied, x, labels, bl.weight_balls(net, 0.1, norm=1.0))


def test_gradients_pass_masked_attention() -> None:
    """Scores of -inf made gradients NaN, of interval and of backward bounds."""
    torch.manual_seed(0)
    layer = nn.Linear(3, 3).double()

    def model(x: Tensor, mask: Tensor) -> Tensor:
        scores = (layer(x) @ x.transpose(1, 2)).masked_fill(~mask[:, None], -torch.inf)
        return (scores.softmax(-1) @ x).sum(1)

    x, mask = (
        torch.rand(2, 4, 3, dtype=torch.float64),
        torch.tensor([[True, True, True, True], [True, True, False, False]]),
    )
    net = bl.capture(model, x, mask)
    for method in ("ibp", "crown-ibp", "crown", "forward"):
        layer.zero_grad()
        bounds = net.bounds(bl.Linf(x, 0.05), mask, method=method)
        bounds.width.sum().backward()
        assert layer.weight.grad is not None and torch.isfinite(layer.weight.grad).all(), method


@pytest.mark.parametrize("level", [0.0, -1e5, -1e12, -3e38])
def test_masked_scores_have_no_weight_however_low_the_others_are(level: float) -> None:
    x = torch.tensor([[level, level, level]])
    mask = torch.tensor([[True, True, False]])
    net = bl.capture(lambda x, mask: x.masked_fill(~mask, -torch.inf).softmax(-1), x, mask)
    for method in ("ibp", "crown"):
        found = net.bounds(bl.Linf(x, 0.0), mask, method=method)
        expected = torch.tensor([[0.5, 0.5, 0.0]])
        assert (found.lower <= expected + 1e-5).all() and (found.upper >= expected - 1e-5).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["softmax", "logsumexp"])
def test_scores_that_may_be_masked_or_not(name: str, dtype: torch.dtype) -> None:
    """Planes left out scores that are -inf for some inputs only, as if they were so for all."""

    def model(x: Tensor) -> Tensor:
        scores = torch.cat([torch.where(x > 0, x, -torch.inf), x[:, :1]], 1)
        return scores.softmax(1) if name == "softmax" else scores.logsumexp(1, keepdim=True)

    torch.manual_seed(0)
    for eps in (0.1, 0.3, 1.0):
        x = torch.randn(4, 4, dtype=dtype)
        net, region = bl.capture(model, x), bl.Linf(x, eps)
        outputs = torch.stack([model(region.sample()) for _ in range(500)])
        for method in ("ibp", "crown-ibp", "crown", "forward", "forward+backward", "alpha-crown"):
            found = net.bounds(region, method=method)
            assert (found.lower <= outputs + 1e-6).all() and (
                found.upper >= outputs - 1e-6
            ).all(), method


@pytest.mark.parametrize(
    ("level", "dtype"),
    [(-1e9, torch.float32), (-1e4, torch.float32), (1e7, torch.float32), (-1e30, torch.float64)],
)
def test_weights_of_large_scores(level: float, dtype: torch.dtype) -> None:
    """The log of the sum of the others was lost in rounding."""
    x = torch.zeros(1, 6, dtype=dtype)
    net = bl.capture(lambda x: (x * 1e-3 + level).softmax(1), x)
    for method in ("ibp", "crown"):
        found = net.bounds(bl.Linf(x, 0.0), method=method)
        torch.testing.assert_close(found.lower, torch.full_like(x, 1 / 6))
        torch.testing.assert_close(found.upper, torch.full_like(x, 1 / 6))


def test_truth_values_as_factors_and_weights_of_prelu() -> None:
    x, kept = torch.randn(2, 3), torch.tensor([True, False, True])
    for method in ("ibp", "crown", "forward", "forward+backward"):
        found = bl.capture(lambda x: torch.relu(x) * kept, x).bounds(bl.Linf(x, 0.1), method=method)
        assert torch.equal(found.lower[:, 1], torch.zeros(2)) and (found.width[:, 0] >= 0).all()
    model = nn.Sequential(nn.Linear(3, 3), nn.PReLU())
    for method in ("ibp", "crown"):
        with pytest.raises(bl.UnsupportedOperator, match="weight of prelu"):
            bl.capture(model, x).bounds(x, perturb={"1.weight": bl.Linf(eps=0.1)}, method=method)


@pytest.mark.parametrize("with_spec", [False, True])
@pytest.mark.parametrize("method", ["crown-ibp", "crown", "forward+backward", "alpha-crown"])
def test_sums_of_both_precisions(method: str, with_spec: bool) -> None:
    """Coefficients of an argument in single precision were passed on in double precision, which its
    own layers do not take."""

    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.first, self.second = (
                nn.Conv1d(1, 2, 3, padding=1),
                nn.Linear(8, 3),
                nn.Linear(3, 3).double(),
            )

        def forward(self, x: Tensor) -> Tensor:
            h = torch.relu(self.first(torch.relu(self.conv(x)).flatten(1)))
            return torch.cat([self.second(h.double()), h], 1) - h.repeat(1, 2)

    torch.manual_seed(0)
    model, x = Mixed(), torch.rand(2, 1, 4)
    region = bl.Linf(x, 0.2)
    found = bl.capture(model, x).bounds(
        region, method=method, spec=torch.eye(6) if with_spec else None
    )
    outputs = torch.stack([model(region.sample()) for _ in range(200)])
    assert found.lower.dtype == torch.float64
    assert (found.lower <= outputs + 1e-6).all() and (found.upper >= outputs - 1e-6).all()


@pytest.mark.parametrize("method", ["ibp", "crown-ibp", "crown", "forward+backward"])
@pytest.mark.parametrize("product", ["elementwise", "matrices"])
def test_perturbed_weights_that_are_expanded_to_the_batch(method: str, product: str) -> None:
    """Such a value has no samples, though an entry for each of them: its coefficients had no
    place."""

    class Expanded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 6)
            self.register_buffer("place", torch.tensor([1]))

        def forward(self, x: Tensor) -> Tensor:
            row = self.table(self.place.expand(x.shape[0])).relu()
            return (
                row * x
                if product == "elementwise"
                else (row[:, None] @ x.tanh()[:, :, None]).flatten(1)
            )

    torch.manual_seed(0)
    model, x = Expanded(), torch.randn(3, 6)
    region, weights = bl.Linf(x, 0.1), bl.Linf(model.table.weight.detach().clone(), 0.2)
    found = bl.capture(model, x).bounds(region, method=method, perturb={"table.weight": weights})
    for _ in range(200):
        with torch.no_grad():
            model.table.weight.copy_(weights.sample(batched=False))
            output = model(region.sample())
        assert (found.lower <= output + 1e-5).all() and (found.upper >= output - 1e-5).all()


def test_softmax_where_every_score_may_be_masked() -> None:
    x = torch.tensor([[0.1, 1.0, 2.0]], dtype=torch.float64)
    region = bl.Linf(x, 0.3)
    net = bl.capture(lambda x: torch.where(x > 0, x, -torch.inf).softmax(1), x)
    worst = torch.tensor([[0.01, 1.3, 1.7]], dtype=torch.float64)  # crown excluded it
    outputs = torch.cat([net(worst), *[net(region.sample()) for _ in range(500)]])
    for method in ("ibp", "crown-ibp", "crown", "forward", "forward+backward", "alpha-crown"):
        found = net.bounds(region, method=method)
        assert (found.lower <= outputs + 1e-9).all() and (found.upper >= outputs - 1e-9).all(), (
            method
        )
