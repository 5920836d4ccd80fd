"""The report as its reader has it: opened from a file in a real browser, scrolled, filtered, typed at."""

import re

import pytest

from fairhit_lab.report.folders import read_folders
from fairhit_lab.report.page import page_of
from fairhit_lab.studies.shared.study import Verdict
from tests.e2e.page import browser as chromium
from tests.lab.report.report_sample import STUDIES, write_sample

pytestmark = pytest.mark.skipif(not (chromium.CHROMIUM and chromium.DRIVER), reason=chromium.REASON)

# Each picture: how large it is drawn, and whether the browser could decode it.
PICTURES = (
    """return [...document.images].map((each) => [each.width, each.height, each.naturalWidth])"""
)
WIDTH = "return [document.documentElement.scrollWidth, innerWidth]"
SHOWN = "return [...document.querySelectorAll('.study')].filter((e) => !e.hidden).map((e) => e.id)"
LISTED = (
    "return [...document.querySelectorAll('nav li')].filter((e) => !e.hidden)"
    ".map((e) => e.dataset.study)"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    write_sample(folder)
    path = folder / "report.html"
    path.write_text(page_of(read_folders(folder, STUDIES)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def driver(page, tmp_path_factory):
    with chromium.browser(tmp_path_factory.mktemp("profile"), width=1300) as driver:
        driver.get(page.as_uri())
        yield driver


def check_drawn(driver):
    """Both studies' figures are decoded and large enough to read; the browser logs no error."""
    pictures = driver.execute_script(PICTURES)
    assert len(pictures) == 2
    for width, height, natural in pictures:
        assert width > 400 and height > 200 and natural > 400, pictures
    assert chromium.said(driver) == []


def test_every_figure_is_drawn_and_nothing_is_asked_of_the_network(driver, page):
    check_drawn(driver)

    asked = chromium.asked_for(driver, page.as_uri())
    assert page.as_uri() in asked
    assert [each for each in asked if not each.startswith(("file:", "data:", "blob:"))] == []
    assert "taken" not in driver.title


def test_each_kind_of_verdict_is_seen(driver):
    rows = driver.find_elements("css selector", "#dlpm-sample .verdicts tbody tr:not(.apart)")
    *rows, ours = rows
    pills = [row.find_element("css selector", ".pill") for row in rows]

    assert [pill.text[2:] for pill in pills] == list(Verdict.__annotations__["holds"].__args__)
    assert all(row.is_displayed() and row.size["height"] > 20 for row in rows)
    # In colour, too, and no two alike.
    assert len({pill.value_of_css_property("background-color") for pill in pills}) == 5
    heading = driver.find_element("css selector", "#dlpm-sample .verdicts .apart")
    assert rows[-1].location["y"] < heading.location["y"] < ours.location["y"]


@pytest.mark.parametrize(
    ("verdict", "shown"),
    [
        ("holds", ["dlpm-sample"]),
        ("does not hold", ["dlpm-sample", "vtc-small"]),
        ("no results", ["pareto-missing"]),
        ("all", ["dlpm-sample", "vtc-small", "pareto-missing"]),
    ],
)
def test_the_filter_keeps_the_studies_with_that_verdict(driver, verdict, shown):
    driver.find_element("css selector", f'.filter[data-verdict="{verdict}"]').click()

    assert driver.execute_script(SHOWN) == shown == driver.execute_script(LISTED)
    count = "3 studies" if len(shown) == 3 else f"{len(shown)} of 3 studies"
    assert driver.find_element("id", "shown").text == count


def test_words_narrow_the_list_and_a_link_widens_it(driver):
    find = driver.find_element("id", "find")
    find.send_keys("vtc small")
    assert driver.execute_script(SHOWN) == ["vtc-small"]

    driver.execute_script("location.hash = '#dlpm-sample'")

    driver.execute_async_script("setTimeout(arguments[0], 50)")
    assert len(driver.execute_script(SHOWN)) == 3 and find.get_attribute("value") == ""


def test_the_numbers_of_the_figure_unfold_by_keyboard(driver):
    details = driver.find_element("css selector", "#dlpm-sample .numbers")

    details.find_element("css selector", "summary").send_keys("\n")

    driver.execute_async_script("setTimeout(arguments[0], 100)")
    rows = details.find_elements("css selector", "tbody tr")
    assert rows[0].is_displayed() and rows[0].text == "vtc 2 1,000"


@pytest.mark.parametrize(("width", "dark"), [(390, False), (390, True), (1300, True)])
def test_it_fits_a_phone_and_the_night(page, tmp_path, width, dark):
    with chromium.browser(tmp_path, width=width, dark=dark) as driver:
        driver.get(page.as_uri())
        check_drawn(driver)
        wide, window = driver.execute_script(WIDTH)
        body = driver.find_element("tag name", "body")

        assert wide <= window == width
        ground = body.value_of_css_property("background-color")
        assert (int(ground.split("(")[1].split(",")[0]) < 60) == dark


def test_what_goes_wrong_is_seen(page, tmp_path):
    """The checks above can fail: a broken figure and a request to the network are detected."""
    broken = tmp_path / "broken.html"
    text = page.read_text(encoding="utf-8").replace("image/svg+xml,<svg", "image/svg+xml,<svgg", 1)
    text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    text = text.replace("<body>", '<body><img src="http://127.0.0.1:9/outside.png">')
    broken.write_text(text, encoding="utf-8")

    with chromium.browser(tmp_path / "profile", width=1300) as driver:
        driver.get(broken.as_uri())
        with pytest.raises(AssertionError):
            check_drawn(driver)
        asked = chromium.asked_for(driver, broken.as_uri())
        assert "http://127.0.0.1:9/outside.png" in asked
