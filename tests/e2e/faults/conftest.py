"""What each story came to is said at the end of the run, so that docs/reference/faults.md can quote it."""

from collections.abc import Callable

import pytest

Say = Callable[[object], None]
_SAID = pytest.StashKey[list[str]]()


@pytest.fixture
def say(request: pytest.FixtureRequest) -> Say:
    """Say it, beside the name of the test."""
    said = request.config.stash.setdefault(_SAID, [])
    return lambda what: said.append(f"{request.node.name}: {what}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if said := terminalreporter.config.stash.get(_SAID, []):
        terminalreporter.section("faults: what became of the requests")
        terminalreporter.write("\n".join([*said, ""]))
