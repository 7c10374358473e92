"""A small certified digit classifier and a hundred digits, for ``boundlab demo``."""

from boundlab.demo.model import load_digits, load_model

__all__ = ["load_digits", "load_model"]
