"""Finding the files of a set, and decoding pictures."""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from boundlab.errors import ArgumentError

PILLOW = "Pillow is needed to decode pictures: pip install 'boundlab[data]', or pip install pillow"


def places(directory: Path, folders: Sequence[str]) -> Iterator[Path]:
    """Those of the folders (relative, "." the directory itself) that exist."""
    return (path for path in (directory / folder for folder in folders) if path.is_dir())


def present(folder: Path, needed: Sequence[Sequence[str]]) -> list[Path] | None:
    """A file of the folder for each entry of ``needed``, the first of its alternative names that is
    there; None if one is missing."""
    found = [
        next((folder / name for name in names if (folder / name).is_file()), None)
        for names in needed
    ]
    there = [path for path in found if path is not None]
    if len(there) < len(needed):
        return None
    return there


def missing(
    name: str,
    split: str,
    directory: Path,
    folders: Sequence[str],
    wanted: Sequence[str],
    remedy: str,
) -> ArgumentError:
    """The error that the split is nowhere; wanted: for each form of the set, the files that it
    has."""
    if not directory.is_dir():
        return ArgumentError(f"{name}: there is no directory {directory}. {remedy}")
    below = ", ".join(folder for folder in folders if folder != ".")
    return ArgumentError(
        f"{name}, {split}: not found in {directory}. Looked for {'; or '.join(wanted)}; in the "
        f"directory itself and in its folders {below}. {remedy}"
    )


def either(names: Sequence[str]) -> str:
    """Alternative names in a line."""
    return " or ".join(names)


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ArgumentError(f"cannot read {path}: {error.strerror or error}") from error


def read_text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ArgumentError(f"{path} is not text in UTF-8: {error}") from error


def need_pillow() -> None:
    """Complain before any work is done if pictures cannot be decoded."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise ArgumentError(PILLOW) from error


def decode(content: bytes, name: object) -> np.ndarray:
    """A PNG or JPEG, grey or coloured, as uint8 (height, width, 3); the name is for the error."""
    need_pillow()
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content)) as picture:
            return np.array(picture.convert("RGB"))
    # SyntaxError: Pillow's word for a broken PNG
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ArgumentError(f"{name} is not a whole picture: {error}") from error
