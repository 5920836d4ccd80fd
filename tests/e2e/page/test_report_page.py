"""The report as its reader has it: opened from a file in a real browser, scrolled, filtered, typed at."""

import re

import pytest

from fairlead.experiments.report.folders import read_folders
from fairlead.experiments.report.page import page_of
from fairlead.experiments.study.study import Verdict
from tests.e2e.page import browser as chromium
from tests.unit.experiments.report_sample import CLIENTS, STUDIES, write_sample

pytestmark = pytest.mark.skipif(not (chromium.CHROMIUM and chromium.DRIVER), reason=chromium.REASON)

# Each drawing as its container's class, how large its plot is, within the axes, and how many marks.
DRAWINGS = """return [...document.querySelectorAll('.chart, .detail, .overview')].map((each) => {
  const drawn = each.querySelector('svg .root path.background')?.getBoundingClientRect();
  const marks = each.querySelectorAll('.mark-rect path, .mark-line path, .mark-symbol path').length;
  return [each.className.split(' ')[0], drawn ? drawn.width : 0, drawn ? drawn.height : 0, marks];
})"""
SCROLL = """const done = arguments[0];
const charts = [...document.querySelectorAll('.chart, .explorer')];
(async () => {
  for (const chart of charts) {
    chart.scrollIntoView({ behavior: 'instant' });
    for (let wait = 0; wait < 500; wait += 1) {
      if (chart.dataset.drawn || chart.dataset.ready) break;
      await new Promise((next) => setTimeout(next, 20));
    }
  }
  scrollTo({ top: 0, behavior: 'instant' });
  done(charts.length);
})();"""
SHIFTS = """window.shifted = 0;
new PerformanceObserver((list) => list.getEntries().forEach((each) => { window.shifted += each.value; }))
  .observe({ type: 'layout-shift', buffered: true });"""
WIDTH = "return [document.documentElement.scrollWidth, innerWidth]"
SHOWN = "return [...document.querySelectorAll('.study')].filter((e) => !e.hidden).map((e) => e.id)"
LISTED = (
    "return [...document.querySelectorAll('nav li')].filter((e) => !e.hidden)"
    ".map((e) => e.dataset.study)"
)
STRIP_TICKS = """return [...document.querySelectorAll('.overview .role-axis-label text')]
  .map((each) => each.textContent)"""
CURVES = """return document.querySelectorAll('.detail .mark-line path').length"""


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
    """Everything that can be drawn is, after a look at all of it."""
    driver.execute_script(SHIFTS)
    # Two studies have charts: six and one; one of them has curves, which are two drawings.
    assert driver.execute_async_script(SCROLL) == 6 + 1 + 1
    drawings = driver.execute_script(DRAWINGS)
    assert [each[0] for each in drawings].count("chart") == 7 and len(drawings) == 9
    for name, width, height, marks in drawings:
        assert width > 200 and height > 40 and marks > 0, (name, width, height, marks)
    assert driver.execute_script("return window.shifted") < 0.01
    assert chromium.said(driver) == []


def test_every_chart_is_drawn_and_nothing_is_asked_of_the_network(driver, page):
    check_drawn(driver)

    asked = chromium.asked_for(driver, page.as_uri())
    assert page.as_uri() in asked
    assert [each for each in asked if not each.startswith(("file:", "data:", "blob:"))] == []
    assert "taken" not in driver.title


def test_each_kind_of_verdict_is_seen(driver):
    rows = driver.find_elements("css selector", "#dlpm-sample .verdicts tbody tr")
    pills = [row.find_element("css selector", ".pill") for row in rows]

    assert [pill.text[2:] for pill in pills] == list(Verdict.__annotations__["holds"].__args__)
    assert all(row.is_displayed() and row.size["height"] > 20 for row in rows)
    # In colour, too, and no two alike.
    assert len({pill.value_of_css_property("background-color") for pill in pills}) == 4


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


def test_a_client_is_switched_off_by_keyboard(driver):
    driver.execute_async_script(SCROLL)
    before = driver.execute_script(CURVES)
    chip = driver.find_element("css selector", '.chip[data-client="c10"]')

    chip.send_keys(" ")

    driver.execute_async_script("setTimeout(arguments[0], 300)")
    assert before == len(CLIENTS) and driver.execute_script(CURVES) == len(CLIENTS) - 1
    assert chip.get_attribute("aria-pressed") == "false"
    chip.send_keys("\n")


def test_a_second_run_is_laid_beside_and_a_time_is_typed(driver):
    from selenium.webdriver.support.select import Select

    driver.execute_async_script(SCROLL)
    Select(driver.find_element("css selector", '[data-choice="beside"]')).select_by_index(2)
    begin = driver.find_element("css selector", '[data-choice="from"]')
    begin.clear()
    begin.send_keys("120\t")

    driver.execute_async_script("setTimeout(arguments[0], 300)")
    ticks = driver.execute_script(
        "return [...document.querySelectorAll('.detail .role-axis-label text')].map((e) => e.textContent)"
    )
    assert driver.execute_script(CURVES) == 2 * len(CLIENTS)
    assert "0" not in ticks[: ticks.index("200")] and "200" in ticks


def test_a_drag_over_the_strip_chooses_a_time(driver):
    from selenium.webdriver import ActionChains

    driver.execute_async_script(SCROLL)
    strip = driver.find_element("css selector", ".overview svg")
    driver.execute_script("arguments[0].scrollIntoView({ block: 'center' })", strip)
    begin = driver.find_element("css selector", '[data-choice="from"]')
    driver.find_element("css selector", ".whole").click()
    assert begin.get_attribute("value") == "0"

    ActionChains(driver).move_to_element_with_offset(
        strip, -60, -10
    ).click_and_hold().move_by_offset(160, 0).release().perform()

    driver.execute_async_script("setTimeout(arguments[0], 300)")
    end = driver.find_element("css selector", '[data-choice="to"]')
    # As wide as all runs together, so that a run that ended early shows its length.
    assert "300" in driver.execute_script(STRIP_TICKS)
    assert 50 < float(begin.get_attribute("value")) < float(end.get_attribute("value")) < 330


def test_the_numbers_behind_a_chart_are_a_table(driver):
    details = driver.find_element("css selector", "#dlpm-sample .numbers")

    details.find_element("css selector", "summary").send_keys("\n")

    driver.execute_async_script("setTimeout(arguments[0], 100)")
    rows = details.find_elements("css selector", "tbody tr")
    assert len(rows) == 6 and "vtc" in rows[0].text and "1001" in rows[0].text


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
    """This file's own checks can fail: a broken chart is told, and so is what is asked of a network."""
    broken = tmp_path / "broken.html"
    text = page.read_text(encoding="utf-8").replace('"mark":', '"mork":', 1)
    text = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    text = text.replace("<body>", '<body><img src="http://127.0.0.1:9/outside.png">')
    broken.write_text(text, encoding="utf-8")

    with chromium.browser(tmp_path / "profile", width=1300) as driver:
        driver.get(broken.as_uri())
        driver.execute_async_script(SCROLL.replace("500", "50"))

        assert "could not be drawn" in driver.find_element("tag name", "body").text
        assert chromium.said(driver)
        asked = chromium.asked_for(driver, broken.as_uri())
        assert "http://127.0.0.1:9/outside.png" in asked
