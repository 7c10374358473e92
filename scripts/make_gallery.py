"""Make the notebooks of docs/gallery/ from the scripts that lie there, and run them (make gallery).

    python scripts/make_gallery.py                     all of them
    python scripts/make_gallery.py lyapunov digits     these only

A script is Python, cut into cells by lines that begin with ``# %%``; what follows ``# %%
[markdown]`` is text, in comments. The scripts are what is edited: notebooks are overwritten.
Pictures are kept as SVG, made lighter. Needs the extra docs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from boundlab.plot.style import lighter
from boundlab.storage.files import write_atomically

GALLERY = Path(__file__).resolve().parent.parent / "docs" / "gallery"
MOST = 200_000
"""Bytes that a notebook may have."""
SECONDS = 600
"""After which a cell is given up."""
KERNEL = [
    "--InlineBackend.figure_formats={'svg'}",
    "--InlineBackend.print_figure_kwargs={'bbox_inches': 'tight', 'metadata': {'Date': None}}",
]


def cells(script: str) -> Iterator[tuple[str, str]]:
    """("markdown" or "code", text) for each cell of a script."""
    parts = re.split(r"^# %%( \[markdown\])?\n", script, flags=re.MULTILINE)
    if parts[0].strip():
        raise ValueError("a script of the gallery begins with a line # %%")
    for mark, text in zip(parts[1::2], parts[2::2], strict=True):
        if mark:
            yield "markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)
        else:
            yield "code", text.strip()


def notebook(script: str) -> Any:
    """The notebook of a script, not run yet; the same one every time."""
    import nbformat

    made = nbformat.v4.new_notebook()
    made.metadata["kernelspec"] = {
        "name": "python3",
        "display_name": "Python 3",
        "language": "python",
    }
    for number, (kind, text) in enumerate(cells(script)):
        new = {"markdown": nbformat.v4.new_markdown_cell, "code": nbformat.v4.new_code_cell}[kind]
        made.cells.append(new(text, id=f"cell-{number}"))
    return made


def run(made: Any, folder: Path) -> None:
    """Run the cells of a notebook on one thread; the first error ends it."""
    from nbclient import NotebookClient

    os.environ["OMP_NUM_THREADS"] = "1"  # of the kernel, which inherits it
    client = NotebookClient(
        made,
        timeout=SECONDS,
        kernel_name="python3",
        extra_arguments=KERNEL,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()


def slim(made: Any) -> None:
    """Leave out what differs from run to run, and values that a cell with a picture ends with; make
    pictures lighter."""
    made.metadata.pop("language_info", None)
    for cell in made.cells:
        cell.metadata.clear()
        outputs = cell.get("outputs", [])
        if any("image/svg+xml" in output.get("data", {}) for output in outputs):
            cell.outputs = [each for each in outputs if each.output_type != "execute_result"]
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/svg+xml" in data:
                data["image/svg+xml"] = lighter(data["image/svg+xml"])
                data["text/plain"] = "a picture"
            output.get("metadata", {}).clear()


def main() -> None:
    import nbformat

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="scripts, without .py (all)")
    names = parser.parse_args().names or sorted(path.stem for path in GALLERY.glob("*.py"))
    for name in names:
        made = notebook((GALLERY / f"{name}.py").read_text())
        run(made, GALLERY)
        slim(made)
        text = nbformat.writes(made) + "\n"
        if len(text.encode()) > MOST:
            sys.exit(f"{name} has {len(text.encode())} bytes, more than {MOST}: draw less")
        write_atomically(GALLERY / f"{name}.ipynb", text)
        print(f"{name}.ipynb: {len(made.cells)} cells, {len(text.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
