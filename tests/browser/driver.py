"""What the tests ask of a browser."""

from __future__ import annotations

import base64
import importlib
import os
from pathlib import Path
from typing import Any

QUIET = ("--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars")


class Browser:
    """Chromium with one page at a time."""

    def __init__(self, chromium: str, chromedriver: str) -> None:
        webdriver = importlib.import_module("selenium.webdriver")
        service = importlib.import_module("selenium.webdriver.chrome.service")
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in QUIET:
            options.add_argument(flag)
        if os.geteuid() == 0:  # chromium refuses its sandbox to root
            options.add_argument("--no-sandbox")
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        self.driver: Any = webdriver.Chrome(options=options, service=service.Service(chromedriver))
        self.driver.set_page_load_timeout(300)
        self.driver.set_script_timeout(300)

    def open(self, path: Path, width: int = 1280, dark: bool = False, scripts: bool = True) -> None:
        """Show a file in a window of a width, in light or dark, with or without scripts."""
        self.command("Emulation.setScriptExecutionDisabled", value=not scripts)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.command("Emulation.setEmulatedMedia", features=[scheme])
        self.command(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.driver.get(path.resolve().as_uri())

    def run(self, script: str, *arguments: object) -> Any:
        """What a script returns in the page."""
        return self.driver.execute_script(script, *arguments)

    def choose(self, name: str, text: str) -> None:
        """Choose from a list as a user would."""
        script = (
            "const one = document.querySelector(`select[name=${arguments[0]}]`);"
            "const option = Array.from(one.options).find((o) => o.text === arguments[1]);"
            "one.value = option.value; one.dispatchEvent(new Event('change', {bubbles: true}));"
        )
        self.run(script, name, text)

    def visible(self, selector: str) -> list[str]:
        """The texts of the elements that are seen."""
        script = (
            "return Array.from(document.querySelectorAll(arguments[0]))"
            ".filter((one) => one.checkVisibility()).map((one) => one.textContent)"
        )
        found: list[str] = self.run(script, selector)
        return found

    def complaints(self) -> list[str]:
        """What the page wrote to the console."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def pdf(self) -> bytes:
        """The page as it is printed on A4."""
        held = self.command(
            "Page.printToPDF", printBackground=True, paperWidth=8.27, paperHeight=11.69
        )
        return base64.b64decode(held["data"])

    def close(self) -> None:
        self.driver.quit()

    def command(self, name: str, **arguments: object) -> Any:
        """What a command of the browser's own protocol returns."""
        return self.driver.execute_cdp_cmd(name, arguments)
