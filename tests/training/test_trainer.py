"""Schedules, recipes, networks, and a training loop that forgets nothing."""

from __future__ import annotations

import csv
import itertools
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.models import MODELS, build
from boundlab.training.evaluation import Attack, attack, evaluate, wilson
from boundlab.training.objective import Objective, ScheduleValues
from boundlab.training.recipe import Recipe
from boundlab.training.recipes import RECIPES, recipe_named
from boundlab.training.regularisers import balance, ibp_initialisation, preactivations, tightness
from boundlab.training.schedules import Adaptive, Schedule
from boundlab.training.trainer import CHECKPOINT, METRICS, Progress, Trainer
from tests.helpers.data import images
from tests.helpers.recipes import PLAIN, TINY

# -- schedules -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["fixed", "linear", "smooth"])
def test_schedules_rise_from_0_to_1_once(kind: str) -> None:
    schedule = Schedule(kind, start=2.0, length=5.0)
    shares = [schedule.share(t / 50) for t in range(500)]
    assert shares[:100] == [0.0] * 100 and set(shares[351:]) == {1.0}
    assert all(a <= b for a, b in itertools.pairwise(shares))


def test_the_smooth_schedule_has_no_jump_and_no_kink() -> None:
    schedule, h = Schedule("smooth", 0.0, 10.0), 1e-5
    values = [schedule.share(10 * i / 1000) for i in range(1001)]
    assert max(b - a for a, b in itertools.pairwise(values)) < 0.002
    slope = lambda t: (schedule.share(t + h) - schedule.share(t - h)) / (2 * h)
    assert slope(4.0 - 1e-3) == pytest.approx(slope(4.0 + 1e-3), rel=1e-2)
    assert schedule.share(1.0) < 0.01  # slow at first


def test_the_adaptive_schedule_waits_for_the_loss() -> None:
    schedule = Adaptive(step=0.25, target=1.0, memory=0.0)
    for loss, share in (
        (2.0, 0.0),
        (0.5, 0.25),
        (3.0, 0.25),
        (0.9, 0.5),
        (0.9, 0.75),
        (0.9, 1.0),
        (0.9, 1.0),
    ):
        schedule.note(loss)
        assert schedule.share == share
    other = Adaptive(step=0.25, target=1.0)
    other.load(schedule.state)
    assert other.state == schedule.state


@pytest.mark.parametrize(
    "wrong", [{"kind": "slow"}, {"start": -1.0}, {"length": -1.0}, {"length": math.nan}]
)
def test_wrong_schedules(wrong: dict[str, object]) -> None:
    with pytest.raises(bl.ArgumentError):
        Schedule(**wrong)  # type: ignore[arg-type]


# -- recipes ---------------------------------------------------------------------------------------


def test_recipes_survive_a_file(tmp_path: Path) -> None:
    for name, recipe in RECIPES.items():
        path = tmp_path / f"{name}.toml"
        path.write_text(recipe.toml())
        assert Recipe.load(path) == recipe


def test_every_vision_row_of_the_paper_has_a_recipe() -> None:
    for model in ("cnn7-bn", "densenet", "wide-resnet", "resnext"):
        for short, method in (("ibp", "ibp"), ("lirpa", "crown-ibp")):
            cifar, tiny = (
                recipe_named(f"cifar10-{model}-{short}"),
                recipe_named(f"tiny-imagenet-{model}-{short}"),
            )
            assert (cifar.epochs, cifar.batch, cifar.start, cifar.length, cifar.milestones) == (
                2000,
                256,
                200,
                800,
                (1400, 1700),
            )
            assert (tiny.epochs, tiny.start, tiny.length, tiny.milestones, tiny.size) == (
                800,
                100,
                400,
                (600, 700),
                56,
            )
            assert (
                cifar.method == tiny.method == method
                and cifar.factor == tiny.factor == 1.1
                and cifar.lr == tiny.lr == 5e-4
                and cifar.clip == 8
            )
            assert cifar.eps == pytest.approx(8 / 255) and tiny.eps == pytest.approx(1 / 255)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"epoch": 3}, "no epoch"), ({"epochs": "3"}, "of type int"), ({"epochs": True}, "of type int"), ({"eps": -0.1}, "not be negative"),
        ({"data": "mnits"}, "data must be one of"), ({"model": "cnn"}, "model must be one of"), ({"beta": [1.0]}, "first and a last"),
        ({"beta": 1.0}, "list of numbers"), ({"kappa": [0.0, 2.0]}, "first and a last"), ({"batch": 0}, "positive"), ({"init": "zero"}, "init must be one of"),
    ],
)  # fmt: skip
def test_wrong_recipes(values: dict[str, object], text: str) -> None:
    with pytest.raises(bl.ArgumentError, match=text):
        Recipe.read(values)


def test_missing_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(bl.ArgumentError, match="no recipe"):
        Recipe.load(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("eps = = 3")
    with pytest.raises(bl.ArgumentError, match="not TOML"):
        Recipe.load(tmp_path / "bad.toml")
    with pytest.raises(bl.ArgumentError, match=r"no recipe.*mnist-0\.1-ibp"):
        recipe_named("mnist")


# -- networks --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "classes", "channels"), [(32, 10, 3), (56, 200, 3), (28, 7, 1)])
@pytest.mark.parametrize("name", MODELS)
def test_networks_for_any_image_and_number_of_classes(
    name: str, size: int, classes: int, channels: int
) -> None:
    if "wide" in name and size == 56:
        pytest.skip("widen factor 10: as the others, but slow")
    model = build(name, channels, size, classes, (0.5,) * channels, (0.25,) * channels).eval()
    assert model(torch.rand(2, channels, size, size)).shape == (2, classes)
    grey = torch.full((1, channels, size, size), 0.5)
    assert not model[0](grey).any()


@pytest.mark.parametrize("name", MODELS)
def test_networks_can_be_bounded_in_train_mode(name: str) -> None:
    torch.manual_seed(0)
    model = build(name, 3, 16, 4, (0.5,) * 3, (0.25,) * 3).train()
    x, y = torch.rand(2, 3, 16, 16), torch.tensor([1, 3])
    net = bl.capture(model, x)
    losses = [
        bl.robust_cross_entropy(net, bl.Linf(x, eps, lower=0.0, upper=1.0), y)
        for eps in (0.0, 1e-4)
    ]
    torch.testing.assert_close(
        losses[0], nn.functional.cross_entropy(model(x), y, reduction="none"), rtol=1e-4, atol=1e-4
    )
    assert (losses[1] >= losses[0] - 1e-4).all()
    losses[1].sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())


def test_no_such_network() -> None:
    with pytest.raises(bl.ArgumentError, match="small-cnn"):
        build("cnn", 1, 28, 10)


# -- warm-up ---------------------------------------------------------------------------------------


def test_the_initialisation_keeps_the_width_of_bounds() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(6) for part in (nn.Linear(300, 300), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(300, 10))
    x = torch.randn(8, 300)

    def growth() -> float:
        net = bl.capture(model, x)
        found = net.ask((bl.Linf(x, 1e-3),), {}, "ibp", None, "adaptive")
        widths = [float(layer.radius.detach().mean()) for layer in preactivations(found)]
        return widths[-1] / widths[0]

    usual = growth()
    ibp_initialisation(model, 0)
    assert usual > 50 and 0.3 < growth() < 3
    layers_ = preactivations(
        bl.capture(model, x).ask((bl.Linf(x, 1e-3),), {}, "ibp", None, "adaptive")
    )
    assert len(layers_) == 6
    assert (
        float(tightness(layers_, torch.tensor(1e-3)).detach()) >= 0
        and 0 <= float(balance(layers_).detach()) <= 2
    )


# -- the loop --------------------------------------------------------------------------------------


def weights_of(trainer: Trainer) -> dict[str, Tensor]:
    return {key: value.clone() for key, value in trainer.model.state_dict().items()}


def test_training_learns_and_writes_what_it_did(tmp_path: Path) -> None:
    data = images()
    # a mirror image is of another class
    trainer = Trainer(
        replace(TINY, epochs=20, lr=5e-3, milestones=(18,), flip=False, crop=0), data, tmp_path
    )
    seen: list[Progress] = []
    model = trainer.run(seen.append)
    rows = list(csv.DictReader((tmp_path / METRICS).read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == list(range(20))
    assert float(rows[0]["eps"]) < float(rows[-1]["eps"]) == pytest.approx(0.05)
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"])
    assert len(seen) == 20 * 3 and seen[-1].step == seen[-1].steps == 3
    errors = evaluate(model, data, 0.05, ("ibp", "crown-ibp"), Attack(5, 1))
    assert (
        errors.clean
        <= errors.attacked
        <= errors.verified["crown-ibp"]
        <= errors.verified["ibp"]
        < 0.2
    )


@pytest.mark.parametrize("stop", [1, 3, 4, 7])
def test_an_interrupted_run_ends_with_the_same_weights(tmp_path: Path, stop: int) -> None:
    data = images()
    whole = Trainer(TINY, data)
    whole.run()
    count = 0

    def interrupt(_: Progress) -> None:
        nonlocal count
        count += 1
        if count == stop:
            raise KeyboardInterrupt

    first = Trainer(TINY, data, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        first.run(interrupt)
    assert (tmp_path / CHECKPOINT).exists()
    second = Trainer(TINY, data, tmp_path)
    assert second.resume()
    second.run()
    for key, value in weights_of(whole).items():
        assert torch.equal(value, second.model.state_dict()[key]), key
    rows = list(csv.DictReader((tmp_path / METRICS).read_text().splitlines()))
    assert [int(row["epoch"]) for row in rows] == [0, 1, 2]


def test_seeds_matter_and_repeat() -> None:
    data = images()
    ends = []
    for seed in (0, 0, 1):
        trainer = Trainer(replace(TINY, epochs=1, seed=seed), data)
        trainer.run()
        ends.append(torch.cat([p.flatten() for p in trainer.model.parameters()]).detach())
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])


def test_a_checkpoint_of_another_recipe_is_refused(tmp_path: Path) -> None:
    data = images()
    Trainer(replace(TINY, epochs=1), data, tmp_path).run()
    with pytest.raises(bl.ArgumentError, match="other lr"):
        Trainer(replace(TINY, lr=1e-2), data, tmp_path).resume()
    assert not Trainer(TINY, data, tmp_path / "empty").resume()


def test_wrong_batches() -> None:
    with pytest.raises(bl.ArgumentError, match="less than one batch"):
        Trainer(replace(TINY, batch=128), images())


@pytest.mark.parametrize("method", ["natural", "ibp", "crown-ibp"])
def test_a_step_by_every_method(method: str) -> None:
    data = images()
    trainer = Trainer(replace(TINY, method=method, l1=1e-4), data)
    x, y = data.images[:8].float() / 255, data.labels[:8]
    for weights in (
        ScheduleValues(0.0, 1.0, 0.5, 0.0),
        ScheduleValues(0.03, 0.5, 0.2, 0.3),
        ScheduleValues(0.03, 0.0, 0.0, 0.0),
    ):
        loss, seen = trainer.objective(x, y, weights)
        assert torch.isfinite(loss) and seen.shape == (4,)
        loss.backward()


def test_running_statistics_move_once_a_step() -> None:
    trainer = Trainer(replace(TINY, epochs=1), images())
    trainer.run()
    norms = [m for m in trainer.model.modules() if isinstance(m, nn.BatchNorm2d)]
    assert norms and all(int(norm.num_batches_tracked) == trainer.steps for norm in norms)


def test_crops_and_flips_keep_pixels_and_depend_on_the_epoch() -> None:
    data = images()
    trainer = Trainer(replace(TINY, size=6, crop=0), data)
    one, two = (
        trainer.task.batch(torch.arange(32), torch.Generator().manual_seed(epoch))[0]
        for epoch in (0, 1)
    )
    assert one.shape == (32, 1, 6, 6) and not torch.equal(one, two)
    pixels = set((data.images.float() / 255).unique().tolist())
    assert set(one.unique().tolist()) <= pixels


# -- many processes --------------------------------------------------------------------------------


WORKER = """
import sys, torch
from dataclasses import replace
from pathlib import Path
torch.set_num_threads(1)
from tests.helpers.data import images
from tests.helpers.recipes import PLAIN
from boundlab.training.processes import Processes
from boundlab.training.trainer import Trainer
from boundlab.training.objective import ScheduleValues
from boundlab.training.evaluation import Attack, evaluate
epochs, output = int(sys.argv[1]), Path(sys.argv[2])
processes = Processes.here()
trainer = Trainer(replace(PLAIN, epochs=epochs), images(), output, processes)
trainer.resume()
share = next(trainer._batches())
loss, _ = trainer._step(*trainer.task.batch(share, torch.Generator().manual_seed(1)), ScheduleValues(0.03, 0.5, 0.2, 0.0))
loss.backward()
if processes.rank == 0:
    torch.save([p.grad for p in trainer.model.parameters()], output.parent / f"{output.name}.gradients")
trainer.run()
errors = evaluate(trainer.model, images(), 0.05, ("ibp",), Attack(3, 1), processes=processes)
if processes.rank == 0:
    print("ERRORS", errors.count, errors.clean, errors.verified["ibp"])
del loss, trainer  # before the group they work over
processes.leave()
"""


def run_with(count: int, epochs: int, output: Path) -> str:
    root = Path(__file__).parents[2]
    script = output.parent / "worker.py"
    script.write_text(WORKER)
    call = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        f"--nproc-per-node={count}",
        "--master-port=0",
        "--standalone",
        str(script),
        str(epochs),
        str(output),
    ]
    environment = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        call, env=environment, capture_output=True, text=True, cwd=root, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_two_processes_do_what_one_does(tmp_path: Path) -> None:
    """The same gradients as one process on the joint batch; a run begun by one process is ended by
    two; all samples are evaluated."""
    one, two, mixed = tmp_path / "one", tmp_path / "two", tmp_path / "mixed"
    recipe = replace(PLAIN, epochs=2)
    trainer = Trainer(recipe, images(), one)
    batch = next(trainer._batches())
    loss, _ = trainer.objective(
        *trainer.task.batch(batch, torch.Generator().manual_seed(1)),
        ScheduleValues(0.03, 0.5, 0.2, 0.0),
    )
    expected = torch.autograd.grad(loss, list(trainer.model.parameters()))
    said = run_with(2, 2, two)
    for gradient, joint in zip(
        torch.load(tmp_path / "two.gradients", weights_only=True), expected, strict=True
    ):
        torch.testing.assert_close(gradient, joint, rtol=1e-4, atol=1e-6)
    assert said.split("ERRORS ")[1].split()[0] == "96"

    trainer.run()
    Trainer(replace(recipe, epochs=1), images(), mixed).run()
    run_with(2, 2, mixed)
    whole = torch.load(one / CHECKPOINT, weights_only=True)
    for folder in (two, mixed):
        found = torch.load(folder / CHECKPOINT, weights_only=True)
        assert (found["epoch"], found["step"]) == (2, 0)
        for key, value in whole["model"].items():  # Adam makes much of small differences
            torch.testing.assert_close(found["model"][key], value, rtol=0.0, atol=2 * TINY.lr)


# -- evaluation ------------------------------------------------------------------------------------


def test_confidence_intervals() -> None:
    assert wilson(0.0, 100)[0] == 0.0 and wilson(0.0, 100)[1] == pytest.approx(0.037, abs=1e-3)
    low, high = wilson(0.5, 10_000)
    assert low == pytest.approx(0.4902, abs=1e-4) and high == pytest.approx(0.5098, abs=1e-4)
    assert wilson(0.3, 0) == (0.0, 1.0)


def test_an_attack_stays_inside_and_finds_what_is_there() -> None:
    """f_1 - f_0 = 2 (x - 0.5): a radius of 0.1 flips exactly the points within 0.1 of the
    middle."""
    model = nn.Linear(1, 2, bias=True)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[-1.0], [1.0]]))
        model.bias.copy_(torch.tensor([0.5, -0.5]))
    x = torch.tensor([[0.3], [0.41], [0.45], [0.59], [0.7]])
    y = (x[:, 0] > 0.5).long()
    assert attack(model, x, y, 0.1, Attack(20, 1)).tolist() == [False, True, True, True, False]
    assert not attack(model, x, y, 0.0, Attack(20, 1)).any()


def test_objective_needs_no_second_capture_after_a_step() -> None:
    data = images()
    trainer = Trainer(replace(TINY, epochs=1), data)
    before = trainer.objective.net
    trainer.run()
    assert isinstance(trainer.objective, Objective) and trainer.objective.net is before
