"""Sets of images are read from each of their usual forms."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

import boundlab as bl
from boundlab.data import Images, central_crop, images, load
from tests.helpers.image_sets import DATA, FORMS, check, idx_files, pixels, write
from tests.helpers.watching import watch


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(form: str, split: str, tmp_path: Path) -> None:
    name, folder, files = FORMS[form]
    write(tmp_path / folder, files)
    for directory in (tmp_path, str(tmp_path / folder)):
        data = load(name, directory, split)
        check(data, DATA[name.removeprefix("fashion-"), split])
        assert data.name == name and data.classes == {
            "tiny-imagenet": 200,
            "downscaled-imagenet": 1000,
        }.get(name, 10)


def test_the_sets_own_folder_comes_first(tmp_path: Path) -> None:
    write(tmp_path, idx_files("-", ""))
    write(
        tmp_path / "fashion-mnist",
        {
            name.replace("t10k", "train"): content
            for name, content in idx_files("-", "").items()
            if "t10k" in name
        },
    )
    check(load("mnist", tmp_path, "train"), DATA["mnist", "train"])
    check(load("fashion-mnist", tmp_path, "train"), DATA["mnist", "test"])


def test_arrays_in_another_order(tmp_path: Path) -> None:
    raw = pixels(3, 3072)
    write(
        tmp_path,
        {
            "test_batch": pickle.dumps(
                {"data": np.asfortranarray(raw), "labels": np.array([1, 2, 3], dtype=">i2")}, 2
            )
        },
    )
    check(load("cifar10", tmp_path, "test"), (raw.reshape(3, 3, 32, 32), [1, 2, 3]))


# -- the set itself --------------------------------------------------------------------------------


def test_statistics_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = pixels(7, 3, 5, 4)
    raw[:, 1] //= 9
    data = Images(torch.from_numpy(raw), torch.arange(7), 10, "noise")
    whole = data.statistics()
    monkeypatch.setattr(images, "CHUNK", 130)  # two images at once
    histograms = watch(monkeypatch, torch, "bincount")
    assert data.statistics() == whole
    assert len(histograms) == 3 * 4  # three channels, four parts
    assert whole[0] == pytest.approx((raw / 255).mean((0, 2, 3)), rel=1e-12) and whole[
        1
    ] == pytest.approx((raw / 255).std((0, 2, 3)), rel=1e-12)
    flat = Images(
        torch.full((3, 1, 2, 2), 51, dtype=torch.uint8),
        torch.zeros(3, dtype=torch.int64),
        1,
        "flat",
    )
    assert flat.statistics() == ((0.2,), (0.0,))


def test_first_and_crop() -> None:
    raw = pixels(6, 1, 8, 9)
    data = Images(torch.from_numpy(raw), torch.arange(6), 6, "noise")
    assert len(data) == 6 and len(data.first(10)) == 6
    check(data.first(2), (raw[:2], [0, 1]))
    check(central_crop(data, 4), (raw[:, :, 2:6, 2:6], list(range(6))))
    for size in (0, 9):
        with pytest.raises(bl.ArgumentError, match="size must be 1 to 8"):
            central_crop(data, size)
    with pytest.raises(bl.ArgumentError, match="at least 1"):
        data.first(0)


def test_wrong_sets() -> None:
    raw, labels = torch.zeros(2, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 4])
    wrong = [
        (raw.float(), labels, "images must be uint8"),
        (raw[:, 0], labels, r"images must be uint8.*\(2, 2, 2\)"),
        (raw, labels.float(), "labels must be int64"),
        (raw, labels[:1], r"labels must be int64 \(2,\)"),
        (raw, labels + 1, "labels must be 0 to 4.*to 5"),
    ]
    for made, numbers, message in wrong:
        with pytest.raises(bl.ArgumentError, match=message):
            Images(made, numbers, 5, "wrong")
    with pytest.raises(bl.ArgumentError, match="no pixels"):
        Images(raw[:0], labels[:0], 5, "empty").statistics()
