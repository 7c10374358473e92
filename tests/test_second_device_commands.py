"""What commands do on a second device: certifying, programs of another device, training, words."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.attacks import AttackSettings
from boundlab.cli import main
from boundlab.commands.certify import certify_job
from boundlab.commands.jobs import Job
from boundlab.data import Images
from boundlab.data.sentences import Sentences, Vocabulary
from boundlab.demo.model import load_digits, load_model
from boundlab.models.text import build_text
from boundlab.training.evaluation import evaluate
from boundlab.training.processes import Processes
from boundlab.training.recipe import Recipe
from boundlab.training.trainer import Trainer
from boundlab.training.weights import attack_weights, surface
from boundlab.training.words import evaluate_words
from tests import second_device
from tests.helpers.captures import captured
from tests.helpers.devices import check, labels, slowly
from tests.networks import NETWORKS
from tests.second_device import DEVICE, HOST

# -- programs that were exported elsewhere ---------------------------------------------------------


class Counted(nn.Module):
    """Makes a tensor on the device of its input: in an exported program that is the device of the
    export."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("shift", torch.tensor([0.1, 0.2, 0.3]))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).relu() + self.shift * torch.arange(3, device=x.device)


def exported() -> torch.export.ExportedProgram:
    torch.manual_seed(0)
    return torch.export.export(
        Counted().eval(), (torch.rand(2, 4),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )


def test_a_program_of_another_device() -> None:
    net = bl.capture(exported())
    with pytest.raises(bl.ArgumentError, match="move_to_device_pass"):
        net.bounds(bl.Linf(torch.rand(2, 4).to(DEVICE), 0.1))
    with pytest.raises(bl.ArgumentError, match="lies on"):
        captured("mlp", DEVICE)[1].bounds(bl.Linf(NETWORKS["mlp"].inputs(2)[0], 0.1))


def test_certify_a_program_of_another_device(tmp_path: Path) -> None:
    torch.export.save(exported(), tmp_path / "model.pt2")
    generator = np.random.default_rng(0)
    np.savez(
        tmp_path / "data.npz",
        images=generator.random((5, 4), dtype=np.float32),
        labels=np.arange(5) % 3,
    )
    found = []
    for name in ("cpu", second_device.NAME):
        words_ = [
            "certify",
            tmp_path / "model.pt2",
            tmp_path / "data.npz",
            "--eps",
            "0.05",
            "--device",
            name,
            "--output",
            tmp_path / name,
        ]
        assert main([str(word) for word in words_]) == 0
        found.append(json.loads((tmp_path / name / "results.json").read_text()))
    for one, other in zip(found[0]["runs"], found[1]["runs"], strict=True):
        np.testing.assert_allclose(
            np.array(one["margins"]), np.array(other["margins"]), rtol=1e-4, atol=1e-5
        )


# -- certifying, training, words -------------------------------------------------------------------


def test_certify() -> None:
    images, classes = load_digits(5)
    runs = [
        certify_job(
            load_model().to(device),
            Job(
                images,
                classes,
                (0.02,),
                ("ibp", "crown-ibp"),
                valid=(0.0, 1.0),
                batch=4,
                device=device,
            ),
        ).runs
        for device in (HOST, DEVICE)
    ]
    for one, other in zip(*runs, strict=True):
        torch.testing.assert_close(one.margins, other.margins, rtol=1e-4, atol=1e-4)


def test_what_is_verified_on_the_host() -> None:
    """The method complete takes a copy of the model there, and keeps what it finds."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).eval()
    images = torch.randint(0, 256, (2, 1, 2, 2), dtype=torch.uint8)
    classes = model(images / 255).argmax(1)
    model = model.to(DEVICE)
    radii, methods = (1.0, 0.001), ("complete",)
    job = Job(images, classes, radii, methods, device=DEVICE, attack=None, timeout=60)
    found = certify_job(model, job)
    assert [found.verdicts(radius) for radius in radii] == [["falsified"] * 2, ["proved"] * 2]
    assert next(model.parameters()).device.type == DEVICE.type
    data = Images(images, classes, 3, "points")
    none = AttackSettings(restarts=0)
    for radius, falsified in ((1.0, 1.0), (0.001, 0.0)):
        errors = evaluate(model, data, radius, methods, none, processes=Processes(device=DEVICE))
        assert (errors.attacked, errors.verified["complete"]) == (falsified, 1 - falsified)


@pytest.mark.parametrize("norm", slowly("inf", "2", "1"))
def test_certify_command(tmp_path: Path, norm: str, capsys: pytest.CaptureFixture[str]) -> None:
    images, classes = load_digits(3)
    np.savez(tmp_path / "data.npz", images=images.numpy(), labels=classes.numpy())
    arguments = [
        "certify",
        "boundlab.demo.model:load_model",
        tmp_path / "data.npz",
        "--eps",
        "0.02",
        "--norm",
        norm,
        "--methods",
        "crown-ibp",
    ]
    arguments += [
        "--mean",
        "0.1",
        "--std",
        "0.9",
        "--device",
        second_device.NAME,
        "--output",
        tmp_path / "report",
    ]
    assert main([str(word) for word in arguments]) == 0, capsys.readouterr().err
    assert any((tmp_path / "report").iterdir())


def digits(count: int = 24) -> Images:
    generator = torch.Generator().manual_seed(1)
    return Images(
        torch.randint(0, 256, (count, 1, 28, 28), dtype=torch.uint8, generator=generator),
        torch.arange(count) % 10,
        10,
        "digits",
    )


RECIPE = Recipe.read(
    {
        "data": "mnist",
        "model": "tiny-cnn",
        "epochs": 1,
        "batch": 12,
        "start": 0.0,
        "length": 1.0,
        "eps": 0.01,
        "milestones": (),
    }
)


RECIPES = {
    "crown-ibp": RECIPE,
    "ibp": replace(RECIPE, method="ibp"),
    "adaptive": replace(RECIPE, schedule="adaptive"),
    "augmented": replace(RECIPE, flip=True, crop=2, l1=1e-5, channels_last=True),
    "batch norm": replace(RECIPE, model="small-cnn-bn"),
    "weights": replace(
        RECIPE,
        model="mlp",
        perturb="weights",
        init="default",
        tightness=0.0,
        balance=0.0,
        normalise=False,
        batch=24,
        optimiser="sgd",
    ),
}


@pytest.mark.parametrize("recipe", slowly(*RECIPES))
def test_training(recipe: str) -> None:
    check(
        lambda device: list(
            Trainer(RECIPES[recipe], digits(), None, Processes(0, 1, device)).run().parameters()
        ),
        1e-3,
    )


def test_evaluate() -> None:
    images, classes = load_digits(5)
    ask = lambda device: evaluate(
        load_model(),
        Images(images, classes, 10, "digits"),
        0.05,
        ("ibp", "crown-ibp"),
        AttackSettings(steps=3),
        batch=5,
        processes=Processes(0, 1, device),
    )
    assert ask(HOST) == ask(DEVICE)


def test_train_and_evaluate_commands(
    files: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Checkpoints carry over from a device to another."""
    flags = ["--files", str(files), "--limit", "16"]
    train = [
        "train",
        "mnist-0.1-lirpa",
        *flags,
        "--output",
        str(tmp_path / "run"),
        "--model",
        "tiny-cnn",
        "--batch",
        "16",
        "--start",
        "0",
    ]
    train += ["--length", "1", "--milestones", "1"]
    assert main([*train, "--epochs", "1", "--device", second_device.NAME]) == 0, (
        capsys.readouterr().err
    )
    assert main([*train, "--epochs", "2", "--device", second_device.NAME, "--resume"]) == 0, (
        capsys.readouterr().err
    )
    found = []
    for name in ("cpu", second_device.NAME):
        assert (
            main(["evaluate", str(tmp_path / "run"), *flags, "--steps", "2", "--device", name]) == 0
        ), capsys.readouterr().err
        found.append(json.loads((tmp_path / "run" / "errors.json").read_text()))
    assert found[0] == found[1]


def sentences() -> Sentences:
    neighbours = {"good": ["fine", "nice"], "bad": ["poor"], "film": ["movie"]}
    texts = [
        (["a", "good", "film"], 1, True),
        (["a", "bad", "film"], 0, True),
        (["nice", "movie"], 1, True),
        (["poor", "poor", "movie"], 0, True),
    ] * 2
    return Sentences.of(
        texts, Vocabulary.of([text for text, _, _ in texts], neighbours, 1), "texts"
    )


def trained_on_words(model: str, device: torch.device) -> nn.Module:
    recipe = Recipe.read({
        "data": "sst", "perturb": "words", "model": model, "epochs": 1, "batch": 4, "eps": 1.0,
        "start": 0.0, "length": 0.5, "schedule": "linear", "phrases": 0, "init": "default",
        "tightness": 0.0, "balance": 0.0, "budget": 1, "milestones": (),
    })  # fmt: skip
    return Trainer(recipe, sentences(), None, Processes(0, 1, device)).run()


@pytest.mark.slow
@pytest.mark.parametrize("model", ["lstm", "transformer"])
def test_training_on_words(model: str) -> None:
    check(lambda device: list(trained_on_words(model, device).parameters()), 1e-3)


def test_evaluate_words() -> None:
    torch.manual_seed(0)
    model = build_text("transformer", len(sentences().vocabulary), 2)
    ask = lambda device: evaluate_words(model.to(device), sentences(), (1,), ("ibp",), batch=4)
    assert ask(HOST) == ask(DEVICE)


def test_attacks_on_weights_and_surfaces() -> None:
    def ask(device: torch.device) -> Any:
        case = NETWORKS["mlp"]
        model, x = case.model().to(device), case.inputs(4)[0].to(device)
        balls = bl.weight_balls(bl.capture(model, x), 0.01)
        worst, found = attack_weights(model, x, labels(4, device), balls, steps=2)
        return [
            found,
            worst * torch.ones(1).to(device),
            surface(model, x, labels(4, device), balls, 3, 1.0).to(device),
        ]

    check(ask, 1e-3)


def test_waits_of_a_training_step() -> None:
    trainer, seen = Trainer(RECIPE, digits(), None, Processes(0, 1, DEVICE)), []
    second_device.forget()
    trainer.run(lambda _: seen.append(sum(second_device.waits.values())))
    assert seen[-1] <= 16 * len(seen), second_device.waits.most_common(8)
