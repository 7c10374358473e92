"""The arguments of ``boundlab evaluate``."""

from __future__ import annotations

from boundlab.commands.arguments import (
    add_arithmetic,
    add_checkpoint,
    add_count,
    add_device,
    add_json,
    add_methods,
    add_ray,
    add_threads,
    add_timeout,
    number,
)
from boundlab.commands.parser import Parser
from boundlab.commands.parsers.runs import add_files, add_model
from boundlab.defaults import COMPLETE, RESTARTS, STEPS
from boundlab.methods.method import METHODS


def declare(parser: Parser) -> None:
    parser.description = """\
Print which share of the test images a trained network gets wrong, clean and attacked, and of which
share it is verified that no perturbation changes the class."""
    parser.epilog = """\
examples:
  boundlab evaluate runs/a --files data/mnist
  boundlab evaluate runs/a --files data/mnist --eps 8/255 --methods ibp crown complete"""
    what = parser.add_argument_group("what to evaluate")
    add_checkpoint(what)
    add_files(what, "the folder with the files of the data set (default: that of the training)")
    what.add_argument(
        "--data",
        metavar="DATA",
        help="other test samples: a set by name, a file .npz, or package.module:factory, which is "
        "run (default: those of the run)",
    )
    add_model(what)
    add_count(what, "--limit", "only the first N test samples")
    what.add_argument("--eps", type=number, metavar="EPS", help="radius (default: the recipe's)")
    what.add_argument(
        "--budgets",
        type=int,
        nargs="+",
        metavar="N",
        help="of sentences: numbers of replaced words (default: 0 to 6)",
    )
    how = parser.add_argument_group("how")
    add_methods(how, (*METHODS, COMPLETE), ("ibp", "crown-ibp"), "cheap ones first")
    add_timeout(how)
    add_arithmetic(how)
    add_count(how, "--steps", "steps of the attack", STEPS)
    add_count(how, "--restarts", "random starts of the attack, 0 for none", RESTARTS)
    add_count(how, "--batch", "samples at a time", 200)
    add_threads(how, "threads of a process")
    add_device(how)
    add_ray(how)
    output = parser.add_argument_group("output")
    add_json(output)
