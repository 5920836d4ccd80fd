"""The gateway as a process: signals and files while callers stream."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from tests.e2e.gateway.process import Process, running
from tests.e2e.gateway.scripts import Received, begin_stream, chat, chunk, events, good
from tests.e2e.gateway.world import CHAT, FakeEngine, eventually


def story(run: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(run(), 180))


async def slowly(received: Received) -> None:
    begin_stream(received)
    for event in events(usage=True):
        chunk(received, event)
        await asyncio.sleep(0.02)
    chunk(received, b"")


def test_settings_are_read_again_under_load_and_no_stream_is_dropped(tmp_path: Path) -> None:
    """
    Ten callers stream one answer after the other while the engines change twice, once by a signal and
    once by their file alone, and weights and keys with them.
    """

    async def run() -> None:
        first, second = [await FakeEngine(slowly).start() for _ in range(2)]
        done = False

        async def caller(process: Process) -> list[int]:
            statuses = []
            while not done:
                body = chat(stream=True)
                reply = await process.ask(CHAT, body, authorization="Bearer k1")
                assert reply.body.endswith(b"[DONE]\n\n")
                statuses.append(reply.status)
            return statuses

        async with running(
            tmp_path, worker_urls=[first.url], tenant_api_key=["a:k1"]
        ) as process:  # fmt: skip
            callers = [asyncio.ensure_future(caller(process)) for _ in range(10)]
            await eventually(lambda: len(first.received) > 20)
            changed = {
                "worker_urls": [second.url], "tenant_api_key": ["a:k1", "b:k2"],
                "weights": {"b": 2}, "max_tree_size": 99,
            }  # fmt: skip
            assert (await process.ask("/v1/models", authorization="Bearer k2")).status == 401
            process.config.write_text(json.dumps(changed))
            process.signal(signal.SIGHUP)
            await eventually(lambda: "changed: tenant-api-key" in process.said.replace("_", "-"))
            await eventually(lambda: f"{first.url} is removed" in process.said)
            assert (await process.ask("/v1/models", authorization="Bearer k2")).status == 200
            so_far = len(first.received)

            replacement = tmp_path / "next.yaml"
            replacement.write_text(json.dumps({**changed, "worker_urls": [first.url]}))
            replacement.replace(process.config)  # no signal
            await eventually(lambda: f"{second.url} is removed" in process.said)
            await eventually(lambda: len(first.received) > so_far + 10)
            process.config.write_text("worker_urls: [half")
            await eventually(lambda: "not valid YAML" in process.said)
            done = True
            assert {status for one in callers for status in await one} == {200}
            kept = [line for line in process.said.splitlines() if "max-tree-size" in line]
            assert len(kept) == 2
            assert "cannot change at run time" in kept[0]

        first.stop()
        second.stop()

    story(run)


def test_sigterm_says_so_serves_on_for_a_while_finishes_and_ends_the_rest_with_an_error(
    tmp_path: Path,
) -> None:
    release = asyncio.Event()

    async def held(received: Received) -> None:
        if b"quick" in received.body:
            await good(received)
            return
        begin_stream(received)
        chunk(received, events(usage=False)[1])
        if b"never" in received.body:
            await asyncio.sleep(30)
        await release.wait()
        for event in events(usage=False)[2:]:
            chunk(received, event)
        chunk(received, b"")

    async def run() -> None:
        engine = await FakeEngine(held).start()
        async with running(
            tmp_path, worker_urls=[engine.url], drain_delay_secs=2, shutdown_timeout_secs=2
        ) as process:
            finishing, cut = [await process.connect() for _ in range(2)]
            finishing.send(CHAT, chat(stream=True))
            cut.send(CHAT, chat(stream=True, user="never"))
            await eventually(lambda: len(engine.received) == 2)
            process.signal(signal.SIGTERM)
            while (await process.ask("/readiness")).status == 200:
                await asyncio.sleep(0.01)

            assert (await process.ask("/readiness")).status == 503
            assert (await process.ask("/health")).status == 200
            assert (await process.ask(CHAT, chat(user="quick"))).status == 200
            while await process.listens():
                await asyncio.sleep(0.01)
            release.set()
            assert (await finishing.reply()).body.endswith(b"[DONE]\n\n")
            last = (await cut.reply()).body.removesuffix(b"\n\n").split(b"\n\n")[-1]
            error = json.loads(last.removeprefix(b"data: "))["error"]
            assert error["message"] == "the gateway is shutting down"
            assert process.child is not None
            assert await process.child.wait() == 0
        engine.stop()

    story(run)


def test_a_gateway_that_cannot_start_is_one_line_and_exit_status_2(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    config.write_text("\nworker-url: [http://a:1]\n")

    async def run() -> None:
        child = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "fairhit", "gateway", "--config", str(config),
            stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await child.communicate()
        assert child.returncode == 2
        assert said.decode() == (
            f"fairhit: error: {config}, line 2: worker-url: no such setting; "
            "did you mean worker-urls?\n"
        )

    story(run)
