"""Reading the checkpoints of ``boundlab train``: what is damaged, or of something else, is named
and not used."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import ArgumentError

CHECKPOINT = "checkpoint.pt"
Kinds = Mapping[str, type | tuple[type, ...]]
"""What a checkpoint must hold, by name."""
NETWORK: Kinds = {"recipe": dict, "model": dict, "classes": int}
IMAGES: Kinds = {**NETWORK, "channels": int, "size": int}
RUN: Kinds = {
    "data": dict,
    "epoch": int,
    "step": int,
    "optimiser": dict,
    "sums": Tensor,
    "seconds": (int, float),
}


def folder_of(path: Path) -> Path:
    """The folder of a checkpoint that is given as a folder or as a file."""
    if path.is_dir():
        return path
    return path.parent


def read_checkpoint(
    path: Path, kinds: Kinds = NETWORK, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """What the checkpoint in a folder, or in a file, holds; it must have all of ``kinds``."""
    if path.is_dir():
        path = path / CHECKPOINT
    if not path.is_file():
        folder = "" if path.name == CHECKPOINT else f", nor a folder {path} with {CHECKPOINT} in it"
        raise ArgumentError(f"there is no checkpoint {path}{folder}")
    with usable(path):
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()  # torch itself reads on over flipped bits
        if broken is not None:
            raise ValueError(f"{broken} is damaged")
        state = torch.load(path, map_location=device, weights_only=True)
        missing = [key for key, kind in kinds.items() if not isinstance(dict(state).get(key), kind)]
        if missing:
            raise ValueError(
                f"{', '.join(missing)} missing or of another type, so it is of another kind, or of "
                "an older version of boundlab"
            )
    return dict(state)


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Whatever a damaged checkpoint raises, which can be nearly anything, becomes an error that
    names it."""
    try:
        yield
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:  # it cannot be read at all
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        raise ArgumentError(
            f"{path} cannot be used as a checkpoint of this network: {text[:300]}"
        ) from error


def source_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Where the training set of a checkpoint came from: "files", the folder of its files, and
    "limit", how many samples were taken of it; None for what is not known or does not apply."""
    found = {"files": None, "limit": None, **dict(state.get("source") or {})}
    files, limit = found["files"], found["limit"]
    if not isinstance(files, str | None) or not isinstance(limit, int | None):
        raise TypeError(f"its training set is of the files {files!r}, limit {limit!r}")
    return {"files": files, "limit": limit}


def check_optimiser(optimiser: torch.optim.Optimizer) -> None:
    """torch takes any shapes, and fails at the next step."""
    for parameter, values in optimiser.state.items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.shape not in ((), parameter.shape):
                raise ValueError(
                    f"{name} of the optimiser has the shape {tuple(value.shape)}, not "
                    f"{tuple(parameter.shape)}"
                )
