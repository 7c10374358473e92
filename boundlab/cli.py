"""The command line: ``boundlab demo``, ``certify``, ``attack``, ``radius``, ``verify``,
``compare``, ``supports``, ``recipes``, ``train``, ``curves``, ``evaluate``, ``export``,
``flatness``, ``words`` and ``ops``."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import sys
from collections.abc import Callable

from boundlab.commands import (
    attacking,
    certifying,
    comparing,
    curves,
    evaluating,
    exporting,
    flatness,
    operators,
    radii,
    recipes,
    supports,
    training,
    verifying,
    words,
)
from boundlab.commands.limits import beginning, is_about_memory
from boundlab.commands.parser import Parser
from boundlab.commands.subjects import RESULTS
from boundlab.errors import BoundlabError
from boundlab.version import VERSION


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns 0, 1 for an error that boundlab explains, 2 for wrong usage, 130
    after Ctrl-C."""
    gc.freeze()  # what imports made stays: never look through it again
    try:
        given = shlex.join(["boundlab", *(sys.argv[1:] if argv is None else argv)])
        known = argparse.Namespace(begun=beginning(argv), given=given)
        options = _parser().parse_args(argv, known)
    except SystemExit as end:  # argparse has printed help, the version or what is wrong
        return int(end.code or 0)
    command: Callable[[argparse.Namespace], None] = options.command
    try:
        command(options)
        sys.stdout.flush()
        return 0
    except BoundlabError as error:
        return _fail(str(error))
    except KeyboardInterrupt:
        _fail(_interrupted(options))
        return 130
    except BrokenPipeError:  # the reader has seen enough: keep Python from complaining at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"{error.filename}: {error.strerror}")
    except (MemoryError, RuntimeError) as error:
        if not is_about_memory(error):
            raise
        return _fail("out of memory: give a smaller --batch, or a cheaper method (ibp, crown-ibp)")


def _fail(message: str) -> int:
    print(f"boundlab: {' '.join(message.split())}", file=sys.stderr)
    return 1


def _interrupted(options: argparse.Namespace) -> str:
    output = getattr(options, "output", None)
    if output is None or not (output / RESULTS).exists():
        return "interrupted"
    hint = ""
    if hasattr(options, "resume"):
        hint = "; the same command with --resume goes on from there"
    return f"interrupted; what was computed so far is in {output / RESULTS}{hint}"


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="boundlab", description="Provable bounds on the outputs of PyTorch models."
    )
    parser.add_argument("--version", action="version", version=VERSION)
    parser.add_argument("--name", action="version", version="boundlab", help="print the name")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    certifying.add_commands(commands)
    attacking.add_command(commands)
    radii.add_command(commands)
    verifying.add_command(commands)
    comparing.add_command(commands)
    supports.add_command(commands)
    recipes.add_command(commands)
    training.add_command(commands)
    curves.add_command(commands)
    evaluating.add_command(commands)
    exporting.add_command(commands)
    flatness.add_command(commands)
    words.add_command(commands)
    operators.add_command(commands)
    return parser
