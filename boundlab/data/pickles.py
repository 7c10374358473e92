"""Pickles of basic types and arrays, read without trusting them.

A pickle may name any function and have it called. Here the few names that stand for an array of
numbers lead to the classes of this file, which build it from its bytes, and all other names are
refused.
"""

from __future__ import annotations

import io
import pickle
import re
from collections.abc import Sequence
from typing import Any

import numpy as np


def load_arrays(data: bytes) -> Any:
    """What a pickle holds, also one of Python 2, whose strings come as bytes; arrays only in dicts,
    one level deep."""
    content = _ArraysOnly(io.BytesIO(data), encoding="bytes").load()
    if isinstance(content, dict):
        return {key: _as_array(value) for key, value in content.items()}
    return content


def _as_array(value: object) -> object:
    if isinstance(value, _Array):
        return value.array()
    return value


def _as_text(value: str | bytes) -> str:
    if isinstance(value, bytes):
        return value.decode("latin1")
    return value


class _Kind:
    """Stands for numpy.dtype: numbers only."""

    def __init__(self, code: str | bytes, *_: object) -> None:
        self.code = _as_text(code)
        if not re.fullmatch("[iu][1248]|f[48]", self.code):
            raise pickle.UnpicklingError(
                f"it holds an array of type {self.code!r}, and only those of numbers are read"
            )
        self.order = "="

    def __setstate__(self, state: Sequence[Any]) -> None:
        order = _as_text(state[1])
        if order in ("<", ">"):
            self.order = order

    def numpy(self) -> np.dtype:
        return np.dtype(self.order + self.code)


class _Array:
    """Stands for the array that numpy makes empty and then gives a state."""

    def __init__(self, *_: object) -> None:
        self.parts: tuple[Any, _Kind, Any, str] | None = None

    def __setstate__(self, state: Sequence[Any]) -> None:
        _, shape, kind, fortran, data = state
        self.parts = data, kind, shape, "F" if fortran else "C"

    @classmethod
    def of_buffer(cls, data: Any, kind: _Kind, shape: Any, order: str) -> _Array:
        made = cls()
        made.parts = data, kind, shape, order
        return made

    def array(self) -> np.ndarray:
        if self.parts is None:
            raise pickle.UnpicklingError("it holds an array without values")
        data, kind, shape, order = self.parts
        return np.frombuffer(data, kind.numpy()).reshape(shape, order="F" if order == "F" else "C")


def _latin_bytes(text: str, _: str) -> bytes:
    """How Python 3 writes bytes in a pickle that Python 2 can read."""
    return text.encode("latin1")


ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): None,  # an argument of _reconstruct, never called
    ("numpy", "dtype"): _Kind,
    ("_codecs", "encode"): _latin_bytes,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Array for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Array.of_buffer for core in ("core", "_core")},
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(
                f"it names {module}.{name}, and only arrays and basic types are read"
            )
        return ALLOWED[module, name]
