"""States: what is known goes in, what is found comes out, and bounds hold under constraints."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.methods.alpha import Alpha
from boundlab.net import net as net_module
from tests.helpers.captures import net_of

FEW = Alpha(iterations=6)


def network(seed: int = 0, hidden: int = 8) -> nn.Sequential:
    torch.manual_seed(seed)
    model = nn.Sequential(
        nn.Linear(3, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
    )
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.6)
    return model


def inside(x: Tensor, eps: float, count: int = 4000) -> Tensor:
    """Members of the ball, (count, samples, 3), corners among them."""
    moves = 2 * torch.rand(count, *x.shape) - 1
    moves[: count // 4] = moves[: count // 4].sign()
    return x + eps * moves


@pytest.mark.parametrize("method", ["crown", "crown-ibp", "alpha-crown", "beta-crown"])
@pytest.mark.parametrize("at", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_hold_where_the_constraints_do(method: str, at: float, seed: int) -> None:
    model, x, eps = network(seed), torch.randn(2, 3), 0.8
    net, region = net_of(__name__, model, x), bl.Linf(torch.randn(2, 3), 0.8)
    x = region.centre
    first = net.bounds(region, state=bl.BoundState())
    assert first.state is not None
    points = inside(x, eps)
    hidden = model[2](model[1](model[0](points)))
    for neuron in range(4):
        for sign in (1, -1):
            state = first.state.split("2", neuron, sign, at).split("0", neuron, -sign)
            options = {"alpha": FEW} if method.endswith(("alpha-crown", "beta-crown")) else {}
            found = net.bounds(region, method=method, state=state, **options)
            holds = sign * (hidden[..., neuron] - at) >= 0
            holds &= -sign * model[0](points)[..., neuron] >= 0
            value = model(points)
            low = torch.where(holds[..., None], found.lower - 1e-4 <= value, True)
            up = torch.where(holds[..., None], value <= found.upper + 1e-4, True)
            assert low.all() and up.all()
            assert found.state is not None
            if found.state.empty is not None:
                assert not (holds.any(0) & found.state.empty).any()


@pytest.mark.parametrize("specs", [1, 2])
def test_splits_of_a_node_that_reads_perturbed_weights(specs: int) -> None:
    """Each sample keeps its own coefficients of the weight, and its own multipliers."""
    model, x = network(), torch.randn(3, 3)
    net = bl.capture(model, x)
    weight = model[2].weight.detach()
    perturb = {"2.weight": bl.Linf(weight, 0.1)}  # type: ignore[arg-type]
    region, spec = bl.Linf(x, 0.3), torch.randn(specs, 2)
    first = net.bounds(region, perturb=perturb, spec=spec, state=bl.BoundState())
    assert first.state is not None
    signs = torch.tensor([1, -1, 1])
    state = first.state.split("2", torch.tensor([0, 3, 5]), signs)
    found = net.bounds(
        region, perturb=perturb, spec=spec, method="beta-crown", state=state, alpha=FEW
    )
    points = inside(x, 0.3, 3000)
    moved = weight + 0.1 * (2 * torch.rand(3000, *weight.shape) - 1)
    hidden = torch.einsum("pij,psj->psi", moved, torch.relu(model[0](points))) + model[2].bias
    chosen = hidden[:, torch.arange(3), torch.tensor([0, 3, 5])]
    holds = (signs * chosen >= 0)[..., None]
    value = model[4](torch.relu(hidden)) @ spec.T
    assert holds.any()
    assert torch.where(holds, found.lower - 1e-4 <= value, True).all()
    assert torch.where(holds, value <= found.upper + 1e-4, True).all()


def test_splits_and_multipliers_tighten() -> None:
    """With both halves of a neuron the least bound is at least as high, and mostly higher."""
    gains = []
    for seed in range(6):
        model, x = network(seed), torch.randn(1, 3)
        problem = bl.capture(model, x).problem(bl.Linf(x, 0.8), spec=torch.tensor([[1.0, -1.0]]))
        with torch.no_grad():
            whole = problem.bounds(None, "alpha-crown", "lower")
            assert whole.state is not None
            state = whole.state
            interval = state["2"]
            neuron = int((-interval.lower * interval.upper).argmax())
            halves = [state.split("2", neuron, sign) for sign in (1, -1)]
            found = problem.bounds(bl.BoundState.join(halves), "beta-crown", "lower")
            least = found.lower.amin()
        assert least >= whole.lower.amin() - 0.02  # a child may begin a little lower
        gains.append(float(least - whole.lower.amin()))
    assert sum(gain > 1e-3 for gain in gains) >= 2


def test_multipliers_do_what_slopes_cannot() -> None:
    """min of x over [-1, 1] where 2 x - 1 >= 0 is 0.5: no relaxation is involved, only betas."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Linear(1, 1)
            nn.init.constant_(self.read.weight, 2.0)
            nn.init.constant_(self.read.bias, -1.0)

        def forward(self, x: Tensor) -> Tensor:
            return x + 0 * torch.relu(self.read(x)) + 0.25 * torch.relu(-self.read(x) - 5)

    x = torch.zeros(1, 1)
    net, region = bl.capture(Model(), x), bl.Linf(x, 1.0)
    first = net.bounds(region, state=bl.BoundState())
    assert first.state is not None
    state = first.state.split("read", 0, 1)
    assert net.bounds(region, method="crown-ibp", state=state).lower <= -0.9
    found = net.bounds(region, method="beta-crown", state=state, alpha=Alpha(iterations=60))
    assert 0.4 <= found.lower <= 0.5 + 1e-5


def test_known_intervals_are_used_and_not_believed_where_looser() -> None:
    model, x = network(), torch.randn(2, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.5)
    full = net.bounds(region, intermediates=True)
    tight = {"2": (full["2"].lower, full["2"].upper)}
    plain, told = net.bounds(region, method="crown-ibp"), None
    told = net.bounds(region, method="crown-ibp", known=tight)
    assert (told.lower >= plain.lower - 1e-6).all()
    assert (told.lower > plain.lower + 1e-4).any()
    wide = {"2": (full["2"].lower - 100, full["2"].upper + 100)}
    loose = net.bounds(region, method="crown-ibp", known=wide)
    assert torch.allclose(loose.lower, plain.lower, atol=1e-6)


def test_known_intervals_are_checked() -> None:
    model, x = network(), torch.randn(2, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.5)
    with pytest.raises(bl.ArgumentError, match="no node or module 'nowhere'"):
        net.bounds(region, known={"nowhere": (x, x)})
    with pytest.raises(bl.ArgumentError, match="lower <= upper"):
        net.bounds(region, known={"2": (torch.ones(2, 8), torch.zeros(2, 8))})
    with pytest.raises(bl.ArgumentError, match=r"shape \(2, 8\)"):
        net.bounds(region, known={"2": (torch.zeros(2, 3), torch.ones(2, 3))})


@pytest.mark.parametrize("method", ["crown", "alpha-crown", "crown-ibp", "ibp", "forward"])
def test_looking_at_intermediates_changes_nothing(method: str) -> None:
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 8),
        nn.ReLU(), nn.Linear(8, 2),
    ).eval()  # fmt: skip
    x = torch.rand(2, 1, 4, 4)
    net, region = bl.capture(model, x), bl.Linf(x, 0.2)
    plain, looked = (net.bounds(region, method=method, intermediates=i) for i in (False, True))
    assert torch.equal(plain.lower, looked.lower) and torch.equal(plain.upper, looked.upper)
    values = model[0](x)
    assert (looked["0"].lower <= values).all() and (values <= looked["0"].upper).all()


def test_a_state_of_other_questions_is_refused() -> None:
    model, x = network(), torch.randn(2, 3)
    net = bl.capture(model, x)
    state = net.bounds(bl.Linf(x, 0.2), state=bl.BoundState()).state
    with pytest.raises(bl.ArgumentError, match="not inside"):
        net.bounds(bl.Linf(x, 0.3), state=state)
    with pytest.raises(bl.ArgumentError, match="not inside"):
        net.bounds(bl.Linf(x + 0.1, 0.2), state=state)
    with pytest.raises(bl.ArgumentError, match="another net"):
        bl.capture(model, x).bounds(bl.Linf(x, 0.2), state=state)
    smaller = net.bounds(bl.Linf(x, 0.1), state=state)
    assert (smaller.lower >= net.bounds(bl.Linf(x, 0.1)).lower - 1e-6).all()
    with torch.no_grad():
        model[0].weight.add_(0.1)  # type: ignore[operator]
    with pytest.raises(bl.ArgumentError, match="parameters have changed"):
        net.bounds(bl.Linf(x, 0.2), state=state)


def test_a_ball_is_not_inside_of_a_smaller_set_with_its_hull() -> None:
    model, x = network(), torch.randn(2, 3)
    net = bl.capture(model, x)
    state = net.bounds(bl.L2(x, 0.2), state=bl.BoundState()).state
    with pytest.raises(bl.ArgumentError, match="not inside"):
        net.bounds(bl.Linf(x, 0.2), state=state)
    net.bounds(bl.L2(x, 0.2), state=state)


def test_taking_samples_is_asking_for_them() -> None:
    model, x = network(), torch.randn(5, 3)
    net = bl.capture(model, x)
    problem = net.problem(bl.Linf(x, 0.4))
    with torch.no_grad():
        whole = problem.bounds(method="alpha-crown")
        assert whole.state is not None
        chosen = torch.tensor([3, 0, 3])
        state = whole.state.take(chosen)
        assert state.origin is not None and state.origin.tolist() == [3, 0, 3]
        some = problem.bounds(state, "alpha-crown", alpha=Alpha(iterations=1))
        alone = net.bounds(bl.Linf(x[chosen], 0.4), method="alpha-crown")
    assert (some.lower >= whole.lower[chosen] - 1e-4).all()
    assert torch.allclose(alone.lower, whole.lower[chosen], atol=1e-4)


def test_a_warm_start_does_not_lose() -> None:
    model, x = network(), torch.randn(3, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.5)
    first = net.bounds(region, method="alpha-crown", alpha=FEW)
    again = net.bounds(region, method="alpha-crown", alpha=Alpha(iterations=1), state=first.state)
    cold = net.bounds(region, method="alpha-crown", alpha=Alpha(iterations=1))
    assert (again.lower >= first.lower - 1e-5).all()
    assert (again.lower > cold.lower + 1e-5).any()


def test_halved_batches_keep_their_slopes(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(hidden=16), torch.randn(8, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.5)
    whole = net.bounds(region, method="alpha-crown", alpha=FEW)
    halved, asked = None, []
    run = net_module.run

    def fails_for_many(query: object) -> object:
        asked.append(query.samples)  # type: ignore[attr-defined]
        if query.samples > 4:  # type: ignore[attr-defined]
            raise bl.MemoryLimit("too many")
        return run(query)

    monkeypatch.setattr("boundlab.net.net.run", fails_for_many)
    halved = net.bounds(region, method="alpha-crown", alpha=FEW)
    assert asked == [8, 4, 4]
    assert torch.allclose(halved.lower, whole.lower, atol=1e-5)
    assert {k: {n: t.shape for n, t in v.items()} for k, v in halved.slopes.items()} == {
        k: {n: t.shape for n, t in v.items()} for k, v in whole.slopes.items()
    }
    warm = net.bounds(region, method="alpha-crown", alpha=Alpha(iterations=1), state=halved.state)
    assert (warm.lower >= halved.lower - 1e-5).all()


def test_splits_are_checked() -> None:
    model, x = network(), torch.randn(2, 3)
    net = bl.capture(model, x)
    with pytest.raises(bl.ArgumentError, match="knows nothing of samples"):
        bl.BoundState().take([0])
    state = net.bounds(bl.Linf(x, 0.2), state=bl.BoundState()).state
    assert state is not None
    with pytest.raises(bl.ArgumentError, match="must be 1 or -1"):
        state.split("2", 0, 2)
    with pytest.raises(bl.ArgumentError, match="8 elements a sample"):
        state.split("2", 8, 1)
    with pytest.raises(bl.ArgumentError, match="no node or module 'x'"):
        state.split("x", 0, 1)


def test_a_contradiction_is_an_empty_domain() -> None:
    model, x = network(), torch.randn(2, 3)
    net, region = bl.capture(model, x), bl.Linf(x, 0.01)
    state = net.bounds(region, state=bl.BoundState()).state
    assert state is not None
    neuron = int(state["0"].lower[0].argmax())
    assert state["0"].lower[0, neuron] > 0.1
    found = net.bounds(region, state=state.split("0", neuron, -1, samples=[0]))
    assert found.state is not None and found.state.empty is not None
    assert found.state.empty.tolist() == [True, False]


# -- states that need not hold for what is asked ---------------------------------------------------


def begun(eps: float = 0.5) -> tuple[nn.Sequential, bl.Net, Tensor, bl.BoundState]:
    """A network, its net, an input, and the state of its ball."""
    model, x = network(), torch.randn(2, 3)
    net = bl.capture(model, x)
    state = net.bounds(bl.Linf(x, eps), state=bl.BoundState()).state
    assert state is not None
    return model, net, x, state


def test_a_smaller_region_leaves_a_state_of_its_own() -> None:
    _, net, x, state = begun()
    smaller = net.bounds(bl.Linf(x, 0.01), state=state).state
    with pytest.raises(bl.ArgumentError, match="not inside"):
        net.bounds(bl.Linf(x, 0.5), state=smaller)


def test_changes_behind_the_back_of_autograd_are_found() -> None:
    model, net, x, state = begun()
    model[0].weight.data.add_(1.0)  # type: ignore[union-attr, operator]
    with pytest.raises(bl.ArgumentError, match="parameters have changed"):
        net.bounds(bl.Linf(x, 0.5), state=state)


def test_an_input_that_was_changed_in_place_is_another_one() -> None:
    _, net, x, state = begun()
    x.add_(1.0)
    with pytest.raises(bl.ArgumentError, match="not inside"):
        net.bounds(bl.Linf(x, 0.5), state=state)


def test_a_problem_takes_its_own_states_only() -> None:
    _, net, x, state = begun()
    small, large = net.problem(bl.Linf(x, 0.01)), net.problem(bl.Linf(x, 0.5))
    with torch.no_grad():
        other = small.bounds().state
    for foreign in (other, state):
        with pytest.raises(bl.ArgumentError, match="another problem"):
            large.bounds(foreign)


def test_a_problem_whose_parameters_change_is_refused() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten()).eval()
    x = torch.rand(2, 1, 4, 4)
    problem = bl.capture(model, x).problem(bl.Linf(x, 0.05))
    with torch.no_grad():
        problem.bounds()
        model[0].weight.add_(1.0)  # type: ignore[union-attr, operator]
        with pytest.raises(bl.ArgumentError, match="parameters have changed"):
            problem.bounds()


def test_a_problem_keeps_its_inputs() -> None:
    model, net, x, _ = begun()
    problem, before = net.problem(bl.Linf(x, 0.1)), x.clone()
    x.add_(5.0)
    with torch.no_grad():
        found = problem.bounds()
        value = model(before)
    assert (found.lower <= value).all() and (value <= found.upper).all()


@pytest.mark.parametrize("kind", ["L0", "L2"])
def test_regions_with_one_hull_are_not_the_same(kind: str) -> None:
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), torch.rand(2, 6) - 0.5
    net = bl.capture(model, x)
    if kind == "L0":
        small, large = (bl.L0(x, torch.tensor([k, k]), -1.0, 1.0) for k in (1, 6))
    else:
        small, large = (bl.L2(x, torch.tensor(r), lower=-0.6, upper=0.6) for r in (2.0, 3.0))
    state = net.bounds(small, state=bl.BoundState()).state
    net.bounds(small, state=state)
    with pytest.raises(bl.ArgumentError, match="not inside"):
        net.bounds(large, state=state)


def test_only_parts_of_one_question_are_joined() -> None:
    _, net, x, state = begun()
    other = net.bounds(bl.Linf(x, 0.01), state=bl.BoundState()).state
    assert other is not None
    with pytest.raises(bl.ArgumentError, match="different questions"):
        bl.BoundState.join([state, other])
    with pytest.raises(bl.ArgumentError, match="at least one"):
        bl.BoundState.join([])
    both = bl.BoundState.join([state, state.split("2", 0, 1)])  # a split that only one has
    assert both.samples == 4


def test_models_without_a_batch_are_not_joined() -> None:
    model, x = network(), torch.randn(3)
    problem = bl.capture(model, x, batched=False).problem(bl.Linf(x, 0.5), spec=torch.eye(2))
    with torch.no_grad():
        state = problem.bounds().state
        assert state is not None
        assert problem.bounds(state.split("2", 0, 1), "beta-crown").shape == (2,)
    with pytest.raises(bl.ArgumentError, match="without a batch"):
        bl.BoundState.join([state.split("2", 0, 1), state.split("2", 0, -1)])


def test_samples_that_cannot_be_asked_for_apart() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.read = nn.Linear(3, 8)
            self.shift = nn.Parameter(torch.randn(2, 8))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.read(x) + self.shift)

    x = torch.randn(2, 3)
    problem = bl.capture(Fixed(), x).problem(bl.Linf(x, 0.1))
    with torch.no_grad():
        state = problem.bounds().state
    assert state is not None
    with pytest.raises(bl.ArgumentError, match="cannot be asked for apart"):
        state.take([1, 0])


def test_states_need_eval_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 2)).train()
    x = torch.randn(6, 3)
    net = bl.capture(model, x)
    with pytest.raises(bl.ArgumentError, match="eval mode"):
        net.bounds(bl.Linf(x, 0.05), state=bl.BoundState())
    with pytest.raises(bl.ArgumentError, match="eval mode"):
        net.problem(bl.Linf(x, 0.05))


@pytest.mark.parametrize("chosen", [[5], [-1], [0.5], [[0]], [True]])
def test_samples_that_are_not_there(chosen: list[object]) -> None:
    *_, state = begun()
    with pytest.raises(bl.ArgumentError, match="samples are chosen"):
        state.take(chosen)  # type: ignore[arg-type]


@pytest.mark.parametrize("method", ["crown", "alpha-crown", "beta-crown"])
def test_no_samples_at_all(method: str) -> None:
    model, net, x, _ = begun()
    problem = net.problem(bl.Linf(x, 0.5), spec=torch.eye(2))
    with torch.no_grad():
        state = problem.bounds(method=method).state
        assert state is not None
        assert problem.bounds(state.take([]), method).shape == (0, 2)


def test_slopes_of_products_begin_anew() -> None:
    """Their shape is not that of the node."""
    torch.manual_seed(0)
    linear = nn.Linear(4, 4)
    model = lambda x: (x.unsqueeze(1) @ linear(x).unsqueeze(2)).flatten(1)
    x = torch.randn(4, 4)
    problem = bl.capture(model, x).problem(bl.Linf(x, 0.2))
    with torch.no_grad():
        whole = problem.bounds(method="alpha-crown")
        assert whole.state is not None
        some = problem.bounds(whole.state.take([2, 0]), "alpha-crown")
    assert torch.allclose(some.lower, whole.lower[[2, 0]], atol=1e-3)


@pytest.mark.parametrize("seed", range(6))
def test_crown_is_never_looser_than_crown_ibp_over_balls(seed: int) -> None:
    torch.manual_seed(seed)
    model, x = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1)), torch.randn(2, 4)
    net = bl.capture(model, x)
    for region in (bl.L1(x, 0.7), bl.L2(x, 0.7)):
        crown, cheap = (net.bounds(region, method=m) for m in ("crown", "crown-ibp"))
        assert (crown.lower >= cheap.lower - 1e-5).all()
        again = net.bounds(region, state=net.bounds(region, state=bl.BoundState()).state)
        assert torch.allclose(again.lower, crown.lower, atol=1e-5)


def test_a_problem_whose_parameter_is_another_object() -> None:
    model, net, x, _ = begun()
    problem = net.problem(bl.Linf(x, 0.1))
    model[0].weight = nn.Parameter(torch.zeros(8, 3))
    with pytest.raises(bl.ArgumentError, match="parameters have changed"):
        problem.bounds()


class _Scaled(nn.Module):
    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return torch.relu(x * torch.tanh(w)).sum(1, keepdim=True)


def test_joined_states_of_a_node_that_samples_share() -> None:
    """Its interval was taken from the first state, where an earlier split had made it too small for
    the others: the bound of the second sample was 0, and its value 1.523."""
    model = _Scaled()
    x, w = torch.tensor([[1.0, 1.0], [-1.0, -1.0]]), torch.zeros(())
    with torch.no_grad():
        problem = bl.capture(model, x, w).problem(x, bl.Linf(w, eps=1.0))
        whole = problem.bounds().state
        first = problem.bounds(whole.take([0]).split("w", 0, 1, 0.0)).state.split("w", 0, -1, 0.5)
        second = problem.bounds(whole.take([1]).split("w", 0, -1, 0.5)).state
        for states, place in (([first, second], 1), ([second, first], 0)):
            for method in ("ibp", "crown", "alpha-crown", "beta-crown"):
                bounds = problem.bounds(bl.BoundState.join(states), method=method)
                assert float(bounds.upper[place]) >= float(model(x[1:], w - 1))


def test_a_problem_with_perturbed_parameters() -> None:
    """It was refused as if the perturbed parameter had changed."""
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))
    x, region = torch.rand(2, 2), {"0.weight": bl.Linf(eps=0.1)}
    net = bl.capture(model, x)
    with torch.no_grad():
        problem = net.problem(x, perturb=region)
        torch.testing.assert_close(problem.bounds().lower, net.bounds(x, perturb=region).lower)
        model[2].weight.mul_(2.0)
        with pytest.raises(bl.ArgumentError, match="parameters have changed"):
            problem.bounds()


def test_slopes_of_a_question_that_was_halved() -> None:
    model = nn.Sequential(nn.Linear(40, 600), nn.ReLU(), nn.Linear(600, 12))
    x = torch.randn(4, 40)
    net, region = bl.capture(model, x), bl.Linf(x, 0.1)
    with torch.no_grad():
        for memory in (64000, None):
            ask = partial(net.bounds, region, method="alpha-crown", alpha=FEW, memory=memory)
            first = ask()
            again = ask(slopes=first.slopes)
            assert (again.lower >= net.bounds(region).lower - 1e-4).all()
