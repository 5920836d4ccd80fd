"""The gateway itself is killed, started again and ended, under load."""

import asyncio
import random
import signal
from pathlib import Path

from tests.e2e.faults.census import Fate
from tests.e2e.faults.conftest import Say
from tests.e2e.faults.crowd import asking, mixed
from tests.e2e.faults.processes import EngineProcess, engines, idle
from tests.e2e.gateway.process import running

CALLERS = 24


async def aborted(fleet: list[EngineProcess]) -> int:
    """Requests that engines stopped because no caller waited any more."""
    return sum([(await one.census()).get("aborted", 0) for one in fleet])


def test_a_gateway_that_is_killed_leaves_no_caller_waiting_and_no_engine_working(
    tmp_path: Path, say: Say
) -> None:
    """
    Each caller's connection breaks, which is an error to it; engines stop what
    no caller will receive; the gateway that is started at the same address serves the same callers.
    """

    async def run() -> None:
        slowly = ("--places", "8", "--token-s", "0.05")
        async with (
            engines(2, *slowly) as both,
            running(tmp_path, worker_urls=[one.url for one in both]) as process,
            asking(process.port, mixed(random.Random(3)), callers=CALLERS) as crowd,
        ):
            await crowd.more(100)
            before = await aborted(both)
            process.signal(signal.SIGKILL)
            assert process.child is not None
            await process.child.wait()
            await asyncio.gather(*(idle(one) for one in both))
            assert await aborted(both) >= before + CALLERS // 2
            assert crowd.census[Fate.CUT] >= CALLERS // 2, crowd.census
            await process.start()
            answered = crowd.census[Fate.ANSWERED]
            await crowd.until(lambda census: census[Fate.ANSWERED] >= answered + 100)
        census = crowd.census
        assert census[Fate.SILENT] == census[Fate.WRONG] == census[Fate.FAILED] == 0, census
        say(census)

    asyncio.run(run())


def test_a_gateway_that_is_ended_answers_all_it_has_accepted(tmp_path: Path, say: Say) -> None:
    """Under load, SIGTERM: who is in is served, who comes later finds a closed door."""

    async def run() -> None:
        async with (
            engines(2) as both,
            running(tmp_path, worker_urls=[one.url for one in both]) as process,
            asking(process.port, mixed(random.Random(4)), callers=CALLERS) as crowd,
        ):
            await crowd.more(100)
            process.signal(signal.SIGTERM)
            assert process.child is not None
            async with asyncio.timeout(60):
                assert await process.child.wait() == 0
            await crowd.until(lambda census: census[Fate.UNREACHED] > CALLERS)
            await asyncio.gather(*(idle(one) for one in both))
        census = crowd.census
        assert census.lost == census[Fate.UNREACHED], census
        assert census[Fate.FAILED] == census[Fate.REFUSED] == 0, census
        say(census)

    asyncio.run(run())
