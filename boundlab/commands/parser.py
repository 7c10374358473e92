"""The parser of the command line: it names the command whose arguments are wrong, and what may have
been meant."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from boundlab.errors import did_you_mean

CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
"""What argparse says of a value that is none of the choices."""


class Parser(argparse.ArgumentParser):
    """A parser of one command, or of all. Left to itself argparse reports arguments that nothing
    takes as errors of the parser of all, with its usage."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        given = list(sys.argv[1:] if args is None else args)
        found, extra = super().parse_known_args(given, namespace)
        if extra:
            self.error(f"unrecognized arguments: {' '.join(extra)}.{self._advice(given, extra[0])}")
        return found, extra

    def error(self, message: str) -> NoReturn:
        wrong = CHOICE.search(message)
        if wrong is not None:
            choices = [choice.strip(" '") for choice in wrong[2].split(",")]
            message = f"{message}.{did_you_mean(wrong[1], choices)}"
        super().error(message)

    def _advice(self, given: Sequence[str], extra: str) -> str:
        """What may have been meant by an argument that nothing takes."""
        flags = self._option_string_actions
        if extra.startswith("-"):
            return did_you_mean(extra.partition("=")[0], flags)
        before = [flag for flag in given[: given.index(extra)] if flag.startswith("-")]
        if before and before[-1] in flags and flags[before[-1]].nargs is None:
            return f" {before[-1]} takes one value."
        return ""
