"""One caller that takes all connections, or all file descriptors: probes and other callers get through."""

import asyncio
import contextlib
import os
import resource
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairhit.gateway.http import client_connection as caller
from tests.deploy.manifests import pod
from tests.e2e.gateway.process import Process, running
from tests.e2e.gateway.scripts import Received, chat, good
from tests.e2e.gateway.world import (
    CHAT,
    Connection,
    FakeEngine,
    Reply,
    World,
    eventually,
    play,
    turns,
)

HALF_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nhost:"
HALF_BODY = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n\r\n{"
ASKED = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"


async def crowd(world: World, number: int, sent: bytes) -> list[Connection]:
    """So many connections, each of which sends this and no more, but reads its answer if it has one."""
    made = []
    for _ in range(number):
        made.append(await world.connect())
        made[-1].writer.write(sent)
        if sent == ASKED:
            assert (await made[-1].reply()).status == 200
    return made


async def at_work(world: World, number: int) -> list[Connection]:
    """So many that wait for an engine's answer."""
    made = []
    for _ in range(number):
        made.append(await world.connect())
        made[-1].send(CHAT, chat())
    await eventually(lambda: len(world.gateway.exchanges) == number)
    return made


async def probe(port: int, path: str) -> int:
    connection = Connection(*await asyncio.open_connection("127.0.0.1", port))
    connection.send(path)
    try:
        return (await connection.reply()).status
    finally:
        connection.reset()


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, HALF_BODY, ASKED])
def test_the_shipped_probes_get_through_a_crowd(sent: bytes) -> None:
    """A pod whose liveness probe fails three times is killed, with all its streams."""
    (container,) = pod("Deployment", "fairhit-gateway")["spec"]["containers"]

    async def story(world: World) -> None:
        ports = {"http": world.gateway.port, "metrics": world.gateway.metrics_port}
        for number in (20, 100):  # as many as there may be, and more
            held = await crowd(world, number, sent)
            for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
                asked = container[kind]["httpGet"]
                for port in {ports[asked["port"]], ports["http"]}:
                    assert port is not None
                    assert await probe(port, asked["path"]) == 200, kind
            for one in held:
                one.reset()

    play(story, good, max_connections=20, prometheus_port=0)


@pytest.mark.parametrize("sent", [b"", HALF_HEAD, ASKED])
def test_other_callers_are_served_beside_a_crowd(sent: bytes) -> None:
    """What has not asked, or asks nothing now, is closed for them, the oldest first, with an error."""

    async def story(world: World) -> None:
        held = await crowd(world, 21, sent)
        assert (await world.ask()).status == 200
        if sent == ASKED:
            assert await held[0].closed()
        else:
            first = await held[0].reply()
            assert (first.status, first.error()["code"]) == (503, "gateway_full")
        assert (await world.ask()).status == 200
        for one in held:
            one.reset()

    play(story, good, max_connections=20)


@pytest.mark.parametrize("first", [ASKED, ASKED * 2], ids=["once", "twice"])
def test_who_has_no_key_keeps_no_place_by_asking_for_health(first: bytes) -> None:
    """And then begins the next request: some bytes in ten seconds kept every place from everybody else."""

    async def story(world: World) -> None:
        held = await crowd(world, 20, first + HALF_HEAD)
        for one in held:
            assert (await one.reply()).status == 200
        assert (await world.ask(authorization="Bearer k")).status == 200
        busy = world.gateway.connections.states()
        assert busy["reserve"] == 0
        for one in held:
            one.reset()

    play(story, good, max_connections=20, tenant_api_key=("t:k",))


def test_bodies_that_never_come_keep_no_caller_out_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Their heads have come, and without keys no caller is refused by that; a minute is too long then."""
    monkeypatch.setattr(caller, "_SLOW_S", 0.2)

    async def story(world: World) -> None:
        held = await crowd(world, 20, HALF_BODY)
        await eventually(lambda: all(one.is_slow for one in world.gateway.connections))
        assert (await world.ask()).status == 200
        assert (await held[0].reply()).error()["code"] == "gateway_full"
        assert world.gateway.connections.turned_away["slow"] >= 1
        for one in held:
            one.reset()

    play(story, good, max_connections=20)


async def hangs(received: Received) -> None:
    await asyncio.sleep(3600)


def test_where_all_are_at_work_the_next_is_refused_and_probes_are_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story(world: World) -> None:
        busy = await at_work(world, 5)

        refused = await world.ask()
        assert (refused.status, refused.error()["code"]) == (503, "gateway_full")
        assert (refused.headers["connection"], refused.headers["retry-after"]) == ("close", "1")
        assert (await world.get("/health")).status == 200
        metrics = (await world.get("/metrics")).body.decode()
        assert 'fairhit_connections{state="active"} 5.0' in metrics
        assert "fairhit_connections_limit 5.0" in metrics
        assert 'fairhit_connections_shed_total{reason="limit"} 3.0' in metrics
        assert sum("--max-connections" in line for line in caplog.messages) == 1
        for one in busy:
            one.reset()

    play(story, hangs, max_connections=5)


def test_a_body_that_one_refused_sends_is_not_waited_for() -> None:
    """Beyond the limit no body is read; those answered make place for the next."""

    async def story(world: World) -> None:
        busy = await at_work(world, 2)
        held = await crowd(world, 80, HALF_BODY)
        for one in held[-10:]:
            assert (await one.reply()).error()["code"] == "gateway_full"
        assert (await world.get("/health")).status == 200
        for one in (*busy, *held):
            one.reset()

    play(story, hangs, max_connections=2)


def test_the_port_for_metrics_is_not_taken_by_a_crowd_either() -> None:
    async def story(world: World) -> None:
        port = world.gateway.metrics_port
        assert port is not None
        held = [Connection(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(70)]
        assert await probe(port, "/metrics") == 200
        for one in held:
            one.reset()

    play(story, good, prometheus_port=0)


def test_one_address_with_a_limit_of_its_own_does_not_take_all_places() -> None:
    async def story(world: World) -> None:
        busy = await at_work(world, 2)
        assert (await world.ask()).error()["code"] == "gateway_full"
        assert (await world.get("/health")).status == 200

        address = ("127.0.0.1", world.gateway.port)
        other = Connection(*await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0)))
        other.send(CHAT, chat())
        await eventually(lambda: len(world.gateway.exchanges) == 3)
        for connection in (*busy, other):
            connection.reset()
        await eventually(lambda: not world.gateway.connections._of_address)

    play(story, hangs, max_address_connections=2)


# -- file descriptors


async def soon(received: Received) -> None:
    await asyncio.sleep(0.1)
    await good(received)


async def fate(process: Process, *, asks: bool) -> Reply | str:
    """The answer, or what became of one that got none."""
    connection = await process.connect()
    try:
        if asks:
            connection.send(CHAT, chat())
        return await connection.reply()
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        connection.reset()


def test_with_few_descriptors_no_request_is_lost_and_no_engine_is_blamed(tmp_path: Path) -> None:
    """300 of them, of which 225 are for connections: 400 callers at once, half of whom say nothing."""

    async def run() -> None:
        engine = await FakeEngine(soon).start()
        async with running(
            tmp_path, descriptors=300, worker_urls=[engine.url], max_client_requests=1000,
            health_check_interval_secs=0.05,
        ) as process:  # fmt: skip
            assert process.said.count("--max-connections 8192 may take 17408 file") == 1
            assert "this process may open 300" in process.said
            silent = [asyncio.create_task(fate(process, asks=False)) for _ in range(200)]
            asking = [asyncio.create_task(fate(process, asks=True)) for _ in range(400)]
            answered = [await one for one in asking]
            assert await probe(process.port, "/health") == 200
            after = [await fate(process, asks=True) for _ in range(3)]
            workers = (await process.ask("/workers")).body
            for one in silent:
                one.cancel()
            silenced = await asyncio.gather(*silent, return_exceptions=True)
        replies = [one for one in (*answered, *silenced) if isinstance(one, Reply)]
        assert [one for one in (*answered, *silenced) if isinstance(one, str)] == []
        refused = [one.error()["code"] for one in replies if one.status != 200]
        assert set(refused) == {"gateway_full"}
        assert sum(one.status == 200 for one in replies) >= 100
        assert [one.status for one in after if isinstance(one, Reply)] == [200] * 3
        assert b'"circuit":"closed"' in workers and b'"state":"up"' in workers
        assert b'"faults":{}' in workers
        assert "probe failed" not in process.said and "is down" not in process.said
        engine.stop()

    asyncio.run(run())


def test_a_limit_with_which_nothing_can_be_served_is_refused(tmp_path: Path) -> None:
    async def run() -> str:
        config = tmp_path / "gateway.yaml"
        config.write_text("{}")
        process = Process(config, 0, descriptors=100)
        with pytest.raises(AssertionError):
            await process.start()
        assert process.child is not None
        assert await process.child.wait() == 2
        return process.said

    assert "may open 100 files, and the gateway needs 128" in asyncio.run(run())


@contextlib.contextmanager
def none_left() -> Iterator[None]:
    """No file can be opened by this process meanwhile, nor a connection be made."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = sorted(map(int, os.listdir("/proc/self/fd")))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used[-1] + 1, hard))
    holes = []
    with contextlib.suppress(OSError):
        while True:
            holes.append(os.open(os.devnull, os.O_RDONLY))
    try:
        yield
    finally:
        for one in holes:
            os.close(one)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def cannot_connect(world: World) -> None:
    """An exchange and a probe for which no connection to the engine can be made."""
    ((_, watch, _),) = world.gateway.pool.watches()
    kept = await world.connect()
    kept.send("/health")
    assert (await kept.reply()).status == 200
    world.gateway.pool.close_idle()
    await eventually(lambda: not world.engines[0].open)
    await turns()
    with none_left():
        kept.send(CHAT, chat())
        reply = await kept.reply()
        for _ in range(2):  # probes cannot connect either
            watch.probe_soon.set()
            await eventually(lambda: not watch.probe_soon.is_set())
        await turns()
    assert (reply.status, reply.error()["code"]) == (503, "gateway_full")
    kept.reset()


async def cannot_accept(world: World) -> None:
    """A caller stands in the system's queue when the last descriptor is taken."""
    one = socket.create_connection(("127.0.0.1", world.gateway.port))
    with none_left():
        loop = asyncio.get_running_loop()
        one.setblocking(False)
        answer = b""
        while piece := await loop.sock_recv(one, 4096):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 503 ") and b'"code":"gateway_full"' in answer
    one.close()


@pytest.mark.parametrize("short", [cannot_connect, cannot_accept])
def test_where_no_descriptor_is_left_the_gateway_says_so_itself(
    short: Callable[[World], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    """Another process, or a leak, may take those that were kept in reserve."""

    async def story(world: World) -> None:
        for _ in range(3):
            await short(world)
        assert (await world.ask()).status == 200
        ((_, watch, known),) = world.gateway.pool.watches()
        assert (known.up, watch.faults) == (True, {})
        # The engine of this test is in this process, too, and may have closed a probe unanswered.
        assert not any("probe failed: Too many" in line for line in caplog.messages)
        assert sum("too few file descriptors" in line for line in caplog.messages) == 1

    settings: dict[str, Any] = {"queue": "engine", "health_check_interval_secs": 0.02}
    play(story, good, health_failure_threshold=1000, **settings)
