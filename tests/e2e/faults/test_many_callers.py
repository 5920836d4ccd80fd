"""Ten thousand who say nothing, many thousands who ask once, and one who asks a hundred times as much."""

import asyncio
import contextlib
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

from tests.e2e.faults import strangers
from tests.e2e.faults.caller import HOST, Ask, fate_of
from tests.e2e.faults.census import Fate
from tests.e2e.faults.conftest import Say
from tests.e2e.faults.crowd import Crowd, asking, mixed
from tests.e2e.faults.processes import engines, rss_mb
from tests.e2e.gateway.process import running

IDLE = 10_000
# Descriptors that this process and the gateway have besides: libraries, engines, other callers.
SPARE = 500
CLIENTS = 10_000
RESET = struct.pack("ii", 1, 0)


def possible(wanted: int) -> int:
    """As many of these as this machine lets one process open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return min(wanted, hard - SPARE)


@contextlib.contextmanager
def idle(port: int, number: int) -> Iterator[list[socket.socket]]:
    """So many connections on which nothing is said."""
    held: list[socket.socket] = []
    try:
        for _ in range(number):
            held.append(socket.create_connection((HOST, port), timeout=30))
            held[-1].setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        yield held
    finally:
        for one in held:
            one.close()


def test_idle_connections_cost_memory_and_no_other_caller_a_thing(tmp_path: Path, say: Say) -> None:
    number = possible(IDLE)

    async def run() -> None:
        async with (
            engines(1) as (engine,),
            running(tmp_path, worker_urls=[engine.url], max_connections=2 * IDLE) as process,
        ):
            async with asking(process.port, mixed(random.Random(7)), callers=8) as crowd:
                await crowd.more(50)
            before = rss_mb(process.pid)
            with idle(process.port, number) as held:
                async with asking(process.port, mixed(random.Random(8)), callers=8) as crowd:
                    await crowd.more(200)
                each_kb = (rss_mb(process.pid) - before) * 1000 / number
                held[-1].sendall(b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n")  # they are let in
                assert held[-1].recv(12) == b"HTTP/1.1 200"
        census = crowd.census
        assert census.offered == census[Fate.ANSWERED] + census[Fate.LEFT], census
        assert each_kb < 16, each_kb
        say(f"{number} idle connections, {each_kb:.1f} kB each; beside them {census}")

    asyncio.run(run())


@pytest.mark.parametrize(
    ("settings", "asks", "bounds"),
    [({"scheduler": "dlpm", "quantum": 64}, 20, (0, 50)), ({"scheduler": "fcfs"}, 3, (150, 250))],
    ids=["dlpm", "fcfs"],
)
def test_who_asks_a_hundred_times_as_much_passes_the_other_a_few_times_at_most(
    tmp_path: Path, say: Say, settings: dict[str, object], asks: int, bounds: tuple[int, int]
) -> None:
    """
    A client with 200 callers beside one with 2, at four places: how many of the first are answered between
    a question of the second and its answer. Under FCFS it is all its callers.
    """
    passed: list[int] = []

    async def ask_beside(heavy: Crowd, port: int, first: int) -> None:
        for number in range(first, first + asks):
            before = heavy.census.offered
            result = await fate_of(Ask(number=number, client="light", text="x" * 40), port)
            assert result.fate is Fate.ANSWERED, result
            passed.append(heavy.census.offered - before)

    async def run() -> None:
        async with (
            engines(1, "--places", "4", "--token-s", "0.003") as (engine,),
            running(
                tmp_path, worker_urls=[engine.url], identify_by_user=True, max_engine_requests=4,
                **settings,
            ) as process,
            asking(
                process.port, lambda n: Ask(number=n, client="heavy", text="x" * 40), callers=200
            ) as heavy,
        ):  # fmt: skip
            await heavy.more(200)
            await asyncio.gather(
                *(ask_beside(heavy, process.port, first) for first in (10_000, 20_000))
            )
        assert heavy.census.offered == heavy.census[Fate.ANSWERED], heavy.census
        least, most = bounds
        assert least <= median(passed) <= max(passed) <= most, passed
        say(f"passed by {median(passed):.0f}, by {max(passed)} at most")

    asyncio.run(run())


def test_clients_who_ask_once_leave_little_behind(tmp_path: Path, say: Say) -> None:
    """Their records are small, and their metrics share one name; `make soak` has 100,000 of them."""

    async def run() -> None:
        with strangers.quick_engine() as url:
            async with running(tmp_path, worker_urls=[url], **strangers.SETTINGS) as process:
                left = await strangers.pass_by(process, CLIENTS)
        assert left < 2 * strangers.CLIENT_BYTES, left  # so few, and tables still grow by doubling
        say(f"{CLIENTS} clients, {left:.0f} bytes each")

    asyncio.run(run())
