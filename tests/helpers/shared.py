"""Where files lie that are not part of the project: tests that need them skip without them."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SHARED = Path(os.environ.get("BOUNDLAB_SHARED", ROOT.parent / "shared"))
