"""The browser for the report's test: installed where that is possible, else said in one line."""

from subprocess import CompletedProcess

import pytest
from scripts import install_chromium


def test_nothing_is_done_where_both_are_there(monkeypatch, capsys):
    monkeypatch.setattr(install_chromium, "missing", list)
    monkeypatch.setattr(install_chromium, "install", lambda: pytest.fail("installs"))

    assert install_chromium.main() == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("apt", "user", "reason"),
    [
        (None, 0, "there is no apt-get here"),
        ("/usr/bin/apt-get", 1000, "run as root: apt-get install chromium chromium-driver"),
        ("/usr/bin/apt-get", 0, None),
    ],
)
def test_what_is_in_the_way_is_said(monkeypatch, apt, user, reason):
    monkeypatch.setattr(install_chromium.os, "geteuid", lambda: user)

    assert install_chromium.obstacle(lambda _: apt) == reason


def test_what_is_missing():
    there = {"chromium": "/usr/bin/chromium"}

    assert install_chromium.missing(there.get) == ["chromedriver"]


def apt_get(*statuses):
    """Answers in turn; each is an exit status."""
    calls, left = [], list(statuses)

    def run(command):
        calls.append(command[2])
        return CompletedProcess(command, left.pop(0), "", "W: a warning\nE: no such host")

    return calls, run


def test_lists_are_fetched_first():
    calls, run = apt_get(0, 0)

    assert install_chromium.install(run) is None
    assert calls == ["update", "install"]


def test_a_mirror_may_fail_twice():
    calls, run = apt_get(100, 0, 100, 0, 0)

    assert install_chromium.install(run, wait_s=0) is None
    assert calls == ["update", "update", "install", "update", "install"]


def test_a_failure_is_one_line_and_no_error(monkeypatch, capsys):
    """Everything but one test works without."""
    _, run = apt_get(0, 100, 0, 100, 0, 100)
    monkeypatch.setattr(install_chromium, "missing", lambda: ["chromium"])
    monkeypatch.setattr(install_chromium, "obstacle", lambda: None)
    monkeypatch.setattr(install_chromium, "install", lambda: real(run, wait_s=0))

    assert install_chromium.main() == 0

    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("install: no browser (chromium), its test will be skipped: ")
    assert last.endswith("apt-get install: E: no such host")


real = install_chromium.install
