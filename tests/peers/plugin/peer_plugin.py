"""Pytest plugin for vLLM's own tests: puts our scheduler in the stock one's place, records each outcome.

Loaded by `-p peer_plugin` in a process of its own, whose environment says how:

    PEER_OUTCOMES        file that gets one JSON line for each test
    FAIRHIT_SCHEDULER   the policy; unset, the stock scheduler stays
"""

import asyncio
import inspect
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from vllm.multimodal import encoder_budget

# What FairScheduler says when it refuses a setting that would decide instead of it.
REFUSAL = "with FairScheduler, which orders requests itself"


def substitute() -> None:
    """Name FairScheduler wherever vLLM's modules name theirs; the tests import those names afterwards."""
    import vllm.v1.core.sched.async_scheduler as async_module
    import vllm.v1.core.sched.diffusion_scheduler  # noqa: F401  its classes extend the stock ones
    import vllm.v1.core.sched.scheduler as module

    from fairhit.engines.vllm.scheduler import AsyncFairScheduler, FairScheduler

    # Many tests build a pool that is smaller than one request may be, to see what gives way.
    # FairScheduler refuses that as it starts.
    FairScheduler._check_size = lambda _: None  # type: ignore[method-assign]
    module.Scheduler = FairScheduler
    async_module.AsyncScheduler = AsyncFairScheduler


def pytest_configure(config: pytest.Config) -> None:
    for marker in (
        "cpu_test",
        "slow_test",
        "asyncio",
        "optional",
        "skip_global_cleanup",
        "timeout",
    ):
        config.addinivalue_line("markers", f"{marker}: the peer's")
    # Measuring an image takes torchvision, which our environment leaves out; so many tokens takes a
    # LLaVA, which the tests name.
    encoder_budget.get_mm_max_toks_per_item = lambda *_, **__: {"image": 576}
    if os.environ.get("FAIRHIT_SCHEDULER"):
        substitute()
    # Where tests run in workers, their parent process gets all reports.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Outcomes(Path(os.environ["PEER_OUTCOMES"])))


@pytest.fixture
def caplog_vllm(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Capture vLLM's log as its own conftest does, which imports half of its test requirements."""
    logger = logging.getLogger("vllm")
    logger.propagate, before = True, logger.propagate
    with caplog.at_level(logging.INFO):
        yield caplog
    logger.propagate = before


def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine test, which takes a plug-in of pytest's that we have no other use for."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


class Outcomes:
    """Writes what became of each test."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write a line for each test, and another one if its setup or teardown fails."""
        if report.when == "call" or report.outcome != "passed":
            self._write(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is an outcome, too."""
        if report.outcome != "passed":
            self._write(report)

    def _write(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        text = str(report.longrepr or "")
        outcome = "refused" if report.outcome == "failed" and REFUSAL in text else report.outcome
        reasons = [line for line in text.splitlines() if line.startswith("E ")]
        reason = reasons[-1] if reasons else text[-300:]
        with self._path.open("a") as out:
            out.write(json.dumps([report.nodeid, outcome, reason]) + "\n")
