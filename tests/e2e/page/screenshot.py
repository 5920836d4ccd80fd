"""The live page under load, as the docs show it.

python -m tests.e2e.page.screenshot OUT.png [SECONDS] [WIDTH] [dark]
"""

import sys
import tempfile
import time
from pathlib import Path

from tests.e2e.page import browser as chromium
from tests.e2e.page.live_gateway import under_load


def take(out: Path, *, seconds: float, width: int, dark: bool) -> None:
    """The whole page after so many seconds of load."""
    with tempfile.TemporaryDirectory() as profile, under_load() as url:
        time.sleep(seconds)
        with chromium.browser(
            Path(profile), width=width, height=800, dark=dark, reaches=url.removeprefix("http://")
        ) as driver:
            driver.get(f"{url}/dashboard")
            driver.find_element("css selector", "[data-seconds='60']").click()
            time.sleep(2.5)
            height = driver.execute_script("return document.documentElement.scrollHeight")
            size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
            driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            time.sleep(1.5)
            driver.save_screenshot(str(out))
            assert chromium.said(driver) == []


if __name__ == "__main__":
    words = sys.argv[1:]
    take(
        Path(words[0]),
        seconds=float(words[1]) if len(words) > 1 else 65,
        width=int(words[2]) if len(words) > 2 else 1280,
        dark="dark" in words,
    )
