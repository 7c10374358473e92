"""Input sets."""

from boundlab.regions.balls import L1, L2, Lp
from boundlab.regions.base import Region
from boundlab.regions.boxes import Box, Linf
from boundlab.regions.l0 import L0
from boundlab.regions.words import Words

__all__ = ["L0", "L1", "L2", "Box", "Linf", "Lp", "Region", "Words"]
