"""Ten thousand who say nothing, many thousands who ask once, and one who asks a hundred times as much."""

import asyncio
import contextlib
import itertools
import random
import resource
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.faults import strangers
from tests.e2e.faults.caller import HOST, Ask
from tests.e2e.faults.census import Fate
from tests.e2e.faults.conftest import Say
from tests.e2e.faults.crowd import asking, mixed
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


def test_idle_connections_cost_memory_and_nobody_else_a_thing(tmp_path: Path, say: Say) -> None:
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
    "settings", [{"scheduler": "dlpm", "quantum": 64}, {"scheduler": "fcfs"}], ids=["dlpm", "fcfs"]
)
def test_who_asks_a_hundred_times_as_much_passes_the_other_a_few_times_at_most(
    tmp_path: Path, say: Say, settings: dict[str, object]
) -> None:
    """
    A client with 200 callers beside one with 2, four places: in the order in which the engine began
    them, how many of the first stand between two of the second. Under FCFS it is all its callers.
    """
    crowds = {"heavy": 200, "light": 2}

    def ask(client: str, number: int) -> Ask:
        return Ask(number=number, client=client, text="x" * 40, max_tokens=4)

    async def run() -> None:
        async with (
            engines(1, "--places", "4", "--token-s", "0.003") as (engine,),
            running(
                tmp_path, worker_urls=[engine.url], identify_by_user=True, max_engine_requests=4,
                **settings,
            ) as process,
            contextlib.AsyncExitStack() as stack,
        ):  # fmt: skip
            asked = {
                client: await stack.enter_async_context(
                    asking(process.port, lambda n, own=client: ask(own, n), callers=callers)
                )
                for client, callers in crowds.items()
            }
            await asked["heavy"].more(600)
            order = await engine.get("/order")
        lengths = [len(list(run)) for own, run in itertools.groupby(order[250:]) if own == "heavy"]
        for client, crowd in asked.items():
            assert crowd.census.offered == crowd.census[Fate.ANSWERED], (client, crowd.census)
        share = order[250:].count("light") / len(order[250:])
        say(f"{max(lengths)} in a row at most, light's share {share:.0%} of {len(order) - 250}")
        if settings["scheduler"] == "dlpm":
            assert max(lengths) <= 16, lengths
            assert share > 0.1
        else:
            assert max(lengths) > 100, lengths

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
