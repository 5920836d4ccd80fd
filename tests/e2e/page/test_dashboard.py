"""The live page as an operator has it: a real browser on a gateway under load."""

import json
import time
import urllib.request

import pytest

from tests.e2e.page import browser as chromium
from tests.e2e.page.live_gateway import under_load

pytestmark = pytest.mark.skipif(not (chromium.CHROMIUM and chromium.DRIVER), reason=chromium.REASON)

KEY = "an operator's"
# More callers than the engines' capacity, so that some requests always wait.
CLIENTS = {"many": (9, 12, 0.0), "few": (4, 6, 0.0), "rare": (1, 4, 0.5)}
CHARTS = ("service", "queues", "fairness", "locality", "in-flight-tokens")
# What the page shows of the sample it has drawn last, read at one go.
SHOWN = """return {
  drawn: Number(document.body.dataset.drawn),
  clients: Object.fromEntries([...document.querySelectorAll('#clients tbody tr')].map((row) =>
    [row.dataset.client, [...row.cells].slice(4, 6).map((cell) => cell.textContent)])),
  workers: Object.fromEntries([...document.querySelectorAll('#workers tbody tr')].map((row) =>
    [row.dataset.worker, [1, 2].map((at) => row.cells[at].textContent)])),
  waiting: document.querySelector('#waiting').textContent,
}"""
# Of each chart how many curves have a form, its words, and how far it reaches.
DRAWN = """return Object.fromEntries([...document.querySelectorAll('.chart')].map((box) => {
  const curves = [...box.querySelectorAll('path')].filter((path) => path.getAttribute('d').length > 40);
  const widest = Math.max(0, ...curves.map((path) => path.getBoundingClientRect().width));
  return [box.id, [curves.length, box.querySelector('svg')?.getAttribute('aria-label') ?? '', widest]];
}))"""


@pytest.fixture(scope="module")
def url():
    with under_load(CLIENTS, admin_api_key=KEY) as url:
        yield url


def data_of(url: str, since: int) -> dict:
    asked = urllib.request.Request(
        f"{url}/dashboard/data?since={since}", headers={"authorization": f"Bearer {KEY}"}
    )
    with urllib.request.urlopen(asked, timeout=20) as answer:
        return json.loads(answer.read())


def wait_for(driver, words: str, *, within_s: float = 60.0):
    ends = time.monotonic() + within_s
    while not driver.execute_script(f"return Boolean({words})"):
        assert time.monotonic() < ends, f"in vain: {words}"
        time.sleep(0.2)


def unlock(driver, url: str, *, samples: int) -> None:
    """Open the page, and show it the key it asks for."""
    driver.get(f"{url}/dashboard")
    wait_for(driver, "!document.querySelector('#ask').hidden")
    driver.find_element("id", "key").send_keys(KEY + "\n")
    wait_for(driver, f"Number(document.body.dataset.drawn) >= {samples}")


def check_drawn(driver) -> None:
    """Every chart has curves with a form and words for who cannot see them."""
    drawn = driver.execute_script(DRAWN)
    assert set(drawn) == set(CHARTS)
    for name, (curves, words, width) in drawn.items():
        assert curves >= 1 and len(words) > 20 and width > 1, (name, curves, words, width)
    assert drawn["service"][0] == len(CLIENTS)


def test_the_page_shows_the_samples_and_connects_to_the_gateway_alone(url, tmp_path):
    with chromium.browser(
        tmp_path, width=1280, height=800, reaches=url.removeprefix("http://")
    ) as driver:
        unlock(driver, url, samples=6)
        refused = [line for line in chromium.said(driver) if "401" in line]

        check_drawn(driver)
        shown = driver.execute_script(SHOWN)
        data = data_of(url, shown["drawn"] - 1)
        sample = data["samples"][0]
        assert sample["n"] == shown["drawn"]
        assert shown["clients"] == {
            name: [str(row[4]), str(row[5])] for name, row in sample["clients"].items()
        }
        assert shown["workers"] == {
            worker: [each["state"], each["circuit"]] for worker, each in sample["workers"].items()
        }
        assert shown["waiting"] == str(sample["waiting"])
        assert data["bound"] in driver.find_element("id", "bound-words").text
        asked = set(chromium.asked_for(driver, f"{url}/dashboard"))
        assert {
            address.partition("?")[0] for address in asked if not address.startswith("data:")
        } == {f"{url}/dashboard{part}" for part in ("", "/page.js", "/page.css", "/data")}
        # The browser itself tells of the one answer that asked for the key; of nothing else.
        assert len(refused) == 1 and chromium.said(driver) == []


def test_it_fits_a_phone_at_night(url, tmp_path):
    with chromium.browser(
        tmp_path, width=390, height=800, dark=True, reaches=url.removeprefix("http://")
    ) as driver:
        unlock(driver, url, samples=6)

        check_drawn(driver)
        wide = driver.execute_script("return document.documentElement.scrollWidth")
        ground = driver.find_element("tag name", "body").value_of_css_property("background-color")
        assert wide <= 390
        assert int(ground.split("(")[1].split(",")[0]) < 60


def test_the_wrong_key_shows_nothing(url):
    asked = urllib.request.Request(
        f"{url}/dashboard/data", headers={"authorization": "Bearer wrong"}
    )
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(asked, timeout=20)
