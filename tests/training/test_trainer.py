"""A training loop that forgets nothing."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import boundlab as bl
from boundlab.attacks import AttackSettings
from boundlab.training.evaluation import evaluate
from boundlab.training.metrics import METRICS
from boundlab.training.objective import ScheduleValues
from boundlab.training.trainer import CHECKPOINT, Progress, Trainer
from tests.helpers.data import images
from tests.helpers.recipes import TINY


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
    errors = evaluate(model, data, 0.05, ("ibp", "crown-ibp"), AttackSettings(5, 1))
    verified = errors.verified
    assert 0.8 < verified["ibp"] <= verified["crown-ibp"] <= 1 - errors.attacked <= 1 - errors.clean


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
