"""Models and data of the user's own in ``boundlab train``, and what is loaded of their runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.data import Images, Samples
from boundlab.data.own import samples_of_code, samples_of_file
from boundlab.training.checkpoints import CHECKPOINT
from boundlab.training.datasets import samples_for_tests, training_set
from boundlab.training.recipe import Recipe
from boundlab.training.runs import read_run
from boundlab.training.trainer import Trainer
from tests.helpers import own
from tests.helpers.data import images, write_mnist
from tests.helpers.recipes import TINY

SHORT = replace(TINY, epochs=1, method="natural")


def test_arrays_of_a_file(tmp_path: Path) -> None:
    data, path = images(12), tmp_path / "mine.npz"
    pixels, labels = data.images.numpy(), data.labels.numpy()
    np.savez(path, x_train=pixels, y_train=labels, x_test=pixels[:3] / 255.0, y_test=labels[:3])
    train, test = samples_of_file(path, "train"), samples_of_file(path, "test")
    assert isinstance(train, Images) and (len(train), train.classes) == (12, 3)
    assert type(test) is Samples and test.images.dtype == torch.float64
    found = samples_for_tests(str(path), None, (1, 4, 4))  # the middle of each
    assert torch.equal(found.images, test.images[:, :, 2:6, 2:6])
    with pytest.raises(bl.ArgumentError, match=r"takes samples of shape \(3, 8, 8\)"):
        samples_for_tests(str(path), None, (3, 8, 8))
    np.savez(path, images=pixels, labels=labels)
    with pytest.raises(bl.ArgumentError, match="no array 'test_images'"):
        samples_for_tests(str(path), None, (1, 8, 8))
    assert len(samples_for_tests(str(path), None, (1, 8, 8), alone=True)) == 12
    np.savez(path, images=pixels, labels=labels[:5])
    with pytest.raises(bl.ArgumentError, match="12 images but labels"):
        samples_of_file(path, "train")
    with pytest.raises(bl.ArgumentError, match="no data file"):
        training_set(str(tmp_path / "none.npz"), None)
    with pytest.raises(bl.ArgumentError, match="needs --files"):
        training_set("mnist", None)


def test_what_a_factory_gives() -> None:
    train = samples_of_code("tests.helpers.own:points_data", "train")
    test = samples_of_code("tests.helpers.own:points_data", "test")
    assert torch.equal(train.images, own.points()[0])
    assert torch.equal(test.images, own.points(24)[0])
    assert torch.equal(test.labels, own.points(24)[1]) and train.digest != test.digest
    for name, text in (
        ("three", "a tuple of 3"),
        ("odd_parts", "neither a pair of tensors"),
        ("number", "not a function or class"),
        ("nothing", "has no 'nothing'; it has: .*points_data"),
    ):
        with pytest.raises(bl.BoundlabError, match=text):
            samples_of_code(f"tests.helpers.own:{name}", "train")


def test_samples_of_any_shape() -> None:
    x = torch.tensor([[1.0, 5.0], [3.0, 5.0]], dtype=torch.float64)
    data = Samples(x, torch.tensor([0, 1]), 2, "two")
    assert data.statistics() == ((2.0, 5.0), (1.0, 0.0))
    bytes_ = images(7)
    other = Samples(bytes_.images, bytes_.labels, 3, "bytes").statistics()
    assert np.allclose(other, bytes_.statistics(), rtol=1e-12)
    for wrong in (x * torch.nan, x.long(), x[:, 0]):
        with pytest.raises(bl.ArgumentError, match="images"):
            Samples(wrong, torch.tensor([0, 1]), 2, "wrong")


def test_a_model_of_ones_own_and_its_run(tmp_path: Path) -> None:
    recipe = replace(TINY, model="tests.helpers.own:net", epochs=1, start=0, length=1)
    trainer = Trainer(recipe, images(), tmp_path)
    trained = trainer.run().eval()
    run = read_run(tmp_path, recipe.model)
    x = torch.rand(4, 1, 8, 8)
    assert run.shape == (1, 8, 8) and run.classes == 3 and run.recipe == recipe
    assert not run.model.training and torch.equal(run.model(x), trained(x))
    assert float(run.model[0].mean) > 0.2  # normalisation included
    for model in (own.net, own.net()):
        assert torch.equal(bl.load_run(tmp_path / CHECKPOINT, model)[0](x), trained(x))
    for model, text in (
        (None, "tests.helpers.own:net: give it"),
        ("net", "package.module:factory, not 'net'"),
        (lambda: 3, "must return a torch.nn.Module"),
        (own.points_net, "cannot be used as a checkpoint of this network"),
    ):
        with pytest.raises(bl.ArgumentError, match=text):
            bl.load_run(tmp_path, model)  # type: ignore[arg-type]


def test_a_checkpoint_runs_no_code(tmp_path: Path) -> None:
    """Whatever modules and files its recipe names."""
    Trainer(replace(SHORT, model="tests.helpers.own:net"), images(), tmp_path).run()
    path = tmp_path / CHECKPOINT
    state = torch.load(path, weights_only=True)
    state["recipe"]["model"] = state["recipe"]["data"] = "tests.helpers.not_there:make"
    torch.save(state, path)
    with pytest.raises(bl.ArgumentError, match="give it"):
        bl.load_run(tmp_path)
    assert bl.load_run(tmp_path, own.net)[1].data == "tests.helpers.not_there:make"


def test_runs_of_built_in_networks(tmp_path: Path) -> None:
    trained = Trainer(SHORT, images(), tmp_path).run().eval()
    model, recipe = bl.load_run(tmp_path)
    x = torch.rand(4, 1, 8, 8)
    assert recipe == SHORT and torch.equal(model(x), trained(x))
    with pytest.raises(bl.ArgumentError, match="leave out the model"):
        bl.load_run(tmp_path, own.net)


def test_points_are_trained_on_too() -> None:
    """Samples without the form of images, of any range."""
    recipe = replace(SHORT, model="tests.helpers.own:points_net", flip=False, crop=0, range=())
    data = samples_of_code("tests.helpers.own:points_data", "train")
    trainer = Trainer(replace(recipe, method="ibp", start=0, length=0), data)
    trainer.run()
    assert trainer.task.shapes() == {"shape": [2], "classes": 2}
    for changed, text in (
        (replace(recipe, flip=True), "flip of a recipe change"),
        (replace(recipe, model="mlp"), r"takes images \(n, channels, height, width\)"),
        (replace(recipe, model="tests.helpers.own:net"), "does not run on inputs of shape"),
    ):
        with pytest.raises(bl.BoundlabError, match=text):
            Trainer(changed, data)
    with pytest.raises(bl.ArgumentError, match="2 logits a sample; the training set has 3"):
        Trainer(replace(SHORT, model="tests.helpers.own:two_classes"), images())


def test_moved_files_are_the_same_data(tmp_path: Path) -> None:
    data = images(40)
    for name in ("a.npz", "b.npz"):
        np.savez(tmp_path / name, images=data.images.numpy(), labels=data.labels.numpy())
    first, second = (replace(SHORT, data=str(tmp_path / name)) for name in ("a.npz", "b.npz"))
    Trainer(first, training_set(first.data, None), tmp_path / "run").run()
    assert Trainer(second, training_set(second.data, None), tmp_path / "run").resume()
    assert first.differences(replace(second, lr=0.5)) == "lr (0.002, now 0.5)"
    assert "data (mnist" in Recipe().differences(first)


def test_sets_that_are_read_by_name(tmp_path: Path) -> None:
    folder = write_mnist(tmp_path / "mnist")
    assert len(training_set("mnist", folder)) == len(
        samples_for_tests("mnist", folder, (1, 28, 28))
    )
