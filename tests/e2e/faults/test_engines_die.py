"""Engines that are killed, stopped and started again under load: no caller is left without an answer."""

import asyncio
import random
import signal
from pathlib import Path

from tests.e2e.faults.census import Fate
from tests.e2e.faults.conftest import Say
from tests.e2e.faults.crowd import asking, mixed
from tests.e2e.faults.processes import engines, retries
from tests.e2e.gateway.process import running

CALLERS = 24
# What runs at an engine when it dies: streams that have begun cannot be begun again.
PLACES = 4
# An engine that is stopped is noticed by its silence.
TIMEOUTS = {
    "health_check_interval_secs": 0.1,
    "health_check_timeout_secs": 1.5,
    "first_byte_timeout_secs": 3.0,
    "idle_timeout_secs": 3.0,
}


def test_an_engine_that_is_killed_takes_only_what_it_had_begun(tmp_path: Path, say: Say) -> None:
    """kill -9, three times; it comes back at the same address each time."""

    async def run() -> None:
        async with (
            engines(2, "--places", str(PLACES)) as (first, second),
            running(tmp_path, worker_urls=[first.url, second.url], **TIMEOUTS) as process,
            asking(process.port, mixed(random.Random(1)), callers=CALLERS) as crowd,
        ):
            for death in range(1, 4):
                await crowd.more(150)
                first.kill()
                await process.says(f"{first.url} is down", times=death)
                await crowd.more(100)
                await first.start()
                await process.says(f"{first.url} is up", times=1 + death)
            await crowd.more(100)
            assert (await first.census())["answer"] > 0
            retried = await retries(process)
        census = crowd.census
        assert census.lost == 0, census
        assert census[Fate.REFUSED] == 0, census
        assert census[Fate.FAILED] <= 3 * PLACES, census
        say(f"{census}; {retried} retried")

    asyncio.run(run())


def test_an_engine_that_stops_for_a_while_delays_what_it_has_and_no_more(
    tmp_path: Path, say: Say
) -> None:
    """SIGSTOP: its connections stay, and say nothing. SIGCONT: what it then says reaches no other caller."""

    async def run() -> None:
        async with (
            engines(2, "--places", str(PLACES)) as (first, second),
            running(tmp_path, worker_urls=[first.url, second.url], **TIMEOUTS) as process,
            asking(process.port, mixed(random.Random(2)), callers=CALLERS) as crowd,
        ):
            await crowd.more(100)
            first.signal(signal.SIGSTOP)
            await process.says(f"{first.url} is down")
            await crowd.more(200)
            first.signal(signal.SIGCONT)
            await process.says(f"{first.url} is up", times=2)
            await crowd.more(200)
            retried = await retries(process)
        census = crowd.census
        assert census.lost == 0, census
        assert census[Fate.REFUSED] == 0, census
        assert census[Fate.FAILED] <= PLACES, census
        say(f"{census}; {retried} retried")

    asyncio.run(run())
