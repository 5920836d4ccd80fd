"""A real Chromium, driven by Selenium: it reaches files and one server at most; what it says is kept."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-extensions", "--disable-default-apps",
    # Requests of a page to the network go to a closed port.
    "--proxy-server=127.0.0.1:9",
)  # fmt: skip
REASON = "needs chromium and chromedriver: scripts/install_chromium.py installs Debian's"


@contextmanager
def browser(
    profile: Path, *, width: int, height: int = 900, dark: bool = False, reaches: str = ""
) -> Iterator[Any]:
    """A window of that size on an empty profile; `reaches`: the one HOST:PORT that it can."""
    from selenium import webdriver

    os.environ["SE_OFFLINE"] = "true"  # it looks for no driver but ours
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    own = (
        f"--proxy-bypass-list=<-loopback>;{reaches}",
        f"--user-data-dir={profile}",
        f"--window-size={width},{height}",
    )
    for flag in (*FLAGS, *own):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(str(DRIVER)))
    try:
        driver.set_script_timeout(60)
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"},
            # A page that scrolls softly is still moving when the test clicks.
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        yield driver
    finally:
        driver.quit()


def asked_for(driver: Any, page: str) -> list[str]:
    """Every address that this page requested since the last call, whatever came of it."""
    found = []
    for entry in driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        asks = message["method"] == "Network.requestWillBeSent"
        # The browser's own first tab asks for its parts.
        if asks and message["params"]["documentURL"].partition("#")[0] == page:
            found.append(message["params"]["request"]["url"])
    return found


def said(driver: Any) -> list[str]:
    """Messages in the browser's console since the last call: warnings, errors, refusals."""
    return [entry["message"] for entry in driver.get_log("browser")]
