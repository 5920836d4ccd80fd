"""`fairhit gateway --processes N`: one port, one account, one operator; processes that die are replaced."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import psutil
import uvloop

from fairhit.local.engine_process import free_ports
from tests.e2e.gateway.process import Process
from tests.e2e.gateway.scripts import chat, good
from tests.e2e.gateway.world import CHAT, TIMEOUT_S, FakeEngine, eventually
from tests.e2e.sharing.engine import Connection, SlotEngine, keep_asking

CALLERS = 24  # of each client: more than an engine and its queue hold


def story(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(asyncio.wait_for(run(), 240))


@contextlib.asynccontextmanager
async def two_processes(
    folder: Path,
    environment: dict[str, str] | None = None,
    *,
    lingering: bool = False,
    **settings: object,
) -> AsyncIterator[Process]:
    """They serve; afterwards all of them are gone."""
    port, metrics, _ = free_ports(3)
    if lingering:
        leave_lingering(port)
    config = folder / "gateway.json"
    config.write_text(
        json.dumps(
            {"processes": 2, "shutdown_timeout_secs": 1, "prometheus_port": metrics, **settings}
        )
    )
    process = Process(config, port, **environment or {})
    await process.start()
    await process.says("2 processes serve")
    children = pids(process)
    try:
        yield process
    finally:
        process.signal(signal.SIGTERM)
        await eventually(process.reading.done)
        assert not any(psutil.pid_exists(pid) for pid in children), process.said


def pids(process: Process) -> list[int]:
    return [child.pid for child in psutil.Process(process.pid).children()]


async def serving(process: Process, count: int) -> set[int]:
    """The processes that answered, over so many connections."""
    seen = set()
    for _ in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", process.port)
        seen |= served_by(process, writer)
        writer.close()
    return seen


def served_by(process: Process, caller: asyncio.StreamWriter) -> set[int]:
    """Process id that has accepted the connection; empty before."""
    ours, found = caller.get_extra_info("sockname"), set()
    for pid in pids(process):
        with contextlib.suppress(psutil.Error):
            if any(one.raddr == ours for one in psutil.Process(pid).net_connections("tcp")):
                found.add(pid)
    return found


async def connections(process: Process, pid: int, count: int) -> list[Connection]:
    """So many that the system has given to that process."""
    kept: list[Connection] = []
    while len(kept) < count:
        reader, writer = await asyncio.open_connection("127.0.0.1", process.port)
        await eventually(lambda writer=writer: bool(served_by(process, writer)))
        if served_by(process, writer) == {pid}:
            kept.append((reader, writer))
        else:
            writer.close()
    return kept


async def metrics_at(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
    try:
        return await reader.read()
    finally:
        writer.close()


def leave_lingering(port: int) -> None:
    """A connection at `port` that its server has closed: the system remembers it for a minute."""
    address = "127.0.0.1", port
    with socket.create_server(address) as server, socket.create_connection(address) as caller:
        server.accept()[0].close()
        assert caller.recv(1) == b""


def test_connections_of_the_gateway_before_are_no_reason_not_to_start(tmp_path: Path) -> None:
    async def run() -> None:
        engine = await FakeEngine(good).start()
        async with two_processes(tmp_path, lingering=True, worker_urls=[engine.url]) as process:
            assert (await process.ask("/health")).status == 200
        engine.stop()

    story(run)


def test_they_share_a_port_and_what_an_operator_changes(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = [await FakeEngine(good).start() for _ in range(2)]
        async with two_processes(tmp_path, worker_urls=[first.url]) as process:
            assert len(await serving(process, 40)) == 2
            body = json.dumps({"url": second.url}).encode()
            assert (await process.ask("/workers", body)).status == 201
            await process.says(f"{second.url} is up", times=2)
            for _ in range(20):  # whichever answers
                listed = json.loads((await process.ask("/workers")).body)["workers"]
                assert {worker["url"] for worker in listed} == {first.url, second.url}
            body = b'{"scheduler":"fcfs"}'
            assert (await process.ask("/scheduler", body)).status == 200
            await process.says("scheduler of the gateway's queue is now fcfs", times=2)
            for _ in range(20):
                assert json.loads((await process.ask("/scheduler")).body)["scheduler"] == "fcfs"

    story(run)


def test_a_child_that_dies_is_replaced_and_gets_earlier_changes(tmp_path: Path) -> None:
    async def run() -> None:
        engine, more = [await FakeEngine(good).start() for _ in range(2)]
        async with two_processes(tmp_path, worker_urls=[engine.url]) as process:
            body = json.dumps({"url": more.url}).encode()
            assert (await process.ask("/workers", body)).status == 201
            await process.says(f"{more.url} is up", times=2)
            old = pids(process)
            os.kill(old[0], signal.SIGKILL)
            await eventually(lambda: len(pids(process)) == 2 and old[0] not in pids(process))
            await process.says(f"{more.url} is up", times=3)
            for _ in range(20):
                reply = await process.ask("/workers")
                assert len(json.loads(reply.body)["workers"]) == 2

    story(run)


def test_one_that_is_replaced_does_not_hear_what_the_settings_have_undone(tmp_path: Path) -> None:
    async def run() -> None:
        engine, more = [await FakeEngine(good).start() for _ in range(2)]
        both = [engine.url, more.url]
        async with two_processes(tmp_path, worker_urls=both) as process:
            body = json.dumps({"url": more.url}).encode()
            assert (await process.ask("/workers/drain", body)).status == 202
            await eventually(lambda: process.said.count("is removed") == 2)
            settings = json.loads(process.config.read_text())
            for count, urls in ((2, both[:1]), (4, both)):
                process.config.write_text(json.dumps({**settings, "worker_urls": urls}))
                process.signal(signal.SIGHUP)
                await eventually(lambda: process.said.count("settings are reloaded") == count)  # noqa: B023
            await process.says(f"{more.url} is up", times=4)
            os.kill(pids(process)[0], signal.SIGKILL)
            await process.says(f"{more.url} is up", times=5)
            for _ in range(20):
                reply = await process.ask("/workers")
                assert len(json.loads(reply.body)["workers"]) == 2

    story(run)


def test_the_account_of_two_processes_keeps_four_to_one(tmp_path: Path) -> None:
    """Client a uses one process and client b the other; metrics are per process."""

    async def run() -> None:
        engine = await SlotEngine().start()
        async with two_processes(
            tmp_path, worker_urls=[engine.url], trust_tenant_header=True, queue="gateway",
            weights={"a": 4, "b": 1}, quantum=200, share_interval_secs=0.05,
        ) as process:  # fmt: skip
            asking = [
                asyncio.create_task(keep_asking(connection, client, number))
                for client, pid in zip("ab", pids(process), strict=True)
                for number, connection in enumerate(await connections(process, pid, CALLERS))
            ]
            metrics = int(re.findall(r'"prometheus_port": (\d+)', process.config.read_text())[0])
            for port in (metrics, metrics + 1):
                async with asyncio.timeout(TIMEOUT_S):
                    while b"\nfairhit_sharing_gateways 2.0\n" not in await metrics_at(port):
                        await asyncio.sleep(0.02)
            await engine.serve_requests(100)
            assert 3 < await engine.serve_requests(200) < 5
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)
        engine.stop()

    story(run)


def test_settings_are_read_again_by_all_of_them(tmp_path: Path) -> None:
    async def run() -> None:
        first, second = [await FakeEngine(good).start() for _ in range(2)]
        async with two_processes(tmp_path, worker_urls=[first.url]) as process:
            settings = json.loads(process.config.read_text())
            process.config.write_text(json.dumps({**settings, "worker_urls": [second.url]}))
            process.signal(signal.SIGHUP)
            await eventually(lambda: process.said.count("settings are reloaded") == 2)
            await eventually(lambda: process.said.count("is removed") == 2)
            for _ in range(10):
                assert (await process.ask(CHAT, chat())).status == 200
            assert len(second.received) == 10
            assert "cannot change at run time" not in process.said

    story(run)


def test_a_port_that_is_taken_and_a_start_that_fails_end_all_of_it(tmp_path: Path) -> None:
    async def run() -> None:
        engine = await FakeEngine(good).start()
        taken = int(engine.url.rpartition(":")[2])
        for port, more, said in (
            (taken, [], "--port: cannot listen on"),
            (0, ["--prometheus-port", str(taken)], "--prometheus-port: cannot listen on"),
            (0, ["--keys-file", str(tmp_path / "none")], "none: cannot be read"),  # by any of them
        ):
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "fairhit", "gateway", "--processes", "2", "--port", str(port),
                "--worker-urls", engine.url, *more, stderr=asyncio.subprocess.PIPE,
            )  # fmt: skip
            _, errors = await process.communicate()
            assert process.returncode == 2
            assert said in errors.decode()
            assert (errors.count(b"error: "), errors.count(b"ERROR")) == (1, 0)
            assert "Traceback" not in errors.decode()

    story(run)


def test_one_that_cannot_be_replaced_says_why_and_is_once_it_can(tmp_path: Path) -> None:
    async def run() -> None:
        engine, keys = await FakeEngine(good).start(), tmp_path / "keys"
        keys.write_text("a:k\n")
        async with two_processes(
            tmp_path, worker_urls=[engine.url], keys_file=str(keys)
        ) as process:  # fmt: skip
            keys.rename(tmp_path / "away")
            os.kill(pids(process)[0], signal.SIGKILL)
            await process.says(f"ended: {keys}: cannot be read: No such file or directory; another")
            (tmp_path / "away").rename(keys)
            await process.says("listening on", times=3)

    story(run)


def test_for_systemd_the_parent_is_the_gateway(tmp_path: Path) -> None:
    """Ready once, when all serve; one that hangs is killed and replaced, and the service stays alive."""

    async def run() -> None:
        engine = await FakeEngine(good).start()
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(str(tmp_path / "notify"))
            manager.setblocking(False)
            notified: list[bytes] = []
            asyncio.get_running_loop().add_reader(
                manager, lambda: notified.append(manager.recv(100))
            )
            manages = {"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "2000000"}
            async with two_processes(tmp_path, manages, worker_urls=[engine.url]) as process:
                await eventually(lambda: notified.count(b"READY=1") == 1)
                hung = pids(process)[0]
                os.kill(hung, signal.SIGSTOP)
                await eventually(lambda: hung not in pids(process))
                await eventually(lambda: len(pids(process)) == 2)
                assert "does not respond" in process.said
                assert notified.count(b"WATCHDOG=1") >= 3
                assert b"STOPPING=1" not in notified
            assert notified[-1] == b"STOPPING=1" and notified.count(b"READY=1") == 1
            asyncio.get_running_loop().remove_reader(manager)

    story(run)
