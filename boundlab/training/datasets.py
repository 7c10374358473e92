"""The training and the test set that a recipe names."""

from __future__ import annotations

from pathlib import Path

from boundlab.data import SETS, Samples, central_crop, load
from boundlab.data.own import samples_of_code, samples_of_file
from boundlab.data.sentences import Sentences, load_sentences
from boundlab.errors import ArgumentError
from boundlab.training.entries import OWN, SENTENCES, is_code, is_file


def training_set(data: str, files: Path | None) -> Samples | Sentences:
    """The training set of a name. files: the folder with the files of a set that boundlab reads."""
    if data == SENTENCES:
        return load_sentences(folder_for(data, files), "train")
    return _samples(data, files, "train", alone=False)


def samples_for_tests(
    data: str, files: Path | None, shape: tuple[int, ...], alone: bool = False
) -> Samples:
    """The test samples of a name, the middle of each image if the network takes smaller ones.
    shape: of a sample as the network takes it. alone: a file without test samples may hold them
    under the names of the others."""
    found = _samples(data, files, "test", alone)
    own = tuple(found.images.shape[1:])
    if own != shape and len(own) == len(shape) == 3 and shape[1] == shape[2] < min(own[1:]):
        found = central_crop(found, shape[1])
    if tuple(found.images.shape[1:]) != shape:
        raise ArgumentError(
            f"the network takes samples of shape {shape}; those of {data} have {own}"
        )
    return found


def folder_for(data: str, files: Path | None) -> Path:
    """The folder with the files of a set, which must be known."""
    if files is None:
        raise ArgumentError(
            f"the set {data} needs --files DIR, the folder with its files: 'make data' fetches "
            f"MNIST, Fashion-MNIST and CIFAR-10. Data of your own need none: --data FILE.npz"
        )
    return files


def _samples(data: str, files: Path | None, split: str, alone: bool) -> Samples:
    if data in SETS:
        return load(data, folder_for(data, files), split)
    if is_file(data):
        return samples_of_file(Path(data), split, alone)
    if is_code(data):
        return samples_of_code(data, split)
    if data == OWN:
        raise ArgumentError(
            "the data of this run were given in Python: give --data FILE.npz, or "
            "package.module:factory"
        )
    raise ArgumentError(f"{data} is not a set of images; those are: {', '.join(SETS)}")
