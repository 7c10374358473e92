"""Models as users have them on disk, for the command line."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram
from torch.export.passes import move_to_device_pass

from boundlab.commands.programs import load_program
from boundlab.errors import ArgumentError, BoundlabError, CaptureError
from boundlab.models import Normalise
from boundlab.models.code import describe, model_named
from boundlab.net import Net, capture
from boundlab.onnx import OnnxModel, load_onnx
from boundlab.onnx.batching import sample_shape
from boundlab.training.entries import is_code
from boundlab.training.runs import is_run, read_run

STATE_KEYS = ("state_dict", "model_state_dict", "model")
WEIGHTS = (".pth", ".pt", ".ckpt", ".bin", ".safetensors")
"""How names of files of weights end."""


def normalised(
    model: nn.Module, mean: Sequence[float] | None, std: Sequence[float] | None, images: Tensor
) -> nn.Module:
    """The model with the normalisation inside, so that radii are those of the input itself; mean
    and std: one number, or one per channel of images (N, C, ...)."""
    if mean is None and std is None:
        return model
    mean, std, channels = mean or [0.0], std or [1.0], images.shape[1]
    for name, numbers in (("--mean", mean), ("--std", std)):
        if len(numbers) not in (1, channels):
            raise ArgumentError(
                f"{name} takes one number or one per channel ({channels}), not {len(numbers)}"
            )
    first = Normalise(mean, std, images.dim() - 2, _dtype(model))
    if not bool((first.std > 0).all()):
        raise ArgumentError("--std must be positive")
    whole = nn.Sequential(first, model)
    for part in (whole, first):  # in the mode of the model, which may refuse to be asked by train()
        part.training = model.training
    return whole


def load_net(
    source: str,
    images: Tensor,
    *,
    weights: Path | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    device: torch.device | str = "cpu",
) -> tuple[Net, Tensor]:
    """Capture the model that ``source`` names: ``package.module:factory``, or a file ``*.pt2`` or
    ``*.onnx``; images (N, ...) in [0, 1] or as they are. Also the images, in the shape that an ONNX
    file declares."""
    if source.endswith(".pt2"):
        program = _load_program(Path(source), weights)
        try:
            # tensors that it makes on the way know their device
            program = move_to_device_pass(program, device)
            if mean is None and std is None:
                if program.example_inputs is not None:
                    return capture(program), images
                return capture(program, images[:2].to(device).float()), images
            model: nn.Module = program.module()
        except BoundlabError:
            raise
        except Exception as error:  # a graph that was changed can raise nearly anything
            raise CaptureError(
                f"the program in {source} cannot be used: {describe(error)}"
            ) from error
    elif is_onnx(source):
        model = load_onnx_alone(source, weights)
        images = _as_declared(images, model, source)
    else:
        if not (mean is None and std is None) and is_run(weights or Path(source)):
            raise ArgumentError(
                "a training run carries its normalisation: leave out --mean and --std"
            )
        model = _loaded(source, weights)
    dtype = _dtype(model)
    model = normalised(model, mean, std, images).to(device)
    example = images[:2].to(device=device, dtype=dtype)
    _try(model, example, source)
    return capture(model, example), images


def is_onnx(source: str) -> bool:
    """Whether a model is given as an ONNX file, packed or not."""
    return source.endswith((".onnx", ".onnx.gz"))


def load_onnx_alone(source: str, weights: Path | None = None) -> OnnxModel:
    """The network of an ONNX file, which needs nothing beside it."""
    if weights is not None:
        raise ArgumentError("an ONNX file carries its weights: leave out --weights")
    if not Path(source).is_file():
        raise ArgumentError(f"there is no file {source}")
    return load_onnx(source)


def _as_declared(images: Tensor, model: OnnxModel, source: str) -> Tensor:
    """Images (N, ...) in the shape of the only input of an ONNX file: flat ones, and those that
    differ by dimensions of size 1. Where the file takes flat values they stay what they are, and
    the network flattens them. Another order of dimensions is never guessed."""
    if len(model.inputs) != 1:
        names = ", ".join(one.name for one in model.inputs)
        raise ArgumentError(f"MODEL must have one input; {source} takes {names}")
    wanted, own = sample_shape(model.inputs[0]), tuple(images.shape[1:])
    if math.prod(wanted) != math.prod(own):
        raise ArgumentError(
            f"{source} takes images of shape {wanted}, {math.prod(wanted)} values; these have "
            f"the shape {own}, {math.prod(own)} values"
        )
    sizes, own_sizes = ([size for size in shape if size > 1] for shape in (wanted, own))
    if len(sizes) <= 1:
        return images
    if len(own_sizes) > 1 and sizes != own_sizes:
        raise ArgumentError(
            f"{source} takes images of shape {wanted}, and these have the shape {own}: bring "
            "their dimensions into that order"
        )
    return images.reshape(len(images), *wanted)


def _dtype(model: nn.Module) -> torch.dtype:
    if isinstance(model, OnnxModel):
        return model.inputs[0].dtype
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


def _loaded(source: str, weights: Path | None) -> nn.Module:
    """The network of a training run, or one that code makes, with its weights, in eval mode."""
    if is_run(Path(source)):
        if weights is not None:
            raise ArgumentError("a training run carries its weights: leave out --weights")
        return _image_network(Path(source), None)
    model = _build(source)
    if weights is not None and is_run(weights):
        return _image_network(weights, model)
    if weights is not None:
        load_weights(model, weights)
    return model.eval()


def _image_network(path: Path, model: nn.Module | None) -> nn.Module:
    """What a run of ``boundlab train`` or ``boundlab.fit`` has trained, normalisation included."""
    run = read_run(path, model)
    if not run.shape:
        raise ArgumentError(f"{path} is a classifier of sentences: see 'boundlab words'")
    return run.model


def _build(source: str) -> nn.Module:
    """What ``package.module:factory`` makes."""
    if source.endswith(WEIGHTS):
        raise ArgumentError(
            f"weights go to --weights; MODEL builds the network: give package.module:factory, "
            f"with --weights {source}"
        )
    if not is_code(source):
        raise ArgumentError(
            "MODEL must be package.module:factory, a file .onnx or .pt2, or the folder of a "
            f"training run, not {source!r}"
        )
    return model_named(source)


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


def _states(content: object) -> list[dict[str, Tensor]]:
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
