"""A browser without a screen: chromium, driven by selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.browser.driver import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    pytest.importorskip("selenium", reason="needs selenium (pip install selenium)")
    chromium, chromedriver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or chromedriver is None:
        pytest.skip("needs chromium and chromedriver (apt install chromium chromium-driver)")
    one = Browser(chromium, chromedriver)
    yield one
    one.close()
