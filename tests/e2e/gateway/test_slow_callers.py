"""Callers that send or read so slowly that they only hold a place."""

import asyncio

import pytest

from fairhit.gateway.http import client_connection as caller_module
from tests.e2e.gateway.scripts import Received, begin_stream, chat, chunk, good
from tests.e2e.gateway.world import CHAT, Connection, World, eventually, play

PATIENT_S = 20.0  # of the test itself, on a busy machine


async def drip(connection: Connection, data: bytes) -> None:
    """A byte now and then, until the gateway has had enough."""
    for byte in data:
        if connection.writer.transport.is_closing():
            return
        connection.writer.write(bytes([byte]))
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    "data",
    [
        b"GET /health HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 10_000,
        b"\r\n" + b"P" + b"OST" * 5_000,
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 9999\r\n\r\n" + b" " * 10_000,
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"1\r\n \r\n" * 5_000,
        b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n1;"
        + b"x" * 10_000,
    ],
    ids=["head", "method", "body", "chunks", "extension"],
)
def test_who_sends_a_byte_now_and_then_is_cut_off(data: bytes) -> None:
    async def story(world: World) -> None:
        connection = await world.connect()
        sending = asyncio.ensure_future(drip(connection, data))
        reply = await connection.reply()

        assert reply.status in {400, 408}
        assert await connection.closed()
        await sending
        assert (await world.ask()).status == 200
        assert len(world.received()) == 1

    play(story, good, client_timeout_secs=0.5)


def test_empty_lines_keep_no_connection_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are allowed before a request, and begin none."""
    monkeypatch.setattr(caller_module, "_IDLE_S", 0.4)

    async def story(world: World) -> None:
        connection = await world.connect()
        sending = asyncio.ensure_future(drip(connection, b"\r\n" * 10_000))
        async with asyncio.timeout(PATIENT_S):
            assert await connection.closed()
        sending.cancel()

    play(story, good, client_timeout_secs=0.5)


async def never_ends(received: Received) -> None:
    if not received.json().get("stream"):
        await good(received)
        return
    begin_stream(received)
    while True:
        chunk(received, b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % (b"x" * 50_000))
        await received.writer.drain()


def test_a_stream_without_a_reader_does_not_hold_its_engine() -> None:
    """One client's sleeping callers would otherwise fill the engine's places for half an hour."""

    async def story(world: World) -> None:
        sleeper = await world.connect()
        sleeper.writer.transport.pause_reading()
        sleeper.send(CHAT, chat(stream=True))
        await eventually(lambda: len(world.received()) == 1)
        assert (await world.ask()).status == 200
        await eventually(world.engines[0].left.is_set, within=PATIENT_S)
        await eventually(lambda: len(world.gateway.connections) == 0, within=PATIENT_S)
        sleeper.reset()

    play(story, never_ends, client_timeout_secs=0.5, request_timeout_secs=600)
