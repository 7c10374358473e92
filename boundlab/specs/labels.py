"""Reading the classes that users give."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from boundlab.errors import ArgumentError
from boundlab.regions import Region

Labels = Tensor | Sequence[int] | int
"""Classes of the samples: of any integer type, or what torch makes tensors of."""


def read_labels(labels: Any, samples: int, classes: int, device: torch.device) -> Tensor:
    """Labels of any integer type as int64 (samples,), on the device; every one a class."""
    tensor = labels_tensor(labels)
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool:
        raise ArgumentError(
            "labels must be whole numbers, the classes of the samples, not "
            f"{tensor.dtype}{_one_hot(tensor, classes)}"
        )
    if tensor.shape != (samples,) and not (samples == 1 and tensor.shape == ()):
        raise ArgumentError(
            f"labels must have the shape ({samples},), one a sample, not "
            f"{tuple(tensor.shape)}{_one_hot(tensor, classes)}"
        )
    tensor = tensor.to(torch.int64).to(device).reshape(-1)
    if tensor.numel():
        least, most = torch.stack([tensor.min(), tensor.max()]).tolist()
        if least < 0 or most >= classes:
            raise ArgumentError(
                f"labels must lie between 0 and {classes - 1}; got {least} ... {most}"
            )
    return tensor


def labels_tensor(labels: Any) -> Tensor:
    """Labels as a tensor, whatever they are given as."""
    if isinstance(labels, Region) or labels is None:
        raise ArgumentError(
            "the labels are missing: they come last, behind one entry for each input, as in "
            "net.margins(region, labels)"
        )
    try:
        return torch.as_tensor(labels)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ArgumentError(
            f"labels must be whole numbers, one a sample, not {type(labels).__name__}: {error}"
        ) from None


def _one_hot(labels: Tensor, classes: int) -> str:
    alike = labels.dim() == 2 and labels.shape[1] == classes
    return ": for one-hot labels give labels.argmax(1)" if alike else ""
