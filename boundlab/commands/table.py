"""The commands, each a row. The arguments of a command are declared in a module of ``parsers/``,
which needs no torch; the module with its work is imported when it runs."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

from boundlab.commands.arguments import add_other
from boundlab.commands.parser import Parser
from boundlab.compat.collector import without_collector
from boundlab.version import VERSION


@dataclass(frozen=True)
class Command:
    """name: as it is typed. help: what it does, in a line. work: the module of
    ``boundlab/commands/`` and the function in it that take the options."""

    name: str
    help: str
    work: str

    def declare(self, parser: Parser) -> None:
        """Add the arguments, by the function ``declare`` of the module with the command's name."""
        parser.set_defaults(json=None)
        module = import_module(f"boundlab.commands.parsers.{self.name}")
        module.declare(parser)
        add_other(parser)

    def __call__(self, options: argparse.Namespace) -> None:
        """Run the command."""
        module, _, function = self.work.partition(":")
        with without_collector():
            work: Callable[[argparse.Namespace], None] = getattr(
                import_module(f"boundlab.commands.{module}"), function
            )
        gc.freeze()  # what imports made stays: never look through it again
        work(options)


GROUPS = {
    "certify and verify": (
        Command(
            "demo",
            "certify digits with the network that ships with the package",
            "certifying:demo",
        ),
        Command(
            "certify",
            "of which images is it proved that no perturbation changes the class?",
            "certifying:certify",
        ),
        Command(
            "radius",
            "for each image, the largest radius that is proved and the smallest broken one",
            "radii:radius",
        ),
        Command("attack", "search for counterexamples", "attacking:attack_subject"),
        Command(
            "verify",
            "does a property (VNN-LIB) of a network (ONNX) hold?",
            "verifying:verify",
        ),
        Command(
            "compare",
            "two results of verify --instances, or of another tool, side by side",
            "comparing:compare",
        ),
    ),
    "train": (
        Command(
            "recipes",
            "the built-in recipes of train, what they reach and how long they take",
            "recipes:recipes",
        ),
        Command("train", "train a certifiably robust network", "training:train"),
        Command(
            "curves",
            "compare training runs: a table, and curves with seeds as bands",
            "curves:curves",
        ),
        Command(
            "evaluate",
            "error of a trained network, clean and attacked, and what is verified",
            "evaluating:evaluate_run",
        ),
        Command(
            "export",
            "write a trained network as ONNX or as a program of torch.export",
            "exporting:export",
        ),
        Command(
            "flatness",
            "how far the loss of a trained network can rise when its weights move",
            "flatness:measure_flatness",
        ),
        Command(
            "words",
            "which words of a sentence may be replaced without changing its class",
            "words:words",
        ),
    ),
    "about boundlab": (
        Command("ops", "list the supported operators", "operators:ops"),
        Command(
            "supports",
            "what verify takes, as VNN-LIB 2 asks for it",
            "supports:supports",
        ),
        Command(
            "completion",
            "completion of commands and flags for bash, zsh or fish",
            "completion:completion",
        ),
    ),
}
"""Headings of the help, and the commands under each."""
COMMANDS = {one.name: one for group in GROUPS.values() for one in group}

EXAMPLES = """\
examples:
  boundlab demo
  boundlab certify mypackage.models:make digits.npz --weights best.pt --eps 2/255 8/255
  boundlab verify net.onnx property.vnnlib --timeout 60
  boundlab COMMAND --help

documentation: README.md and docs/ of the project"""


def parser_of_all() -> Parser:
    """The parser of the command line. Those of commands (:func:`parsers`) are filled when they are
    needed."""
    parser = Parser(
        prog="boundlab",
        description=(
            "Provable bounds on the outputs of PyTorch models.\n\n" + "\n\n".join(_listed())
        ),
        epilog=EXAMPLES,
    )
    options = parser.add_argument_group("options")
    options.add_argument("-h", "--help", action="help", help="show this help and exit")
    options.add_argument(
        "--version", action="version", version=VERSION, help="print the version and exit"
    )
    options.add_argument(
        "--name", action="version", version="boundlab", help="print the name and exit"
    )
    commands = parser.add_subparsers(metavar="COMMAND", help=argparse.SUPPRESS, required=True)
    for one in COMMANDS.values():
        made = commands.add_parser(one.name, declare=one.declare)
        made.set_defaults(command=one)
    return parser


def parsers() -> dict[str, Parser]:
    """The parser of every command by its name, with all arguments: for what is made of them, such
    as completions and pages of a reference."""
    (commands,) = [
        action
        for action in parser_of_all()._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    return {name: parser.declared() for name, parser in commands.choices.items()}


def _listed() -> list[str]:
    """The commands under their headings, as a text."""
    width = max(map(len, COMMANDS))
    lines = lambda group: [f"  {one.name:{width}}  {one.help}" for one in group]
    return ["\n".join([f"{heading}:", *lines(group)]) for heading, group in GROUPS.items()]
