"""Prompts, answers and keys are nowhere but in requests and answers: every way a request can end is tried."""

import asyncio
import json
import logging
from pathlib import Path

import pytest

from fairhit.gateway.settings import GatewaySettings
from tests.e2e.gateway import scripts
from tests.e2e.gateway.scripts import Received, begin_stream, chat, chunk, whole
from tests.e2e.gateway.world import CHAT, World, eventually, play

MARK = "Xyzzy-8d2f"  # in every prompt, answer, key and header of these tests, and nowhere else
KEY = f"key-{MARK}"
SAID = [{"role": "user", "content": f"my secret is {MARK}"}]


async def answer_with_mark(received: Received) -> None:
    text = {"choices": [{"message": {"content": MARK}}], "usage": scripts.USAGE}
    whole(received, 200, json.dumps(text).encode())


async def refuse_with_mark(received: Received) -> None:
    whole(received, 400, b'{"error":{"message":"bad value: %b"}}' % received.body)


async def break_with_mark(received: Received) -> None:
    whole(received, 500, received.body)


async def garbage_with_mark(received: Received) -> None:
    received.writer.write(received.body + b"\r\n\r\n")


async def header_with_mark(received: Received) -> None:
    received.writer.write(b"HTTP/1.1 200 OK\r\nx: %b\0\r\n\r\n" % MARK.encode())


async def stream_and_die(received: Received) -> None:
    begin_stream(received)
    chunk(received, b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % MARK.encode())
    await asyncio.sleep(0.01)
    received.writer.close()


ENDS = (
    answer_with_mark, refuse_with_mark, break_with_mark, garbage_with_mark, header_with_mark,
    stream_and_die, scripts.half_a_body, scripts.break_off, scripts.reset, scripts.an_empty_stream,
    scripts.hang_after_head, scripts.overloaded,
)  # fmt: skip


async def by_seed(received: Received) -> None:
    await ENDS[received.json()["seed"]](received)


BAD = (
    b'{"model":"m","messages":"%b"',
    b'{"model":"m","messages":"%b"}',
    b'{"model":"m","messages":[{"role":"%b","content":5}]}',
    b'{"model":"%b","messages":[{"role":"user","content":"x"}]}',
    b'{"model":"m","messages":[{"role":"user","content":"%b"}],"vllm_xargs":' + b"[" * 2000,
    b'{"model":"m","messages":[{"role":"user","content":"%b"}],"max_tokens":"many"}',
    b"\xff%b",
)


async def in_every_way(world: World) -> None:
    """Requests that end in each way there is."""
    for seed in range(len(ENDS)):
        for stream in (False, True):
            await world.ask(
                body=chat(messages=SAID, seed=seed, stream=stream), authorization=f"Bearer {KEY}"
            )
    for body in BAD:
        await world.ask(body=body % MARK.encode(), authorization=f"Bearer {KEY}", x_note=MARK)
    await world.ask(body=chat(messages=SAID), authorization=f"Bearer wrong-{MARK}")
    await world.ask(body=chat(messages=SAID * 5000, seed=0), authorization=f"Bearer {KEY}")
    leaving = await world.connect()
    leaving.send(CHAT, chat(messages=SAID, seed=10), authorization=f"Bearer {KEY}")
    count = len(world.received())
    await eventually(lambda: len(world.received()) > count or world.engines[0].left.is_set())
    leaving.reset()
    for raw in (
        b"POST /%b HTTP/1.1\r\nhost: a\r\n\r\n",
        b"%b\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: a\r\nx: %b\0\r\n\r\n",
    ):
        broken = await world.connect()
        broken.writer.write(raw % MARK.encode())
        await broken.reply()
    world.engines[0].stop()
    world.gateway.pool.remove(world.engines[0].url)
    await world.ask(body=chat(messages=SAID), authorization=f"Bearer {KEY}")


def test_no_prompt_no_answer_and_no_key_is_written(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pages, access_log = [], tmp_path / "access.log"

    async def story(world: World) -> None:
        await in_every_way(world)
        for path in (
            "/metrics",
            "/workers",
            "/readiness",
            "/health",
            "/dashboard",
            "/dashboard/data",
            "/openapi.json",
        ):
            pages.append((await world.get(path)).body.decode())

    caplog.set_level(logging.DEBUG)
    play(
        story, by_seed, tenant_api_key=(f"alice:{KEY}",), log_level="debug",
        idle_timeout_secs=0.2, first_byte_timeout_secs=0.2, max_payload_size=100_000,
        disable_circuit_breaker=True, health_failure_threshold=1000,
        access_log=str(access_log),
    )  # fmt: skip

    requests = access_log.read_text()
    statuses = {json.loads(line)["status"] for line in requests.splitlines()}
    assert statuses >= {200, 400, 401, 404, 413, 499, 502, 503}
    written = capfd.readouterr()
    logged = [record.getMessage() + str(record.exc_info) for record in caplog.records]
    assert MARK not in "\n".join((*pages, *logged, requests, written.out, written.err))
    assert 'client="alice"' in pages[0]
    assert not [text for text in logged if "Traceback" in text or "Error" in text]


def test_settings_print_no_secret() -> None:
    made = GatewaySettings(
        tenant_api_key=(f"alice:{KEY}",), worker_api_key=KEY, admin_api_key=KEY,
        isolation_secret=MARK,
    )  # fmt: skip

    assert MARK not in repr(made) + str(made)
