"""Perturbed weights: bounds of the mean loss over balls around them hold under attack, and are
taken over the shared ball."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

import boundlab as bl
from boundlab.cli import main
from boundlab.coefficients.outer import Outer
from boundlab.commands.flatness import measure, tensors
from boundlab.losses.flatness import _Lines, mean_loss_bound, weight_balls
from boundlab.methods import backward
from boundlab.relaxations.products import CentreForm, SignedForm, WithBias
from boundlab.relaxations.relaxation import AffineMap, Lines, Planes
from boundlab.training.recipe import Recipe
from boundlab.training.trainer import Trainer
from boundlab.training.weights import attack_weights, surface
from tests.helpers.data import images

BACKWARD = ("crown-ibp", "crown", "forward+backward")


class Encoder(nn.Module):
    """One layer of attention and feed-forward over four tokens, with layer norm, and a classifier
    of the mean token."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(4, 4) for _ in range(3))
        self.norm, self.up, self.down, self.out = (
            nn.LayerNorm(4),
            nn.Linear(4, 6),
            nn.Linear(6, 4),
            nn.Linear(4, 3),
        )

    def forward(self, x: Tensor) -> Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 2
        x = self.norm(x + scores.softmax(-1) @ self.value(x))
        return self.out((x + self.down(F.relu(self.up(x)))).mean(1))


def number(value: Tensor) -> float:
    return float(value.detach())


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))


def cnn() -> nn.Module:
    layers = [
        nn.Conv2d(1, 3, 3, stride=2, padding=1),
        nn.BatchNorm2d(3),
        nn.ReLU(),
        nn.Conv2d(3, 4, 2, groups=1),
        nn.ReLU(),
    ]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(16, 3))


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (6,)),
    "cnn": (cnn, (1, 6, 6)),
    "encoder": (Encoder, (4, 4)),
}


def prepared(name: str, seed: int = 0, batch: int = 5) -> tuple[nn.Module, bl.Net, Tensor, Tensor]:
    torch.manual_seed(seed)
    make, shape = MODELS[name]
    model = make().double().eval()
    x, y = torch.rand(batch, *shape, dtype=torch.float64), torch.randint(0, 3, (batch,))
    return model, bl.capture(model, x), x, y


def ball_point(centre: Tensor, direction: Tensor, radius: float, norm: float) -> Tensor:
    """The point of the ball's surface in a direction."""
    if norm == math.inf:
        return centre + radius * direction.sign()
    if norm == 1.0:  # the corner that a linear function is largest at
        step = torch.zeros_like(direction).flatten()
        step[direction.abs().argmax()] = direction.flatten()[direction.abs().argmax()].sign()
        return centre + radius * step.reshape(direction.shape)
    return centre + radius * direction / torch.linalg.vector_norm(direction, norm).clamp(min=1e-300)


def attacked(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    radii: dict[str, float],
    norm: float,
    tries: int = 60,
    steps: int = 12,
) -> float:
    """The largest mean loss found for weights in the balls, at random points and by gradient ascent
    from them."""
    state = {
        name: value.detach()
        for name, value in {**dict(model.named_parameters()), **dict(model.named_buffers())}.items()
    }
    loss = lambda moved: F.cross_entropy(functional_call(model, {**state, **moved}, (x,)), y)
    best = -math.inf
    for attempt in range(tries):
        moved = {
            name: ball_point(state[name], torch.randn_like(state[name]), radius, norm)
            for name, radius in radii.items()
        }
        for _ in range(steps if attempt % 6 == 0 else 1):
            leaves = {name: value.clone().requires_grad_() for name, value in moved.items()}
            found = loss(leaves)
            best = max(best, float(found.detach()))
            gradients = torch.autograd.grad(found, list(leaves.values()))
            moved = {
                name: ball_point(state[name], g, radii[name], norm)
                for name, g in zip(leaves, gradients, strict=True)
            }
    return best


@pytest.mark.parametrize("norm", [2.0, math.inf, 1.0, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_no_weights_in_the_balls_have_a_larger_loss(name: str, norm: float) -> None:
    model, net, x, y = prepared(name)
    eps = 0.01 if norm == math.inf else 0.05
    balls = weight_balls(net, eps, relative=False, norm=norm)
    worst = attacked(model, x, y, dict.fromkeys(balls, eps), norm)
    found = {
        method: number(mean_loss_bound(net, x, y, perturb=balls, method=method))
        for method in ("ibp", "forward", *BACKWARD)
    }
    assert all(bound >= worst for bound in found.values()), (worst, found)
    assert found["crown"] <= found["ibp"] + 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", MODELS)
def test_thousands_of_weights_in_the_balls(name: str, seed: int) -> None:
    """2000 random points of each ball, every sixth of them climbed from in 12 steps: 5700 sets of
    weights for each network."""
    model, net, x, y = prepared(name, seed=seed, batch=8)
    for eps in (0.02, 0.2):
        balls = weight_balls(net, eps)
        radii = {name: number(torch.as_tensor(ball.eps)) for name, ball in balls.items()}  # type: ignore[attr-defined]
        worst = attacked(model, x, y, radii, 2.0, tries=2000)
        for method in ("ibp", *BACKWARD):
            assert number(mean_loss_bound(net, x, y, perturb=balls, method=method)) >= worst


@pytest.mark.parametrize("name", MODELS)
def test_weights_and_inputs_at_once(name: str) -> None:
    model, net, x, y = prepared(name, seed=1)
    balls = weight_balls(net, 0.03, relative=False)
    region = bl.Linf(x, 0.02)
    bound = number(mean_loss_bound(net, region, y, perturb=balls))
    alone = number(mean_loss_bound(net, x, y, perturb=balls))
    for _ in range(20):
        assert (
            attacked(model, region.sample(), y, dict.fromkeys(balls, 0.03), 2.0, tries=3, steps=3)
            <= bound
        )
    assert alone <= bound


@pytest.mark.parametrize("method", BACKWARD)
def test_the_mean_is_bounded_over_the_shared_ball(method: str) -> None:
    """The bound of the mean is at most the mean of the bounds of single samples, and clearly less
    where they pull apart."""
    _, net, x, y = prepared("mlp", batch=24)
    balls = weight_balls(net, 0.1, relative=False)
    together = mean_loss_bound(net, x, y, perturb=balls, method=method)
    fused = bl.robust_cross_entropy(net, x, y, perturb=balls, method=method).mean()
    single = torch.stack(
        [
            mean_loss_bound(net, x[i : i + 1], y[i : i + 1], perturb=balls, method=method)
            for i in range(24)
        ]
    ).mean()
    assert together <= single + 1e-9 and together < fused
    assert single - together > 0.02


def test_flatness_is_zero_for_points_and_grows() -> None:
    _, net, x, y = prepared("mlp")
    values = [number(bl.flatness(net, x, y, eps)) for eps in (0.0, 0.01, 0.02, 0.04)]
    assert abs(values[0]) < 1e-9 and values == sorted(values) and values[1] > 1e-4
    by_parts = number(bl.flatness(net, x, y, 0.02, batch=2))
    assert by_parts >= values[2] - 1e-9
    assert number(bl.flatness(net, x, y, 0.02, parameters=["0.weight"])) < values[2]
    sizes = {name: ball.eps for name, ball in weight_balls(net, 0.02).items()}  # type: ignore[attr-defined]
    assert set(sizes) == {"0.weight", "2.weight", "4.weight"}
    torch.testing.assert_close(
        torch.as_tensor(sizes["2.weight"]), 0.02 * net.parameters()["2.weight"].norm()
    )


def test_the_bound_can_be_trained_with() -> None:
    torch.manual_seed(0)
    model = mlp()
    x, y = torch.rand(12, 6), torch.randint(0, 3, (12,))
    net = bl.capture(model, x)
    optimiser, seen = torch.optim.SGD(model.parameters(), lr=0.2), []
    for _ in range(40):
        optimiser.zero_grad()
        bound = mean_loss_bound(net, x, y, perturb=weight_balls(net, 0.1, relative=False))
        bound.backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
        optimiser.step()
        seen.append(number(bound))
    assert seen[-1] < seen[0] - 0.05


def test_what_is_wrong_is_said() -> None:
    _, net, x, y = prepared("mlp")
    with pytest.raises(bl.ArgumentError, match="nope"):
        weight_balls(net, 0.1, parameters=["nope"])
    with pytest.raises(bl.ArgumentError, match="negative"):
        bl.flatness(net, x, y, -0.1)
    with pytest.raises(bl.ArgumentError, match="labels"):
        mean_loss_bound(net, x, y[:2], perturb=weight_balls(net, 0.1))
    with pytest.raises(bl.ArgumentError, match="empty batch"):
        mean_loss_bound(net, x[:0], y[:0], perturb=weight_balls(net, 0.1))


# -- what each sample asks of a weight -------------------------------------------------------------

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (4,)),
    "tokens": (lambda: nn.Linear(4, 3), (2, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 4, 3, stride=2, padding=1, groups=2), (2, 7)),
    "conv2d": (
        lambda: nn.Conv2d(2, 3, (3, 2), stride=(1, 2), padding=(2, 0), dilation=(2, 1)),
        (2, 6, 5),
    ),
    "conv3d": (lambda: nn.Conv3d(1, 2, 2), (1, 3, 3, 3)),
    "same": (lambda: nn.Conv2d(1, 2, 3, padding="same"), (1, 4, 4)),
    "norm": (lambda: nn.BatchNorm2d(2).eval(), (2, 3, 3)),
}


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_by_samples_as_copies_would(name: str, both: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Coefficients by samples in closed form are those of a copy of the batch for every sample; one
    or both sides perturbed."""
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    model = make().double().eval()
    x = torch.rand(3, *shape, dtype=torch.float64)
    net = bl.capture(model, x)
    perturb: dict[str, bl.Region] = {"weight": bl.L2(eps=0.3), "bias": bl.Linf(eps=0.1)}
    entry = bl.Linf(x, 0.1) if both else x
    lines = net.linear_bounds(entry, perturb=perturb)
    bounds, forward = (
        net.bounds(entry, perturb=perturb, method=method) for method in ("crown", "forward")
    )
    monkeypatch.setattr(
        AffineMap,
        "_of_units",
        lambda self, units, apart: self._apply([unit.dense() for unit in units]),
    )
    for kind in (AffineMap, CentreForm, Lines, Planes, SignedForm, WithBias):
        monkeypatch.setattr(kind, "backward_per_sample", lambda *_: None)
    monkeypatch.setattr(Planes, "backward", Planes.__dict__["backward"])
    copies = net.linear_bounds(entry, perturb=perturb)
    for part in ("lower_A", "upper_A"):
        for key, value in getattr(lines, part).items():
            torch.testing.assert_close(value, getattr(copies, part)[key])
    torch.testing.assert_close(net.bounds(entry, perturb=perturb).lower, bounds.lower)
    torch.testing.assert_close(
        net.bounds(entry, perturb=perturb, method="forward").upper, forward.upper
    )


@pytest.mark.parametrize("name", ["linear", "conv2d", "same"])
def test_interval_arithmetic_knows_the_norm_of_a_weight(name: str) -> None:
    """One step from a Euclidean ball is exact: eps times the norm of what each weight is multiplied
    with."""
    torch.manual_seed(0)
    make, shape = LAYERS[name]
    net = bl.capture(make().double(), x := torch.rand(2, *shape, dtype=torch.float64))
    perturb = {"weight": bl.L2(eps=0.3)}
    ibp, crown = (net.bounds(x, perturb=perturb, method=method) for method in ("ibp", "crown"))
    torch.testing.assert_close(ibp.lower, crown.lower)
    torch.testing.assert_close(ibp.upper, crown.upper)
    if name == "linear":
        torch.testing.assert_close(ibp.width, 0.6 * x.norm(dim=1, keepdim=True).expand(-1, 3))


def test_factors_stand_for_their_product() -> None:
    left, right = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(3, 5, dtype=torch.float64)
    outer, value, shares = (
        Outer(left, right),
        torch.randn(4, 5, dtype=torch.float64),
        torch.rand(3, dtype=torch.float64),
    )
    dense = outer.dense()
    torch.testing.assert_close(outer.dot(value), (dense * value).flatten(2).sum(2))
    torch.testing.assert_close(
        outer.total(shares)[:, 0], torch.einsum("rsoi,s->roi", dense, shares)
    )
    for order in (1.0, 2.0, 3.0, math.inf):
        torch.testing.assert_close(
            outer.norm(order), torch.linalg.vector_norm(dense.flatten(2), order, dim=2)
        )
    for region in (
        bl.L2(value, 0.3),
        bl.L1(value, 0.3),
        bl.Linf(value, 0.3),
        bl.L2(value, 0.3, upper=float(value.max())),
        bl.L2(value, value.abs()),
    ):
        torch.testing.assert_close(region.least(outer), region.minimum(dense))
        torch.testing.assert_close(region.least(-outer), region.minimum(-dense))
    lines = _Lines(
        torch.ones(3, dtype=torch.float64), [(bl.L2(value, 0.3), Outer(left[:1], right))]
    )
    same = _Lines(torch.ones(3, dtype=torch.float64), [(bl.L2(value, 0.3), dense[:1])])
    torch.testing.assert_close(lines.largest(), same.largest())
    torch.testing.assert_close(lines.largest_total(shares), same.largest_total(shares))
    assert backward.dense(outer).equal(dense)


# -- training and measuring ------------------------------------------------------------------------

FLAT = Recipe(
    name="flat", model="mlp", perturb="weights", eps=0.1, share=0.5, normalise=False,
    optimiser="sgd", lr=0.2, epochs=40, batch=24, milestones=(36,),
    schedule="linear", start=10, length=20, init="default", tightness=0, balance=0, beta=(1.0, 1.0),
)  # fmt: skip


def test_flat_training_lowers_the_certified_rise(tmp_path: Path) -> None:
    found = {}
    for method in ("natural", "crown-ibp"):
        trainer = Trainer(replace(FLAT, method=method), images(), tmp_path / method)
        data = trainer.task.data  # type: ignore[attr-defined]
        assert len(data) == 48
        model = trainer.run()
        x, labels = tensors(data)
        with torch.no_grad():
            found[method] = measure(model, data, images(), 0.02, ("crown-ibp", "crown"))
            net = bl.capture(model, x[:2])
            values = surface(
                model.double(),
                x.double(),
                labels,
                weight_balls(bl.capture(model, x[:2].double()), 0.02),
                points=7,
            )
        # the loss at every point of the plane that lies in the balls is below the bound
        ticks = torch.linspace(-1, 1, 7)
        inside = ticks[:, None] ** 2 + ticks**2 <= 1
        for figure in found[method]["flatness"].values():
            assert float(values[inside].max()) <= found[method]["loss"] + figure + 1e-5
            assert found[method]["attacked"] <= figure + 1e-6
        assert net.parameters().keys() == dict(model.named_parameters()).keys()
    assert found["crown-ibp"]["flatness"]["crown-ibp"] < found["natural"]["flatness"]["crown-ibp"]
    resumed = Trainer(replace(FLAT, method="natural"), images(), tmp_path / "natural")
    assert resumed.resume() and resumed.epoch == 40


def test_attacks_on_weights_stay_in_their_balls() -> None:
    model, net, x, y = prepared("mlp")
    balls = weight_balls(net, 0.05)
    worst, moved = attack_weights(model, x, y, balls, steps=8)
    with torch.no_grad():
        loss = F.cross_entropy(model(x), y)
    assert worst > float(loss)
    for name, value in moved.items():
        assert (value - net.parameters()[name]).norm() <= balls[name].eps * (1 + 1e-9)  # type: ignore[attr-defined]
    # where nothing can be gained, because all gradients are 0 or too small for their squares, it
    # stays too
    with torch.no_grad():
        list(model.children())[-1].weight.mul_(1e-180)
    _, moved = attack_weights(model, x, y, weight_balls(net, 0.05), steps=3)
    sizes = weight_balls(net, 0.05)
    assert all(
        (moved[name] - net.parameters()[name]).norm() <= sizes[name].eps * (1 + 1e-9)
        for name in moved
    )  # type: ignore[attr-defined]


def test_the_command_measures_a_trained_network(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, picture = tmp_path / "run", tmp_path / "surface.svg"
    flags = [
        "--epochs",
        "2",
        "--batch",
        "8",
        "--share",
        "0.25",
        "--start",
        "0",
        "--length",
        "1",
        "--milestones",
        "1",
    ]
    assert (
        main(["train", "flat-mnist", "--files", str(files), "--output", str(output), *flags]) == 0
    )
    call = [
        "flatness",
        str(output),
        "--files",
        str(files),
        "--methods",
        "crown-ibp",
        "crown",
        "--limit",
        "10",
        "--surface",
        str(picture),
    ]
    assert main(call) == 0
    said = capsys.readouterr().out
    assert (
        "certified by crown" in said
        and "attacking" in said
        and "test error" in said
        and "<svg" in picture.read_text()
    )
    found = json.loads((output / "flatness.json").read_text())
    assert (
        found["samples"] == 10
        and 0 <= found["attacked"] <= found["flatness"]["crown"] <= found["flatness"]["crown-ibp"]
    )
    assert main(["flatness", str(tmp_path / "nothing"), "--files", str(files)]) == 1
