"""What the engines of these tests do with a request: answer, hang, lie, stop halfway, reset."""

import asyncio
import json
import socket
import struct
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 32},
}


@dataclass
class Received:
    """A request as an engine got it."""

    head: str
    body: bytes
    writer: asyncio.StreamWriter

    @property
    def raw(self) -> bytes:
        return self.head.encode("latin-1") + self.body

    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Received], Awaitable[None]]


def chat(**fields: object) -> bytes:
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    ).encode()


def events(*, usage: bool) -> list[bytes]:
    deltas: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("", "a", "b", "c")
    ]
    if usage:
        deltas.append({"choices": [], "usage": USAGE})
    data = [json.dumps(delta, separators=(",", ":")).encode() for delta in deltas]
    return [b"data: " + one + b"\n\n" for one in [*data, b"[DONE]"]]


def begin_stream(received: Received) -> None:
    received.writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"transfer-encoding: chunked\r\nx-engine: yes\r\n\r\n"
    )


def chunk(received: Received, data: bytes) -> None:
    received.writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def good(received: Received) -> None:
    """What an engine should do."""
    request = received.json()
    if request.get("stream"):
        begin_stream(received)
        wants = bool((request.get("stream_options") or {}).get("include_usage"))
        for event in events(usage=wants):
            chunk(received, event)
            await asyncio.sleep(0)
        chunk(received, b"")
        return
    answer = {"choices": [{"message": {"content": "abc"}}], "usage": USAGE}
    whole(received, 200, json.dumps(answer).encode())


def whole(received: Received, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
    received.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


async def hang(received: Received) -> None:
    await asyncio.sleep(30)


async def hang_after_head(received: Received) -> None:
    begin_stream(received)
    await asyncio.sleep(30)


async def endless(received: Received) -> None:
    begin_stream(received)
    while True:
        chunk(received, events(usage=False)[1])
        await asyncio.sleep(0.01)


async def break_off(received: Received) -> None:
    received.writer.close()


async def reset(received: Received) -> None:
    opened = received.writer.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    received.writer.transport.abort()


async def garbage(received: Received) -> None:
    received.writer.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")


async def half_a_head(received: Received) -> None:
    received.writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
    await asyncio.sleep(0.05)
    received.writer.close()


async def half_a_body(received: Received) -> None:
    received.writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"choices":')
    await asyncio.sleep(0.05)
    received.writer.close()


async def only_a_head(received: Received) -> None:
    begin_stream(received)
    await asyncio.sleep(0.05)
    received.writer.close()


async def an_empty_stream(received: Received) -> None:
    begin_stream(received)
    chunk(received, b"")


async def broken(received: Received) -> None:
    whole(received, 500, b'{"error":{"message":"EngineDeadError"}}')


async def overloaded(received: Received) -> None:
    whole(received, 503, b'{"error":{"message":"too many requests queued"}}')


async def die_in_mid_stream(received: Received) -> None:
    begin_stream(received)
    for event in events(usage=False)[:3]:
        chunk(received, event)
    await asyncio.sleep(0.05)
    received.writer.close()
