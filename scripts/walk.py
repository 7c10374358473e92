"""The walk of one question through the code: which functions are entered, in which order.

python scripts/walk.py                      crown on a network with one hidden layer, in numbers
python scripts/walk.py --method alpha-crown --stations    each function on a line

A station is a function of the package of more than three lines when it is entered for the first
time; shorter ones a reader does not stop at. Counted are the modules, how often the next station
lies in another file, and how often that file was left before:
a reader who follows the walk has to go back to it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import FrameType

import torch
from torch import nn

import boundlab as bl

PACKAGE = Path(bl.__file__).resolve().parent
UNNAMED = ("<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>", "<lambda>", "<module>")


def stations(question: Callable[[], object]) -> list[tuple[str, str]]:
    """The functions of the package that a question enters: (file, name), in the order of their
    first entry."""
    found: dict[tuple[str, str, int], None] = {}

    def entered(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        path = Path(code.co_filename)
        if event != "call" or not path.is_relative_to(PACKAGE) or code.co_name in UNNAMED:
            return
        if len({line for *_, line in code.co_lines() if line} - {code.co_firstlineno}) > 3:
            place = path.relative_to(PACKAGE).as_posix()
            found.setdefault((place, code.co_qualname, code.co_firstlineno))

    sys.setprofile(entered)
    try:
        question()
    finally:
        sys.setprofile(None)
    return [(place, name) for place, name, _ in found]


def counted(walk: list[tuple[str, str]]) -> dict[str, int]:
    """Stations, modules, changes of file, and returns to a file that was left."""
    changes = [(first, second) for (first, _), (second, _) in pairwise(walk) if first != second]
    returns, left = 0, set()
    for first, second in changes:
        left.add(first)
        returns += second in left
    files = {place for place, _ in walk}
    return {
        "stations": len(walk), "modules": len(files), "file changes": len(changes),
        "returns to a module already left": returns,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", default="crown")
    parser.add_argument("--stations", action="store_true", help="each function on a line")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    x = torch.rand(2, 4)
    net = bl.capture(model, x)

    def question() -> object:
        with torch.no_grad():
            return net.bounds(bl.Linf(x, 0.5), method=options.method)

    walk = stations(question)
    if options.stations:
        for place, name in walk:
            print(f"{place:32} {name}")
    for what, count in counted(walk).items():
        print(f"{what:36} {count:4}")


if __name__ == "__main__":
    main()
