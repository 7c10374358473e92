"""The command line. ``boundlab --help`` lists the commands; :mod:`boundlab.commands.table` has them
as rows, with the modules that declare their arguments and those that do the work."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from boundlab.commands.limits import beginning, is_about_memory
from boundlab.commands.speaking import listening
from boundlab.commands.table import Command, parser_of_all
from boundlab.errors import BoundlabError

RESULTS = "results.json"
"""The file of an output folder that holds what was computed so far."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns 0, 1 for an error that boundlab explains, 2 for wrong usage, 130
    after Ctrl-C."""
    parser = parser_of_all()
    given = sys.argv[1:] if argv is None else argv
    known = argparse.Namespace(begun=beginning(argv), given=shlex.join(["boundlab", *given]))
    if not given:
        parser.print_help(sys.stderr)
        return 2
    try:
        options = parser.parse_args(given, known)
    except SystemExit as end:  # argparse has printed help, the version or what is wrong
        return int(end.code or 0)
    return _run(options.command, options)


def _run(command: Command, options: argparse.Namespace) -> int:
    """Run a command, with an exit code and a line for what goes wrong."""
    try:
        with listening(options):
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
