"""Arguments of commands about training runs."""

from __future__ import annotations

from pathlib import Path

from boundlab.commands.arguments import Arguments


def add_files(parser: Arguments, help: str) -> None:
    """Where the files of a set are."""
    parser.add_argument("--files", type=Path, metavar="DIR", help=help)


def add_model(parser: Arguments) -> None:
    """The model of a run that trained one of the user's own."""
    parser.add_argument(
        "--model",
        metavar="FACTORY",
        help="package.module:factory, for a run of a model of your own; its code is run",
    )
