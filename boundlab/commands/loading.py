"""Models and data as users have them on disk, for the command line."""

from __future__ import annotations

import csv
import importlib
import sys
import traceback
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from boundlab.commands.programs import load_program
from boundlab.errors import ArgumentError, BoundlabError, CaptureError
from boundlab.net import Net, capture

IMAGES, LABELS = ("images", "x"), ("labels", "y")
STATE_KEYS = ("state_dict", "model_state_dict", "model")
LONGEST = 300
"""Characters of another library's message that are shown."""


# -- data ------------------------------------------------------------------------------------------


def load_data(
    path: Path, shape: Sequence[int] | None = None, limit: int | None = None
) -> tuple[Tensor, Tensor]:
    """Images (N, *shape), uint8 or floating point, and labels (N,) from an .npz or .csv file; at
    most ``limit`` of them."""
    if not path.is_file():
        raise ArgumentError(
            f"there is no data file {path}: give an .npz with the arrays images and labels, or a "
            ".csv with the label first"
        )
    if limit is not None and limit < 1:
        raise ArgumentError(f"--limit must be at least 1, not {limit}")
    if path.suffix.lower() == ".npz":
        images, labels = _read_npz(path)
    elif path.suffix.lower() == ".csv":
        images, labels = _read_csv(path)
        if shape is None and images.shape[1] > 1:
            shape = (images.shape[1],)
    else:
        raise ArgumentError(f"{path} is neither .npz nor .csv")
    if len(images) != len(labels):
        raise ArgumentError(f"{path} holds {len(images)} images but {len(labels)} labels")
    if shape is not None:
        images = _reshaped(images, shape, path)
    return torch.from_numpy(images[:limit]), torch.from_numpy(labels[:limit])


def _reshaped(images: np.ndarray, shape: Sequence[int], path: Path) -> np.ndarray:
    size = int(np.prod(shape))
    if images[0:1].size != size and len(images):
        raise ArgumentError(
            f"--shape {','.join(map(str, shape))} has {size} values, but the images in {path} have "
            f"{images[0:1].size}"
        )
    return images.reshape(len(images), *shape)


def _read_npz(path: Path) -> tuple[np.ndarray, np.ndarray]:
    if not zipfile.is_zipfile(path):
        raise ArgumentError(
            f"{path} is not an .npz file: write it with numpy.savez(path, images=..., labels=...)"
        )
    try:
        with np.load(path, allow_pickle=False) as arrays:
            images, labels = _pick(arrays, IMAGES, path), _pick(arrays, LABELS, path)
    except ArgumentError:
        raise
    except Exception as error:  # a broken stream can raise nearly anything
        raise ArgumentError(
            f"cannot read {path} as an .npz file of plain arrays: {error}"
        ) from error
    if images.ndim == 0:
        raise ArgumentError(f"the images in {path} are a single number")
    if images.dtype == np.bool_ or (images.dtype.kind in "iu" and images.dtype != np.uint8):
        images = images.astype(np.float32)
    if images.dtype not in (np.uint8, np.float16, np.float32, np.float64):
        raise ArgumentError(
            f"the images in {path} must be numbers (uint8 or floating point), not {images.dtype}"
        )
    if images.dtype == np.float16:
        images = images.astype(np.float32)
    return images, _whole(labels, path)


def _pick(arrays: Any, names: Sequence[str], path: Path) -> np.ndarray:
    for name in names:
        if name in arrays.files:
            return np.asarray(arrays[name])
    raise ArgumentError(
        f"{path} has no array '{names[0]}' (or '{names[1]}'); it has: "
        f"{', '.join(arrays.files) or 'nothing'}"
    )


def _whole(labels: np.ndarray, path: Path) -> np.ndarray:
    """Labels as int64 (N,)."""
    if labels.ndim != 1 and (labels.ndim == 0 or labels.size != len(labels)):
        raise ArgumentError(
            f"the labels in {path} must be one class number per image, (N,), not {labels.shape}"
        )
    if (
        labels.dtype.kind not in "iuf"
        or not np.array_equal(labels, np.round(labels))
        or not np.isfinite(labels).all()
    ):
        raise ArgumentError(f"the labels in {path} must be whole numbers")
    return labels.reshape(-1).astype(np.int64)


def _read_csv(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Label first, then values. Whole numbers up to 255, some above 1, are taken for uint8
    pixels."""
    try:
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(f"cannot read {path}: {error}") from error
    if rows and not _numeric(rows[0][0]):  # a header
        rows = rows[1:]
    if not rows:
        raise ArgumentError(f"{path} has no rows")
    lengths = {len(row) for row in rows}
    if len(lengths) > 1 or min(lengths) < 2:
        raise ArgumentError(
            f"every row of {path} must have the label and the same number of values; there are "
            f"rows of {', '.join(map(str, sorted(lengths)))} fields"
        )
    try:
        table = np.array(rows, dtype=np.float64)
    except ValueError as error:
        raise ArgumentError(f"{path} holds something that is not a number: {error}") from error
    values, labels = table[:, 1:], _whole(table[:, 0], path)
    pixels = (
        np.array_equal(values, np.round(values)) and values.min() >= 0 and 1 < values.max() <= 255
    )
    return values.astype(np.uint8 if pixels else np.float32), labels


def _numeric(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


# -- models ----------------------------------------------------------------------------------------


class Normalized(nn.Module):
    """A model behind ``(x - mean) / std`` per channel (dimension 1), so that radii are those of the
    input itself."""

    def __init__(self, model: nn.Module, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.model = model
        self.mean, self.std = nn.Buffer(mean), nn.Buffer(std)

    def forward(self, x: Tensor) -> Any:
        return self.model((x - self.mean) / self.std)


def normalized(
    model: nn.Module, mean: Sequence[float] | None, std: Sequence[float] | None, images: Tensor
) -> nn.Module:
    """The model with the normalisation inside; mean and std: one number, or one per channel of
    images (N, C, ...)."""
    if mean is None and std is None:
        return model
    channels = images.shape[1]
    columns = []
    for name, numbers in (("--mean", mean or [0.0]), ("--std", std or [1.0])):
        if len(numbers) not in (1, channels):
            raise ArgumentError(
                f"{name} takes one number or one per channel ({channels}), not {len(numbers)}"
            )
        columns.append(
            torch.tensor(list(numbers), dtype=_dtype(model))
            .expand(channels)
            .reshape(1, channels, *[1] * (images.dim() - 2))
            .clone()
        )
    if not bool((columns[1] > 0).all()):
        raise ArgumentError("--std must be positive")
    return Normalized(model, *columns)


def load_net(
    source: str,
    images: Tensor,
    *,
    weights: Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str = "cpu",
) -> Net:
    """Capture the model that ``source`` names: ``package.module:factory`` or a file ``*.pt2``;
    images (N, ...) in [0, 1] or as they are."""
    example = images[:2]
    if source.endswith(".pt2"):
        program = _load_program(Path(source), weights)
        try:
            # tensors that it makes on the way know their device
            program = move_to_device_pass(program, device)
            if mean is None and std is None:
                if program.example_inputs is not None:
                    return capture(program)
                return capture(program, example.to(device).float())
            model: nn.Module = program.module()
        except BoundlabError:
            raise
        except Exception as error:  # a graph that was changed can raise nearly anything
            raise CaptureError(
                f"the program in {source} cannot be used: {describe(error)}"
            ) from error
    else:
        model = _build(source)
        if weights is not None:
            load_weights(model, weights)
        model.eval()
    model = normalized(model, mean, std, images).to(device)
    example = example.to(device=device, dtype=_dtype(model))
    _try(model, example, source)
    return capture(model, example)


def _dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _try(model: nn.Module, example: Tensor, source: str) -> None:
    """Run the model once: its own complaint about a wrong shape says more than a failed capture."""
    try:
        with torch.no_grad():
            model(example)
    except Exception as error:
        raise CaptureError(
            f"{source} does not run on images of shape {tuple(example.shape)}: "
            f"{describe(error)}. Check the data, --shape and --weights"
        ) from error


def _load_program(path: Path, weights: Path | None) -> ExportedProgram:
    if weights is not None:
        raise ArgumentError("a .pt2 program carries its weights: leave out --weights")
    if not path.is_file():
        raise ArgumentError(f"there is no file {path}")
    try:
        return load_program(path)
    except CaptureError:
        raise
    except Exception as error:  # torch.export raises many types of its own
        raise CaptureError(
            f"{path} is not a program saved with torch.export.save: {describe(error)}"
        ) from error


def _build(source: str) -> nn.Module:
    """Import ``package.module:factory`` with the current folder on the path, and call the
    factory."""
    module_name, _, attribute = source.partition(":")
    if not module_name or not attribute:
        raise ArgumentError(f"MODEL must be package.module:factory or a .pt2 file, not {source!r}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        thing: Any = importlib.import_module(module_name)
    except (Exception, SystemExit) as error:
        raise CaptureError(
            f"cannot import {module_name}: {describe(error)}. Run from the folder that holds it, "
            "or install it"
        ) from error
    for part in attribute.split("."):
        if not hasattr(thing, part):
            raise ArgumentError(
                f"{module_name} has no '{attribute}'; it has: "
                f"{', '.join(_callables(thing)) or 'nothing callable'}"
            )
        thing = getattr(thing, part)
    if isinstance(thing, nn.Module):
        return thing
    return _made_by(thing, source)


def _callables(thing: object) -> list[str]:
    """The public names of a module or class that can be called."""
    return [
        name for name in vars(thing) if not name.startswith("_") and callable(getattr(thing, name))
    ]


def _made_by(factory: object, source: str) -> nn.Module:
    """The model that a factory makes without arguments."""
    if not callable(factory):
        raise ArgumentError(
            f"{source} is a {type(factory).__name__}, not a function or class that makes a model"
        )
    try:
        model = factory()
    except (Exception, SystemExit) as error:
        raise CaptureError(
            f"{source}() failed: {describe(error)}. The factory is called without arguments"
        ) from error
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"{source}() must return a torch.nn.Module, not {type(model).__name__}")
    return model


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill the model from a file with a state dict, alone, in a dict under 'state_dict', or as the
    first fitting one of a list."""
    if not path.is_file():
        raise ArgumentError(f"there is no weights file {path}")
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ArgumentError(
            f"cannot read {path} as a file of tensors (torch.load with weights_only=True): "
            f"{describe(error)}"
        ) from error
    candidates = [_plain_names(state, model) for state in _states(content)]
    if not candidates:
        raise ArgumentError(f"{path} holds no state dict: it is a {type(content).__name__}")
    complaints = [_mismatch(state, model) for state in candidates]
    if "" not in complaints:
        raise ArgumentError(f"the weights in {path} do not fit the model: {complaints[0]}")
    model.load_state_dict(candidates[complaints.index("")])


def _states(content: Any) -> list[dict[str, Tensor]]:
    """All state dicts in what a checkpoint holds, in order."""
    if isinstance(content, Mapping):
        for key in STATE_KEYS:
            if isinstance(content.get(key), (Mapping, list, tuple)):
                return _states(content[key])
        if content and all(isinstance(value, Tensor) for value in content.values()):
            return [dict(content)]
        return []
    if isinstance(content, (list, tuple)):
        return [state for part in content for state in _states(part)]
    return []


def _plain_names(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Without the prefix that data parallelism adds."""
    prefix = "module."
    wanted = any(name.startswith(prefix) for name in model.state_dict())
    if wanted or not all(name.startswith(prefix) for name in state):
        return state
    return {name.removeprefix(prefix): value for name, value in state.items()}


def _mismatch(state: Mapping[str, Tensor], model: nn.Module) -> str:
    """What keeps the state from fitting, in a line; empty if it fits."""
    own = model.state_dict()
    common = [name for name in own if name in state and state[name].shape != own[name].shape]
    parts = {
        "missing": [name for name in own if name not in state],
        "unknown": [name for name in state if name not in own],
        "of another shape": [
            (f"{name} {tuple(state[name].shape)} instead of {tuple(own[name].shape)}")
            for name in common
        ],
    }
    return "; ".join(f"{what}: {_first_few(names)}" for what, names in parts.items() if names)


def _first_few(names: Sequence[str], most: int = 4) -> str:
    text = ", ".join(names[:most])
    if len(names) > most:
        return f"{text} and more"
    return text


def describe(error: BaseException) -> str:
    """An error of foreign code in one line, with the place that raised it."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/torch/" not in frame.filename and "importlib" not in frame.filename
    ]
    where = ""
    if frames and frames[-1].filename != __file__:
        where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    text = " ".join(str(error).split())
    if len(text) > LONGEST:
        text = text[:LONGEST] + "..."
    return f"{type(error).__name__}: {text}{where}"
