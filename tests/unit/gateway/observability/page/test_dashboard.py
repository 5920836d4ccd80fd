"""The dashboard: client names never become markup or script; its history keeps ten minutes of samples."""

import json
import re

import pytest

from fairhit.gateway.observability.page.dashboard import SampleHistory, read_files

FILES = read_files()
# Functions and attributes that turn text into markup or script.
SINKS = re.compile(
    rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|\beval\b|new Function|javascript:"
    rb"|createContextualFragment|setAttribute\('on|DOMParser"
)


@pytest.mark.parametrize("path", FILES)
def test_each_file_loads_nothing_from_elsewhere_and_is_in_no_frame(path: bytes) -> None:
    headers = b"".join(FILES[path].lines)
    policy = re.search(rb"content-security-policy: (.*)\r\n", headers)

    assert policy is not None
    rules = dict(rule.strip().split(b" ", 1) for rule in policy[1].split(b";"))
    assert rules[b"default-src"] == b"'none'" == rules[b"frame-ancestors"]
    assert rules[b"script-src"] == b"'self'", "no script within the page"
    assert b"x-content-type-options: nosniff\r\n" in headers


@pytest.mark.parametrize("path", FILES)
def test_no_file_turns_text_into_markup(path: bytes) -> None:
    assert SINKS.findall(FILES[path].body) == []


def test_the_page_has_no_inline_script() -> None:
    page = FILES[b"/dashboard"].body

    assert re.findall(rb"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(rb"\son[a-z]+=", page) == []


def numbers(history: SampleHistory, since: int) -> list[int]:
    return [sample["n"] for sample in json.loads(history.since(since))]


def test_the_history_returns_the_samples_after_a_number():
    history = SampleHistory(kept=5)
    for second in range(3):
        history.add({"t": second})

    assert json.loads(history.since(2)) == [{"n": 3, "t": 2}]
    assert numbers(history, 0) == [1, 2, 3]
    assert numbers(history, 3) == numbers(history, 99) == []


def test_the_history_drops_its_oldest_samples():
    history = SampleHistory(kept=5)
    for second in range(12):
        history.add({"t": second})

    assert numbers(history, 0) == numbers(history, 7) == [8, 9, 10, 11, 12]
    assert numbers(history, 10) == [11, 12]
