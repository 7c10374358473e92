"""The garbage collector is as it was before."""

from __future__ import annotations

import gc

import pytest

from boundlab.compat.collector import without_collector


def fails() -> None:
    assert not gc.isenabled()
    raise ValueError("inside")


def test_the_collector_goes_on_after_an_error() -> None:
    assert gc.isenabled()
    with pytest.raises(ValueError, match="inside"), without_collector():
        fails()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with without_collector():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
