"""The gallery stays true: the code of every notebook runs, and is that of its script."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib
import pytest
import torch
from matplotlib import pyplot as plt

ROOT = Path(__file__).resolve().parent.parent
SCRIPTS = sorted((ROOT / "docs" / "gallery").glob("*.py"))


def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "scripts" / "make_gallery.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKER = maker()


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    matplotlib.use("agg")
    plt.close("all")  # of other tests in this process
    with matplotlib.rc_context():
        yield
    plt.close("all")


def outputs(script: Path) -> list[dict[str, Any]]:
    """Of all cells of the notebook of a script."""
    cells = json.loads(script.with_suffix(".ipynb").read_text())["cells"]
    return [output for cell in cells for output in cell.get("outputs", ())]


def pictures(script: Path) -> int:
    """How many the notebook of a script holds."""
    return sum("image/svg+xml" in output.get("data", {}) for output in outputs(script))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_code_runs_and_draws(script: Path) -> None:
    code = "\n".join(text for kind, text in MAKER.cells(script.read_text()) if kind == "code")
    torch.manual_seed(0)
    exec(compile(code, script.name, "exec"), {"__name__": "gallery"})
    assert len(plt.get_fignums()) == pictures(script) > 0


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_the_notebook_is_that_of_the_script(script: Path) -> None:
    notebook = json.loads(script.with_suffix(".ipynb").read_text())
    held = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert held == list(MAKER.cells(script.read_text())), "run make gallery"
    assert script.with_suffix(".ipynb").stat().st_size <= MAKER.MOST
    assert not [output for output in outputs(script) if output["output_type"] == "error"]


def test_every_notebook_has_a_script() -> None:
    notebooks = {path.stem for path in (ROOT / "docs" / "gallery").glob("*.ipynb")}
    assert notebooks == {path.stem for path in SCRIPTS}


def test_cells() -> None:
    script = "# %% [markdown]\n# # A\n#\n# b\n\n# %%\nx = 1\n\n\n# %%\ny = 2\n"
    assert list(MAKER.cells(script)) == [
        ("markdown", "# A\n\nb"), ("code", "x = 1"), ("code", "y = 2"),
    ]  # fmt: skip
    with pytest.raises(ValueError, match="begins with"):
        list(MAKER.cells("x = 1\n# %%\n"))
