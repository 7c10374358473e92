"""Build the wheel and the sdist, and use the wheel as somebody who has nothing else.

python scripts/package.py dist

The wheel is built from the sdist, so the sdist is whole. It is installed with the extra onnx into
an environment of its own, which is used outside of the repository: the demo runs, and a property of
a network in an ONNX file is proved and another refuted. The environment is made anew each time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

NETWORK = """
import onnx
from onnx import TensorProto, helper
x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, 2]) for n in ("x", "y"))
graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "net", [x], [y])
onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), "net.onnx")
"""
"""Writes a network: two numbers, negative ones replaced by 0."""

PROPERTY = """
(declare-const X_0 Real) (declare-const X_1 Real) (declare-const Y_0 Real) (declare-const Y_1 Real)
(assert (>= X_0 -1.0)) (assert (<= X_0 1.0)) (assert (>= X_1 -1.0)) (assert (<= X_1 1.0))
(assert (>= Y_0 {bound}))
"""
VERDICTS = {"1.5": "unsat", "0.5": "sat"}
"""A bound on the first output -> whether it can be reached."""


def run(*command: Path | str, folder: Path) -> str:
    """What a command prints; it ends this program if it fails."""
    print("+", *command, flush=True)
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"{done.stdout}{command[0]} failed with exit code {done.returncode}")
    return done.stdout


def environment(folder: Path, *packages: str) -> Path:
    """The folder of programs of a new environment with some packages."""
    venv.create(folder, with_pip=True)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet")
    run(*pip, "--constraint", ROOT / "constraints.txt", *packages, folder=folder)
    return folder / "bin"


def build(target: Path, folder: Path) -> Path:
    """The wheel, beside the sdist that it is made from."""
    programs = environment(folder / "building", "build", "twine")
    run(programs / "python", "-m", "build", "--outdir", target, ROOT, folder=folder)
    made = sorted(target.glob("boundlab-*"))
    if len(made) != 2:
        sys.exit(f"{target} has {', '.join(path.name for path in made)}: start with an empty one")
    print(run(programs / "twine", "check", "--strict", *made, folder=folder), end="")
    return next(path for path in made if path.suffix == ".whl")


def use(wheel: Path, folder: Path) -> None:
    programs = environment(folder / "using", f"boundlab[onnx] @ {wheel.as_uri()}")
    outside = folder / "outside"
    outside.mkdir()
    run(programs / "boundlab", "demo", folder=outside)
    if not (outside / "boundlab-report" / "index.html").is_file():
        sys.exit("the demo left no report")
    run(programs / "python", "-c", NETWORK, folder=outside)
    for bound, expected in VERDICTS.items():
        (outside / "y.vnnlib").write_text(PROPERTY.format(bound=bound))
        found = ["net.onnx", "y.vnnlib", "--result", f"{expected}.txt"]
        run(programs / "boundlab", "verify", *found, folder=outside)
        verdict = (outside / f"{expected}.txt").read_text().split()[0]
        if verdict != expected:
            sys.exit(f"Y_0 >= {bound} is {expected}, but boundlab says {verdict}")
        print(f"Y_0 >= {bound}: {verdict}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    target = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory(prefix="boundlab-package-") as folder:
        use(build(target, Path(folder)), Path(folder))


if __name__ == "__main__":
    main()
