"""``import boundlab`` imports nothing that is not used yet, and every name is there when it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import boundlab as bl
from boundlab import public
from boundlab.importing import FUNCTIONS

LATE = """
import sys
import boundlab as bl
assert bl.__version__ and not {"torch", "numpy", "rich"} & set(sys.modules)
import boundlab.verify.verdict, boundlab.capture.batch
assert callable(bl.verify) and callable(bl.capture)
from boundlab import Linf
assert bl.Linf is Linf and "L2" in dir(bl)
assert bl.regions.Linf is Linf  # modules that are imported are there by name
"""


def test_names_come_late() -> None:
    subprocess.run([sys.executable, "-c", LATE], check=True)


def test_public_names() -> None:
    assert bl.__all__ == public.__all__
    assert all(getattr(bl, name) is getattr(public, name) for name in public.__all__)
    with pytest.raises(AttributeError, match="module 'boundlab' has no attribute 'Linff'"):
        _ = bl.Linff


def test_functions_called_like_packages() -> None:
    """Importing a package of theirs must not put it in their place."""
    packages = {path.name for path in Path(bl.__file__).parent.iterdir()}
    functions = {name for name in public.__all__ if not isinstance(getattr(bl, name), ModuleType)}
    assert functions & packages == set(FUNCTIONS)
