"""The live page shows names that callers chose: none of them becomes markup or script."""

import re

import pytest

from fairhit.gateway.observability.page.dashboard import read_files

FILES = read_files()
# What makes markup or script of text.
SINKS = re.compile(
    rb"innerHTML|outerHTML|insertAdjacentHTML|document\.write|srcdoc|\beval\b|new Function|javascript:"
    rb"|createContextualFragment|setAttribute\('on|DOMParser"
)


@pytest.mark.parametrize("path", FILES)
def test_a_part_of_the_page_loads_nothing_from_elsewhere_and_is_in_no_frame(path: bytes) -> None:
    headers = b"".join(FILES[path].lines)
    policy = re.search(rb"content-security-policy: (.*)\r\n", headers)

    assert policy is not None
    rules = dict(rule.strip().split(b" ", 1) for rule in policy[1].split(b";"))
    assert rules[b"default-src"] == b"'none'" == rules[b"frame-ancestors"]
    assert rules[b"script-src"] == b"'self'", "no script within the page"
    assert b"x-content-type-options: nosniff\r\n" in headers


@pytest.mark.parametrize("path", FILES)
def test_nothing_in_the_page_makes_markup_of_text(path: bytes) -> None:
    assert SINKS.findall(FILES[path].body) == []


def test_the_page_has_no_script_of_its_own() -> None:
    page = FILES[b"/dashboard"].body

    assert re.findall(rb"<script(?![^>]*\bsrc=)", page) == []
    assert re.findall(rb"\son[a-z]+=", page) == []
