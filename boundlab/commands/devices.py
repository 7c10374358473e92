"""``--device`` and ``--threads``: where commands compute."""

from __future__ import annotations

import argparse

import torch

from boundlab.commands.arguments import add_count
from boundlab.errors import ArgumentError


def add_device(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """The option; default: None for a GPU if there is one."""
    parser.add_argument(
        "--device",
        default=default,
        metavar="DEVICE",
        help=(f"where to compute (default: {default or 'a GPU if there is one'})"),
    )


def device_named(name: str | None) -> torch.device:
    """The device, if it can be used here."""
    name = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        first = str(error).strip().split("\n")[0]
        raise ArgumentError(
            f"the device {name!r} cannot be used here ({first}); --device cpu always works"
        ) from None
    return device


def add_threads(parser: argparse.ArgumentParser, what: str = "threads") -> None:
    add_count(parser, "--threads", f"{what} (default: torch's choice)")


def set_threads(count: int | None) -> None:
    """Compute with as many threads as were asked for."""
    if count is not None:
        if count < 1:
            raise ArgumentError(f"--threads must be at least 1, not {count}")
        torch.set_num_threads(count)
