"""``--device``: where commands compute."""

from __future__ import annotations

import argparse

import torch

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
