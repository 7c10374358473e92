"""Tiny-ImageNet, from the unpacked folder or straight from tar.xz archives of its parts."""

from __future__ import annotations

import lzma
import re
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.progress import track

from boundlab.data.files import decode, missing, need_pillow, places, read_bytes
from boundlab.data.images import Images
from boundlab.errors import ArgumentError

ROOT = "tiny-imagenet-200"
FOLDERS = (ROOT, "tiny-imagenet", f"tiny-imagenet/{ROOT}", "tiny_imagenet", ".")
ANNOTATIONS, WNIDS = "val/val_annotations.txt", "wnids.txt"
CLASSES, SIDE = 200, 64
PARTS = {"train": "train", "test": "val"}
REMEDY = "Unpack tiny-imagenet-200.zip, as it is usually downloaded, into the directory"


@dataclass(frozen=True)
class _Tree:
    """Files of the set under their names within it: where each lies, or what it holds; ``where`` is
    for errors."""

    files: Mapping[str, Path | bytes]
    where: Path

    def read(self, name: str) -> bytes:
        if name not in self.files:
            raise ArgumentError(f"tiny-imagenet: {name} is missing in {self.where}")
        content = self.files[name]
        if isinstance(content, bytes):
            return content
        return read_bytes(content)

    def lines(self, name: str) -> list[str]:
        text = self.read(name).decode("utf-8", errors="replace")
        return [line for line in text.splitlines() if line.strip()]


def load_tiny_imagenet(directory: Path, split: str) -> Images:
    """Images (n, 3, 64, 64) of 200 classes; train: by class and then by number, test: as the
    annotations list them."""
    part = PARTS[split]
    for folder in places(directory, FOLDERS):
        if split in _splits_of_folder(folder):
            need_pillow()
            return _decoded(_folder_tree(folder, part), _folder_classes(folder), split)
        if archives := _archives(folder, part):
            need_pillow()
            return _decoded(
                _archive_tree(folder, archives, f"{part}/"), _archive_classes(folder), split
            )
    forms = {
        "train": [f"{WNIDS} with train/<wnid>/images/*.JPEG", "train_*.tar.xz"],
        "test": [f"{WNIDS} with {ANNOTATIONS} and val/images/*.JPEG", "val.tar.xz"],
    }
    raise missing("tiny-imagenet", split, directory, FOLDERS, forms[split], REMEDY)


def _decoded(tree: _Tree, wnids: list[str], split: str) -> Images:
    number = {wnid: k for k, wnid in enumerate(wnids)}
    pairs = _train_pairs(tree) if split == "train" else _test_pairs(tree)
    unknown = sorted({wnid for _, wnid in pairs} - number.keys())
    if unknown:
        raise ArgumentError(
            f"tiny-imagenet: {tree.where} has images of {', '.join(unknown[:4])}, which {WNIDS} "
            "does not list"
        )
    if split == "train":
        pairs.sort(key=lambda pair: (number[pair[1]], _natural(pair[0])))
    images = torch.empty(len(pairs), 3, SIDE, SIDE, dtype=torch.uint8)
    console = Console(stderr=True)
    shown = track(
        pairs,
        f"decoding tiny-imagenet {split}",
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    for k, (name, _) in enumerate(shown):
        picture = decode(tree.read(name), f"{tree.where / name}")
        if picture.shape != (SIDE, SIDE, 3):
            raise ArgumentError(
                f"{tree.where / name} is {picture.shape[0]} x {picture.shape[1]}, not {SIDE} x "
                f"{SIDE}"
            )
        images[k] = torch.from_numpy(picture).permute(2, 0, 1)
    return Images(
        images, torch.tensor([number[wnid] for _, wnid in pairs]), CLASSES, "tiny-imagenet"
    )


def _train_pairs(tree: _Tree) -> list[tuple[str, str]]:
    """Names of images and their classes; names are train/<wnid>/images/*.JPEG."""
    matches = (re.fullmatch(r"train/([^/]+)/images/[^/]+\.JPEG", name) for name in tree.files)
    pairs = [(match[0], match[1]) for match in matches if match]
    if not pairs:
        raise ArgumentError(
            f"tiny-imagenet: there are no images train/<wnid>/images/*.JPEG in {tree.where}. "
            f"{REMEDY}"
        )
    return pairs


def _test_pairs(tree: _Tree) -> list[tuple[str, str]]:
    """Names of images and their classes, which stand in the first two columns of the
    annotations."""
    rows = [line.split("\t") for line in tree.lines(ANNOTATIONS)]
    if not rows or any(len(row) < 2 for row in rows):
        raise ArgumentError(
            f"every line of {tree.where / ANNOTATIONS} must begin with the name of an image and "
            "its class, with tabs between"
        )
    return [(f"val/images/{row[0].strip()}", row[1].strip()) for row in rows]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts n01_9 before n01_10."""
    return [
        (int(piece), "") if piece.isdigit() else (-1, piece) for piece in re.split(r"(\d+)", name)
    ]


# -- classes: the position in wnids.txt, or among all names in order -------------------------------


def _listed(lines: Iterable[str], where: object) -> list[str]:
    wnids = [line.strip() for line in lines]
    if len(wnids) != CLASSES or len(set(wnids)) != CLASSES:
        raise ArgumentError(
            f"{where} must list {CLASSES} different classes; it has {len(wnids)} lines, "
            f"{len(set(wnids))} of them different"
        )
    return wnids


def _sorted(found: set[str], where: Path) -> list[str]:
    """Without a list, numbers can only be right if every class is there."""
    if len(found) != CLASSES:
        raise ArgumentError(
            f"tiny-imagenet: there is no {WNIDS} in {where}, and only {len(found)} of "
            f"{CLASSES} classes, so their numbers are unknown"
        )
    return sorted(found)


def _found(tree: _Tree) -> set[str]:
    trained = {
        name.split("/")[1]
        for name in tree.files
        if name.startswith("train/") and name.count("/") >= 2
    }
    if ANNOTATIONS not in tree.files:
        return trained
    return trained | {wnid for _, wnid in _test_pairs(tree)}


# -- the folder ------------------------------------------------------------------------------------


def _splits_of_folder(folder: Path) -> list[str]:
    there = {"train": (folder / "train").is_dir(), "test": (folder / ANNOTATIONS).is_file()}
    return [split for split, here in there.items() if here]


def _folder_tree(folder: Path, part: str) -> _Tree:
    paths: Iterable[Path]
    if part == "train":
        paths = folder.glob("train/*/images/*.JPEG")
    else:
        paths = [folder / ANNOTATIONS, *folder.glob("val/images/*")]
    return _Tree({path.relative_to(folder).as_posix(): path for path in paths}, folder)


def _folder_classes(folder: Path) -> list[str]:
    if (folder / WNIDS).is_file():
        return _listed(_Tree({WNIDS: folder / WNIDS}, folder).lines(WNIDS), folder / WNIDS)
    names = [
        *folder.glob("train/*/images"),
        *(path for path in [folder / ANNOTATIONS] if path.is_file()),
    ]
    return _sorted(
        _found(_Tree({path.relative_to(folder).as_posix(): path for path in names}, folder)), folder
    )


# -- archives --------------------------------------------------------------------------------------


def _archives(folder: Path, part: str) -> list[Path]:
    pattern = {"train": "train_*.tar.xz", "val": "val.tar.xz"}[part]
    return sorted(folder.glob(pattern), key=lambda path: _natural(path.name))


def _archive_tree(folder: Path, archives: Iterable[Path], wanted: str) -> _Tree:
    """The files of the archives whose names within the set begin with ``wanted``, as they are
    stored: decoding comes later."""
    files: dict[str, bytes] = {}
    for path in archives:
        try:
            with tarfile.open(path, "r:xz") as archive:
                for member in archive:
                    name = _within(member.name)
                    if member.isreg() and name.startswith(wanted):
                        content = archive.extractfile(member)
                        assert content is not None  # a regular file has one
                        files[name] = content.read()
        except (OSError, EOFError, tarfile.TarError, lzma.LZMAError) as error:
            raise ArgumentError(
                f"{path} is not a whole tar.xz archive: {error}. Fetch it again"
            ) from error
    return _Tree(files, folder)


def _within(name: str) -> str:
    """A member's name without what is above the set."""
    return name.removeprefix("./").removeprefix(f"{ROOT}/")


def _archive_classes(folder: Path) -> list[str]:
    """From wnids.txt beside the archives or in one of them; the test archive has it, and is the
    quickest to look through."""
    archives = [*_archives(folder, "val"), *_archives(folder, "train")]
    if (folder / WNIDS).is_file():
        return _folder_classes(folder)
    for path in archives:
        tree = _archive_tree(folder, [path], WNIDS)
        if WNIDS in tree.files:
            return _listed(tree.lines(WNIDS), path / WNIDS)
    names: set[str] = set()
    for path in archives:
        names |= _found(_archive_tree(folder, [path], ""))
    return _sorted(names, folder)
