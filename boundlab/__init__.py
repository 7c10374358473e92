"""boundlab: provable bounds on the outputs of any PyTorch model.

The public names are in ``boundlab/public.py``. They are imported, and torch with them, when the
first of them is used: ``boundlab --help`` need not wait for that.
"""

import sys
from typing import TYPE_CHECKING

from boundlab.importing import Package
from boundlab.version import VERSION

if TYPE_CHECKING:
    from boundlab import plot as plot
    from boundlab.public import *  # noqa: F403
    from boundlab.public import __all__ as __all__

__version__ = VERSION
sys.modules[__name__].__class__ = Package
