"""Tests that some versions of torch cannot run, and why."""

from __future__ import annotations

from boundlab.compat.private import VERSION

MAPS = "torch.export of torch 2.6 does not record vmap"
TRANSFORMS = "the gradient of irfft fails in torch 2.6 itself (MKL)"

IN_2_6 = {
    "compat/test_private.py::test_constants_without_values_are_left_in_programs": MAPS,
    "[linear of variables": MAPS,
    "[hypernetwork-vmap": MAPS,
    "capture/test_complex.py::test_bounds_hold[irfft]": TRANSFORMS,
}
"""Part of a test's name -> why torch 2.6 cannot run it."""


def reason(name: str) -> str | None:
    """Why this version of torch cannot run a test; None if it can."""
    if VERSION >= (2, 10):  # none is tested in between
        return None
    return next((why for part, why in IN_2_6.items() if part in name), None)
