"""Counterexamples that were found, and the .npz file that holds them."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from boundlab.attacks import Attack
from boundlab.errors import ArgumentError
from boundlab.storage.files import write_atomically

COUNTEREXAMPLES = "counterexamples.npz"


@dataclass(frozen=True, eq=False)
class Counterexamples:
    """Inputs in the balls around images whose largest output is not that of the label, or not that
    alone; at most one for an image and radius.

    image, label: (examples,) numbers. radius: of the ball, (examples,) in float64. input:
    (examples, *shape). output: what the model gives there, (examples, classes).
    """

    image: Tensor
    label: Tensor
    radius: Tensor
    input: Tensor
    output: Tensor

    @staticmethod
    def none(classes: int) -> Counterexamples:
        numbers = torch.zeros(0, dtype=torch.long)
        return Counterexamples(
            numbers, numbers, torch.zeros(0).double(), torch.zeros(0), torch.zeros(0, classes)
        )

    @staticmethod
    def of(found: Attack, images: Tensor, labels: Tensor, radius: float) -> Counterexamples:
        """The violations among what was found in the balls of a radius around images, by their
        numbers (found,), with labels (found,)."""
        hit = found.violated.cpu()
        radii = torch.full((int(hit.sum()),), radius, dtype=torch.float64)
        return Counterexamples(
            images[hit], labels[hit], radii, found.inputs.cpu()[hit], found.outputs.cpu()[hit]
        )

    def __len__(self) -> int:
        return len(self.image)

    @property
    def became(self) -> Tensor:
        """The other class whose output is largest: (examples,)."""
        return self.output.scatter(1, self.label[:, None], -torch.inf).argmax(1)

    @property
    def margin(self) -> Tensor:
        """The output of the label minus the largest other one, at most 0: (examples,)."""
        own = self.output.gather(1, self.label[:, None])
        return (own - self.output.gather(1, self.became[:, None])).squeeze(1).double()

    def taken(self, chosen: slice | Tensor) -> Counterexamples:
        """Some of them."""
        return Counterexamples(*[getattr(self, name)[chosen] for name in NAMES])

    def joined(self, other: Counterexamples) -> Counterexamples:
        """These and those behind them."""
        if not len(other):
            return self
        if not len(self):
            return other
        return Counterexamples(
            *[torch.cat([getattr(self, name), getattr(other, name)]) for name in NAMES]
        )

    def falsified(self, images: int, radius: float) -> Tensor:
        """Which of so many images have one in the ball of a radius: (images,)."""
        found = torch.zeros(images, dtype=torch.bool)
        found[self.image[self.radius <= radius]] = True
        return found

    def nearest(self, radius: float) -> dict[int, int]:
        """For each image that has one in the ball of a radius: the place of that of the smallest
        radius."""
        order = self.radius.argsort(descending=True).tolist()
        return {int(self.image[k]): k for k in order if float(self.radius[k]) <= radius}

    # -- the file --------------------------------------------------------------------------------

    def write(self, path: Path) -> None:
        """All of them, as arrays by name."""
        content = io.BytesIO()
        np.savez_compressed(
            content, **{name: getattr(self, name).detach().cpu().numpy() for name in NAMES}
        )
        write_atomically(path, content.getvalue())

    @staticmethod
    def read(path: Path, classes: int) -> Counterexamples:
        """What a file holds; none if there is no file."""
        if not path.exists():
            return Counterexamples.none(classes)
        try:
            with np.load(path, allow_pickle=False) as arrays:
                held = [torch.from_numpy(np.asarray(arrays[name])) for name in NAMES]
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
            raise ArgumentError(
                f"{path} is not a file of counterexamples ({error}): move it away"
            ) from error
        found = Counterexamples(*held)
        lengths = {len(part) for part in held if part.dim()}
        fits = len(lengths) == 1 and found.output.dim() == 2 and found.output.shape[1] == classes
        if not fits:
            raise ArgumentError(f"{path} is damaged or of another task: move it away")
        return found


NAMES = ("image", "label", "radius", "input", "output")
"""The arrays of the file."""
