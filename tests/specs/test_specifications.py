"""Rows of specifications and margins of labels: those of the outputs that they are made of."""

from __future__ import annotations

import pytest
import torch

from tests.helpers.captures import bounds_of, boxes, captured, tensors_of
from tests.helpers.contract import METHODS, assert_close, assert_inside, members, slack, steps
from tests.networks import NETWORKS

SPECIFIED = (
    "mlp",
    "highway",
    "cnn",
    "densenet",
    "unet-transposed",
    "rnn-tanh",
    "attention",
    "attention-causal",
    "siamese",
    "log-softmax",
    "sine",
    "graph",
)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", SPECIFIED)
def test_specifications(name: str, method: str) -> None:
    """spec of shape (specs, out) and (batch, specs, out): the same, true, and per sample; sides as
    asked."""
    model, net = captured(name)
    regions = boxes(name, 3)
    size = tensors_of(model(*NETWORKS[name].inputs(1)))[0].numel()
    spec = torch.randn(
        3, 2, size, generator=torch.Generator().manual_seed(0), dtype=NETWORKS[name].dtype
    )
    whole = net.bounds(*regions, spec=spec, method=method, alpha=steps(method))
    assert whole.lower.shape == whole.upper.shape == (3, 2)
    shared = net.bounds(*regions, spec=spec[1], method=method, alpha=steps(method))
    assert_close(whole.lower[1], shared.lower[1], what="spec for one sample")
    assert_close(whole.upper[1], shared.upper[1], what="spec for one sample")
    for point in zip(
        *[members(region, 4, seed) for seed, region in enumerate(regions)], strict=True
    ):
        with torch.no_grad():
            value = (spec @ model(*point).reshape(3, size, 1)).squeeze(-1)
        assert_inside(value, whole.lower.detach(), whole.upper.detach(), "spec")
    lower, upper = (
        net.bounds(*regions, spec=spec, method=method, alpha=steps(method), sides=side)
        for side in ("lower", "upper")
    )
    assert_close(lower.lower, whole.lower, what="lower side")
    assert_close(upper.upper, whole.upper, what="upper side")
    assert torch.isposinf(lower.upper).all()
    assert torch.isneginf(upper.lower).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    "name", ["mlp", "cnn", "highway", "attention-pooling", "several", "choices"]
)
def test_sides(name: str, method: str) -> None:
    _, net = captured(name)
    regions = boxes(name, 2)
    both = bounds_of(net.bounds(*regions, method=method, alpha=steps(method)))
    lower, upper = (
        bounds_of(net.bounds(*regions, method=method, alpha=steps(method), sides=side))
        for side in ("lower", "upper")
    )
    for a, b, c in zip(both, lower, upper, strict=True):
        assert_close(a.lower, b.lower, what="lower side")
        assert_close(a.upper, c.upper, what="upper side")
        assert torch.isposinf(b.upper).all()
        assert torch.isneginf(c.lower).all()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["mlp", "cnn", "densenet", "softmax"])
def test_margins(name: str, method: str) -> None:
    """f_y - f_k for k != y in order, at least as tight as the difference of the bounds, and
    true."""
    model, net = captured(name)
    regions = boxes(name, 3)
    classes = model(*NETWORKS[name].inputs(1)).shape[1]
    labels = torch.tensor([0, classes - 1, 1])
    margins = net.margins(*regions, labels, method=method, alpha=steps(method))
    assert margins.shape == (3, classes - 1)
    others = torch.tensor([[k for k in range(classes) if k != label] for label in labels.tolist()])
    eye = torch.eye(classes)
    spec = eye[labels][:, None] - eye[others]
    assert_close(
        margins,
        net.bounds(*regions, spec=spec, method=method, alpha=steps(method), sides="lower").lower,
        what="margins as a specification",
    )
    # behind a linear layer the difference is never looser than the two bounds apart
    if name != "softmax":
        bounds = net.bounds(*regions, method=method, alpha=steps(method))
        apart = bounds.lower.gather(1, labels[:, None]) - bounds.upper.gather(1, others)
        assert (margins >= apart - 3 * slack(margins.detach(), apart.detach())).all()
    for (point,) in zip(members(regions[0], 6, 0), strict=True):
        with torch.no_grad():
            value = model(point)
        difference = value.gather(1, labels[:, None]) - value.gather(1, others)
        assert_inside(
            difference, margins.detach(), torch.full_like(margins, torch.inf).detach(), "margins"
        )


def test_margins_of_a_single_class_are_empty() -> None:
    _, net = captured("sine")
    assert net.margins(*boxes("sine", 2), torch.tensor([0, 0])).shape == (2, 0)
