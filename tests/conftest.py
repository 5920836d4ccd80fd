"""For every test: where it runs, the slow ones last, and in CI nothing is skipped in silence."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# vLLM's plug-in compares its containers with vLLM's own after each step; engines inherit it.
os.environ.setdefault("FAIRHIT_AUDIT", "1")
IN_CI = os.environ.get("CI") == "true"

# How long an example takes is the machine's: 200 ms are soon over where others work beside.
settings.register_profile(
    "any-machine", parent=settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any-machine")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Real engines take minutes: what fails in seconds is known first."""
    items.sort(key=lambda item: item.get_closest_marker("e2e") is not None)


class TogetherOrApart(LoadScopeScheduling):
    """Each process takes whole files, whose tests may share a server; one takes all that drive engines.

    Two engines fill the cores of a small machine: beside others their tests would measure those.
    """

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "engines" if _drives_engines(self.config.rootpath / path) else path


@cache
def _drives_engines(path: Path) -> bool:
    return "pytest.mark.e2e" in path.read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return TogetherOrApart(config, log)


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
