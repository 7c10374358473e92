"""Models and data that a user's own code makes, named as ``package.module:factory``. Naming such
code runs it: names come from whoever gives a command or a recipe, or calls a function, never out of
a checkpoint."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from torch import nn

from boundlab.errors import ArgumentError, CaptureError

PACKAGE = str(Path(__file__).parent.parent)
"""Where errors of ours come from, of which no place need be told."""
LONGEST = 300
"""Characters of another library's message that are shown."""


def model_named(source: str) -> nn.Module:
    """The model that ``package.module:factory`` names, or that it makes without arguments."""
    thing = thing_named(source)
    if isinstance(thing, nn.Module):
        return thing
    model = called(thing, source, "a model")
    if not isinstance(model, nn.Module):
        raise ArgumentError(f"{source}() must return a torch.nn.Module, not {type(model).__name__}")
    return model


def thing_named(source: str) -> Any:
    """Import ``package.module`` with the current folder on the path; its attribute ``factory``."""
    module_name, _, attribute = source.partition(":")
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
    return thing


def called(factory: object, source: str, what: str) -> Any:
    """What a factory makes without arguments. what: that in words, for errors."""
    if not callable(factory):
        raise ArgumentError(
            f"{source} is a {type(factory).__name__}, not a function or class that makes {what}"
        )
    try:
        return factory()
    except (Exception, SystemExit) as error:
        raise CaptureError(
            f"{source}() failed: {describe(error)}. The factory is called without arguments"
        ) from error


def _callables(thing: object) -> list[str]:
    """The public names of a module or class that can be called."""
    return [
        name for name in vars(thing) if not name.startswith("_") and callable(getattr(thing, name))
    ]


def describe(error: BaseException) -> str:
    """An error of foreign code in one line, with the place that raised it."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/torch/" not in frame.filename and "importlib" not in frame.filename
    ]
    where = ""
    if frames and not frames[-1].filename.startswith(PACKAGE):
        where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"
    text = " ".join(str(error).split())
    if len(text) > LONGEST:
        text = text[:LONGEST] + "..."
    return f"{type(error).__name__}: {text}{where}"
