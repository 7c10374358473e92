"""Training a model of one's own from Python."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import boundlab as bl
from boundlab.training import progress
from boundlab.training.metrics import read_rows
from boundlab.training.trainer import Progress, Trainer
from tests.helpers.data import images
from tests.helpers.own import net, points, points_net
from tests.helpers.recipes import TINY

POINTS = replace(
    TINY, name="points", epochs=4, milestones=(), lr=2e-2, eps=0.1, start=1, length=2, range=(),
    beta=(1.0, 1.0), kappa=(0.0, 0.0),
)  # fmt: skip


class Counted:
    """Batches without a length, that can be gone through again."""

    def __init__(self, x: Tensor, y: Tensor, size: int) -> None:
        self.batches = list(zip(x.split(size), y.split(size), strict=True))

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        return iter(self.batches)


def stripes() -> DataLoader[tuple[Tensor, ...]]:
    data = images()
    return DataLoader(TensorDataset(data.images, data.labels), 32, shuffle=True)


def test_it_learns_what_can_be_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever the range of inputs, without a ReLU, from batches without a length."""
    x, y = points()
    model = points_net()
    before = [value.clone() for value in model.parameters()]
    found = bl.fit(model, Counted(x, y, 24), POINTS, output=tmp_path / "run")
    assert found is model and not model.training
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    net = bl.capture(model, x[:2])
    assert float((net.margins(bl.Linf(x, 0.1), y) > 0).all(1).float().mean()) > 0.9
    rows = read_rows(tmp_path / "run")
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3]
    assert rows[0]["eps"] == 0 and rows[-1]["eps"] == pytest.approx(0.1)
    assert rows[-1]["robust_loss"] < rows[1]["clean_loss"]
    assert "epoch    4" in capsys.readouterr().out
    weights = [value.clone() for value in model.parameters()]
    bl.fit(model, Counted(x, y, 24), POINTS, output=tmp_path / "run", progress=False)
    assert all(torch.equal(a, b) for a, b in zip(weights, model.parameters(), strict=True))
    with pytest.raises(bl.ArgumentError, match="batches"):
        bl.fit(points_net(), Counted(x, y, 12), POINTS, output=tmp_path / "run")
    with pytest.raises(bl.ArgumentError, match=r"other eps \(0\.1, now 0\.2\)"):
        bl.fit(points_net(), Counted(x, y, 24), replace(POINTS, eps=0.2), output=tmp_path / "run")


def test_an_interrupted_fit_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shuffled batches, in the middle of the second epoch; batch norm moves once a step, dropout
    does nothing."""
    recipe = replace(TINY, epochs=2, kappa=(0.0, 0.0))
    torch.manual_seed(7)
    state = torch.get_rng_state()
    whole = bl.fit(net(), stripes(), recipe, progress=False)
    norms = [part for part in whole.modules() if isinstance(part, nn.BatchNorm2d)]
    assert [int(norm.num_batches_tracked) for norm in norms] == [2 * 3]
    torch.set_rng_state(state)

    def stopped(trainer: Trainer, console: object) -> None:
        def watch(step: Progress) -> None:
            if (step.epoch, step.step) == (1, 2):
                raise KeyboardInterrupt

        trainer.run(watch)

    with monkeypatch.context() as patched:
        patched.setattr("boundlab.training.fit.follow", stopped)
        with pytest.raises(KeyboardInterrupt):
            bl.fit(net(), stripes(), recipe, output=tmp_path)
    again = bl.fit(net(), stripes(), recipe, output=tmp_path, progress=False)
    for key, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[key]), key
    loaded, stored = bl.load_run(tmp_path, net)
    x = torch.rand(4, 1, 8, 8)
    assert not loaded.training and torch.equal(loaded(x), again(x))
    assert (stored.model, stored.data, stored.eps) == ("own", "own", recipe.eps)
    with pytest.raises(bl.ArgumentError, match="only where you name it"):
        bl.load_run(tmp_path)


def test_a_loss_of_ones_own(capsys: pytest.CaptureFixture[str]) -> None:
    """It gets the region of the schedule; what it proves is not known."""
    x, y = points()
    model, seen = points_net().double(), []

    def hinge(net: bl.Net, region: bl.Region, labels: Tensor, clean: bl.CleanPass) -> Tensor:
        seen.append(float(region.hull().radius.max()))
        return torch.relu(0.5 - net.margins(region, labels, method="ibp")).mean(1)

    data = [(x, y)]
    bl.fit(model, data, replace(POINTS, init="default", epochs=5, lr=0.1), loss=hinge)
    assert seen == sorted(seen) and seen[-1] == pytest.approx(0.1)
    last = [line for line in capsys.readouterr().out.splitlines() if line][-1]
    assert "clean error" in last and "not proved" not in last
    row = {"eps": 0.1, "loss": 1.0, "clean_error": 0.5, "not_proved": 0.25}
    assert progress.line(row).endswith("not proved 25.00%")


def test_weights_stay_where_the_recipe_says_so() -> None:
    x, y = points()
    model = points_net()
    recipe = replace(POINTS, init="default", epochs=1, lr=1e-9, method="natural")
    before = model[0].weight.detach().clone()
    bl.fit(model, [(x, y)], recipe, progress=False)
    assert torch.allclose(model[0].weight, before, atol=1e-6)


X, Y = points(8)


@pytest.mark.parametrize(
    ("loader", "change", "text"),
    [
        (iter([(X, Y)]), {}, "only once"),
        ([], {}, "no batches"),
        ([(X, Y.float())], {}, "int64"),
        ([(X, Y + 1)], {}, "labels must be 0 to 1.*to 2"),
        ([(X[:, :1], Y)], {}, "does not run on inputs of shape"),
        ([(X.tolist(), Y)], {}, "pairs of tensors"),
        ([(X, Y)], {"perturb": "words"}, "perturbs words"),
    ],
)
def test_what_is_refused(loader: object, change: dict[str, str], text: str) -> None:
    with pytest.raises(bl.BoundlabError, match=text):
        bl.fit(points_net(), loader, replace(POINTS, **change))  # type: ignore[arg-type]


def test_recipes_by_name_and_by_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('epochs = 1\nmethod = "natural"\n')
    bl.fit(points_net(), [(X, Y)], path, progress=False)
    bl.fit(points_net(), [(X, Y)], str(path), progress=False)
    with pytest.raises(bl.ArgumentError, match=r"For mnist there are: mnist-0\.1-ibp"):
        bl.fit(points_net(), [(X, Y)], "mnist")
