"""A captured model, and the questions one can ask of it."""

from boundlab.net.capturing import capture
from boundlab.net.net import Net

__all__ = ["Net", "capture"]
