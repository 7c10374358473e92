"""``python -m boundlab``."""

import sys

from boundlab.cli import main

if __name__ == "__main__":
    sys.exit(main())
