"""The command line, called in this process."""

from __future__ import annotations

from boundlab.cli import main

FLAGS = [
    "--epochs",
    "2",
    "--batch",
    "32",
    "--start",
    "0.5",
    "--length",
    "1",
    "--milestones",
    "1",
    "--eps",
    "5/255",
    "--seed",
    "3",
]


def run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])
