"""Labelled images as users have them on disk."""

from boundlab.data.images import Images, Samples, as_values, central_crop
from boundlab.data.sets import SETS, load

__all__ = ["SETS", "Images", "Samples", "as_values", "central_crop", "load"]
