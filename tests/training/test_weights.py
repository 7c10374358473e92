"""Training and attacks with perturbed weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from torch.nn import functional as F

import boundlab as bl
from boundlab.commands.flatness import Movement, measure, tensors
from boundlab.losses.flatness import weight_balls
from boundlab.training.recipe import Recipe
from boundlab.training.trainer import Trainer
from boundlab.training.weights import attack_weights, surface
from tests.helpers.data import images
from tests.helpers.weights import prepared

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
            found[method] = measure(model, data, images(), Movement(0.02, ("crown-ibp", "crown")))
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
