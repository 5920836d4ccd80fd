"""For every test: the slow ones come last, and in CI nothing is skipped in silence."""

import os
from collections.abc import Iterator

import pytest

IN_CI = os.environ.get("CI") == "true"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real engines take minutes: what fails in seconds is known first."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)


def unwanted(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    """The skips that hide a broken environment: all of them, since CI has vLLM and the public data."""
    for report in terminalreporter.stats.get("skipped", []):
        yield f"{report.nodeid}: {report.longrepr}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if IN_CI and (skipped := list(unwanted(terminalreporter))):
        terminalreporter.section("skipped, which CI does not accept", red=True)
        terminalreporter.write("\n".join(skipped) + "\n")


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if IN_CI and reporter is not None and list(unwanted(reporter)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
