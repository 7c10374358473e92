"""Work in other processes, on this machine and on others."""

from boundlab.scaling.spreading import verify_spread

__all__ = ["verify_spread"]
