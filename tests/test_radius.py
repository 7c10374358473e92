"""bl.certified_radius: what it reports was asked and is so."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.errors import Contradiction
from boundlab.radius import NORMS, Radii

DUAL = {"inf": 1, "2": 2, "1": torch.inf}


def network(seed: int = 0, inputs: int = 6) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(inputs, 24), nn.ReLU(), nn.Linear(24, 3)).eval()


def linear(x: Tensor) -> tuple[bl.Net, Tensor, nn.Linear]:
    torch.manual_seed(3)
    model = nn.Linear(x.shape[1], 3)
    return bl.capture(model, x[:2]), model(x).argmax(1), model


def judged(found: Radii, net: bl.Net, x: Tensor, y: Tensor, norm: str, **options: float) -> None:
    """Everything that is reported is asked again."""
    ends = {name: options[name] for name in ("lower", "upper") if name in options}
    some = (found.proved > 0).nonzero().flatten()
    ball = NORMS[norm](x, found.proved, **ends)
    assert (net.margins(ball, y)[some] > 0).all()
    broken = found.broken.isfinite().nonzero().flatten()
    outputs = net(found.examples[broken])
    own = outputs.gather(1, y[broken, None])
    assert (outputs.scatter(1, y[broken, None], -torch.inf).amax(1, keepdim=True) >= own).all()
    inside = NORMS[norm](x[broken], found.broken[broken], **ends).contains(found.examples[broken])
    assert inside.all()
    assert found.examples[found.broken.isinf()].isnan().all()
    wrong = net(x).argmax(1) != y
    assert (found.proved < found.broken)[~wrong].all()
    assert (found.proved[wrong] == 0).all() and (found.broken[wrong] == 0).all()


@pytest.mark.parametrize("norm", NORMS)
def test_linear_networks_in_closed_form(norm: str) -> None:
    """The distance to the nearest plane f_y = f_k is the smallest margin by the dual norm."""
    x = torch.rand(9, 5)
    net, y, model = linear(x)
    found = bl.certified_radius(net, x, y, norm, most=100.0, tolerance=0.001)
    judged(found, net, x, y, norm)
    rows = model.weight[y][:, None] - model.weight  # (samples, classes, inputs)
    margins = (model(x).gather(1, y[:, None]) - model(x)).scatter(1, y[:, None], torch.inf)
    exact = (margins / torch.linalg.vector_norm(rows, DUAL[norm], dim=2)).amin(1)
    assert (found.proved <= exact * (1 + 1e-5)).all()
    assert (found.proved >= exact * 0.998).all()
    assert (found.broken >= exact * (1 - 1e-5)).all()
    assert (found.broken <= exact * 1.05).all()


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("method", ["ibp", "crown", "alpha-crown"])
def test_what_is_reported_is_so(norm: str, method: str) -> None:
    model, x = network(), torch.rand(10, 6)
    net, y = bl.capture(model, x[:2]), model(x).argmax(1)
    y[3] = (y[3] + 1) % 3
    options = {"lower": 0.0, "upper": 1.0}
    found = bl.certified_radius(net, x, y, norm, method, most=3.0, batch=4, **options)
    wrong = found.broken == 0
    assert wrong.nonzero().flatten().tolist() == [3]
    assert (found.proved < found.broken)[~wrong].all()
    again = net.margins(NORMS[norm](x, found.proved, **options), y, method=method)
    assert (again[~wrong] > 0).all()
    if method == "crown":
        judged(found, net, x, y, norm, **options)


def test_every_proved_radius_was_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = network(1), torch.rand(5, 6)
    net, y = bl.capture(model, x[:2]), model(x).argmax(1)
    asked: list[Tensor] = []
    original = bl.Net.margins

    def margins(net: bl.Net, region: bl.Linf, labels: Tensor, **options: object) -> Tensor:
        found = original(net, region, labels, **options)
        assert region.x is not None
        for sample, radius, holds in zip(region.x, region.eps, (found > 0).all(1), strict=True):
            if holds:
                place = int((x == sample).all(1).nonzero())
                asked.append(torch.stack([torch.tensor(float(place)), radius]))
        return found

    monkeypatch.setattr(bl.Net, "margins", margins)
    found = bl.certified_radius(net, x, y, restarts=0)
    pairs = {(int(place), float(radius)) for place, radius in torch.stack(asked)}
    assert all((k, float(radius)) in pairs for k, radius in enumerate(found.proved))
    assert found.broken.isinf().all()  # nothing was attacked
    assert len(asked) < 5 * 20


def test_methods_that_are_not_monotone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that proves nothing in a band of radii: what is reported lies outside of it."""
    model, x = network(2), torch.rand(6, 6)
    net, y = bl.capture(model, x[:2]), model(x).argmax(1)
    plain = bl.certified_radius(net, x, y, restarts=0).proved
    original = bl.Net.margins

    def margins(net: bl.Net, region: bl.Linf, labels: Tensor, **options: object) -> Tensor:
        found = original(net, region, labels, **options)
        assert isinstance(region.eps, Tensor)
        band = (region.eps > 0.2 * plain.min()) & (region.eps < 0.9 * plain.min())
        return torch.where(band[:, None], -1.0, found)

    monkeypatch.setattr(bl.Net, "margins", margins)
    found = bl.certified_radius(net, x, y, restarts=0).proved
    assert (margins(net, bl.Linf(x, found), y) > 0).all()


def test_the_largest_radius() -> None:
    x = torch.rand(4, 5)
    net, y, _ = linear(x)
    found = bl.certified_radius(net, x, y, most=1e-4)
    assert (found.proved == 1e-4).all() and found.broken.isinf().all()


def test_double_precision_and_labels_as_lists() -> None:
    x = torch.rand(4, 5).double()
    torch.manual_seed(0)
    model = nn.Linear(5, 3).double()
    net = bl.capture(model, x[:2])
    y = model(x).argmax(1)
    found = bl.certified_radius(net, x, y.tolist(), tolerance=1e-3)
    assert found.proved.dtype == torch.float64
    judged(found, net, x, y, "inf")
    assert "4 samples" in str(found) and "4 broken" in str(found)


def test_wrong_proofs_are_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method that proves four times as much as it should."""
    x = torch.rand(6, 5)
    net, y, _ = linear(x)
    original = bl.Net.margins

    def margins(net: bl.Net, region: bl.Linf, labels: Tensor, **options: object) -> Tensor:
        return original(net, bl.Linf(region.x, region.eps / 4), labels, **options)

    monkeypatch.setattr(bl.Net, "margins", margins)
    with pytest.raises(Contradiction, match=r"sample 0 of a batch is proved .* bug"):
        bl.certified_radius(net, x, y, most=10.0)


def test_mistakes() -> None:
    x = torch.rand(4, 5)
    net, y, model = linear(x)
    for match, options in (
        ("norm must be one of", {"norm": "3"}),
        ("norm must be one of", {"norm": None}),
        ("most must be a number above 0", {"most": 0.0}),
        ("tolerance must be", {"tolerance": float("nan")}),
        ("batch size", {"batch": 0}),
    ):
        with pytest.raises(bl.ArgumentError, match=match):
            bl.certified_radius(net, x, y, **options)  # type: ignore[arg-type]
    with pytest.raises(bl.ArgumentError, match="labels"):
        bl.certified_radius(net, x, y[:2])
    fixed = bl.capture(torch.export.export(model, (x,)))
    with pytest.raises(bl.ArgumentError, match="free batch size"):
        bl.certified_radius(fixed, x, y)
