"""The parser of the command line: it is filled when it is needed, names the command whose arguments
are wrong, and what may have been meant."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from boundlab.errors import did_you_mean

CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
"""What argparse says of a value that is none of the choices."""
WIDTH = 100
"""Columns of help at most, and of flags before their help."""
FLAGS = 28


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Wide lines, and descriptions and examples as they are written."""

    def __init__(self, prog: str) -> None:
        columns = shutil.get_terminal_size().columns - 2
        super().__init__(prog, max_help_position=FLAGS, width=min(columns, WIDTH))


class Parser(argparse.ArgumentParser):
    """A parser of one command, or of all. declare: adds the arguments of a command when they are
    first needed. Left to itself argparse reports arguments that nothing takes as errors of the
    parser of all, with its usage."""

    def __init__(self, declare: Callable[[Parser], None] | None = None, **texts: Any) -> None:
        super().__init__(formatter_class=Formatter, add_help=False, **texts)
        self._declare = declare

    def declared(self) -> Parser:
        """This parser, with all its arguments."""
        if self._declare is not None:
            declare, self._declare = self._declare, None
            declare(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self.declared()
        given = list(sys.argv[1:] if args is None else args)
        found, extra = super().parse_known_args(given, namespace)
        if extra:
            self.error(f"unrecognized arguments: {' '.join(extra)}.{self._advice(given, extra[0])}")
        return found, extra

    def format_usage(self) -> str:
        """What must be given, in one line."""
        return f"usage: {self._synopsis()}\n"

    def format_help(self) -> str:
        self.declared()
        self.usage = self._synopsis()
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        wrong = CHOICE.search(message)
        if wrong is not None:
            choices = [choice.strip(" '") for choice in wrong[2].split(",")]
            message = f"{message}.{did_you_mean(wrong[1], choices)}"
        sys.stderr.write(self.format_usage())
        sys.stderr.write(f"({self.prog} --help says what there is)\n")
        self.exit(2, f"{self.prog}: error: {message}\n")

    def _synopsis(self) -> str:
        """The program, the arguments that must be given, and those that may be, in short."""
        parts, some = [self.prog], False
        for action in self._actions:
            if not action.required:
                some = some or bool(action.option_strings)
                parts += [f"[{name}]" for name in self._shown(action)]
            elif action.option_strings:
                parts += [action.option_strings[0], *self._shown(action)]
            else:
                parts += self._shown(action)
        for group in self._mutually_exclusive_groups:
            if group.required:
                parts.append("OPTION")
                some = False
        if some:
            parts.append("[options]")
        return " ".join(parts)

    @staticmethod
    def _shown(action: argparse.Action) -> list[str]:
        """How the value of an argument is shown, if it stands in a synopsis."""
        if action.option_strings and not action.required:
            return []
        return [str(action.metavar or action.dest)]

    def _advice(self, given: Sequence[str], extra: str) -> str:
        """What may have been meant by an argument that nothing takes."""
        flags = self._option_string_actions
        if extra.startswith("-"):
            return did_you_mean(extra.partition("=")[0], flags)
        before = [flag for flag in given[: given.index(extra)] if flag.startswith("-")]
        if before and before[-1] in flags and flags[before[-1]].nargs is None:
            return f" {before[-1]} takes one value."
        return ""
