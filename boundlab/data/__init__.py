"""Labelled images as users have them on disk."""

from boundlab.data.images import Images, central_crop
from boundlab.data.sets import SETS, load

__all__ = ["SETS", "Images", "central_crop", "load"]
