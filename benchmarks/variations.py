"""The same instances in other ways: verdicts must never contradict what is known.

    python -m benchmarks.variations [--list quick] [--timeout 30] [--sets NAME ...]

Every instance of a list of the competition (BOUNDLAB_SHARED/vnncomp) is verified without the
attack, with batches of other sizes and with as many threads as there are cores, all in one process.
Writes results/variations.json as it goes on, and goes on from there; ends with 1 if a verdict is
not the known one.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from typing import Any

import torch
from rich.console import Console

import boundlab as bl
from benchmarks.timing import load, save
from benchmarks.vnncomp import FOLDER, Known, read_known
from boundlab.commands.competition import find_file
from boundlab.errors import BoundlabError
from boundlab.verify import inputs, neurons, tighten
from boundlab.verify.portfolio import Portfolio
from boundlab.verify.verdict import HOLDS, VIOLATED

WORDS = {HOLDS: "unsat", VIOLATED: "sat"}
SIZES = {"BATCH": 24, "SMALLEST": 2, "LARGEST": 96}
"""How many domains are bounded at once: far fewer than by default."""


class WithoutAttack(Portfolio):
    """The verifier, whose counterexamples come from the searches alone."""

    def attack(self) -> str:
        return "left out"


def varied(known: Known, timeout: float) -> dict[str, Any]:
    """What comes of an instance."""
    start = time.monotonic()
    model = bl.load_onnx(find_file(FOLDER, known.instance.onnx))
    prop = bl.load_vnnlib(find_file(FOLDER, known.instance.vnnlib))
    search = WithoutAttack(model, prop, time.monotonic() + timeout)
    word = ""
    try:
        search.run()
        word = WORDS.get(search.verdict().status, "open")
    except BoundlabError as error:
        word = f"error: {error}"
    is_wrong = word in WORDS.values() and known.verdict in WORDS.values() and word != known.verdict
    seconds = round(time.monotonic() - start, 2)
    return {"word": word, "known": known.verdict, "seconds": seconds, "wrong": is_wrong}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", default="quick")
    parser.add_argument("--sets", nargs="+", default=[])
    parser.add_argument("--timeout", type=float, default=30.0)
    options = parser.parse_args()
    torch.set_num_threads(os.cpu_count() or 1)
    for room in (inputs, neurons, tighten):
        for name, size in SIZES.items():
            setattr(room, name, size)
    found: dict[str, Any] = load("variations") or {}
    console = Console()
    for known in read_known(FOLDER / f"{options.list}.csv", options.sets, options.timeout):
        name = f"{known.instance.onnx} {known.instance.vnnlib}"
        if name in found:
            continue
        found[name] = varied(known, options.timeout)
        save("variations", found)
        console.print(name, found[name])
        gc.collect()
    words = [row["word"].split(":")[0] for row in found.values()]
    console.print({word: words.count(word) for word in sorted(set(words))})
    wrong = [name for name, row in found.items() if row["wrong"]]
    console.print(f"{len(wrong)} wrong", *wrong)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
