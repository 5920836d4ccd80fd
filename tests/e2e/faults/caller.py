"""A caller who sends one request and can tell whether what came back is the whole of its own answer."""

import asyncio
import json
import socket
import struct
from dataclasses import dataclass
from typing import Any

from tests.e2e.faults.census import Fate, Result, error_result
from tests.e2e.faults.engine import MARK
from tests.e2e.gateway.world import CHAT, Connection

HOST = "127.0.0.1"


class Strange(Exception):
    """What came is no answer to what was asked."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """One request. `number` is its own: the engine says it again in every piece of its answer."""

    number: int
    client: str = "someone"
    text: str = ""
    max_tokens: int = 4
    stream: bool = False
    leaves_after_s: float | None = None
    timeout_s: float = 30.0
    instead: bytes | None = None  # of a body that asks for an answer

    def body(self) -> bytes:
        if self.instead is not None:
            return self.instead
        prompt = f"{self.text}{MARK}{self.number}{MARK}"
        return json.dumps(
            {
                "model": "m",
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": self.max_tokens,
                "stream": self.stream,
                "user": self.client,
            }
        ).encode()


async def fate_of(ask: Ask, port: int, *, host: str = HOST) -> Result:
    """Send it, and wait for its end; never raises for what a server does."""
    leaves = ask.leaves_after_s is not None
    try:
        async with asyncio.timeout(ask.leaves_after_s if leaves else ask.timeout_s):
            return await _exchange(ask, host, port)
    except TimeoutError:
        return Result(Fate.LEFT if leaves else Fate.SILENT)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        return Result(Fate.CUT, seen=repr(error))
    except (Strange, ValueError, KeyError) as error:
        return Result(Fate.WRONG, seen=repr(error))


async def _exchange(ask: Ask, host: str, port: int) -> Result:
    try:
        connection = Connection(*await asyncio.open_connection(host, port))
    except OSError:
        return Result(Fate.UNREACHED)
    leave_no_trace(connection)
    try:
        connection.send(CHAT, ask.body(), content_type="application/json")
        head = (await connection.reader.readuntil(b"\r\n\r\n")).decode()
        status = int(head.split()[1])
        if "chunked" in head:
            return await _streamed(ask, connection, status)
        length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
        body = json.loads(await connection.reader.readexactly(length))
        if status != 200:
            assert_is_error(body)
            return error_result(status)
        text = body["choices"][0]["message"]["content"]
        if text != _expected(ask):
            raise Strange(text[:100])
        return Result(Fate.ANSWERED, status)
    finally:
        connection.reset()


async def _streamed(ask: Ask, connection: Connection, status: int) -> Result:
    """Events are not split over chunks by more than the gateway splits them: join, then look."""
    data = b"".join([piece async for piece in connection.chunks()])
    *events, end = data.split(b"\n\n")
    if end or not events:
        raise Strange(data[-100:])
    text = ""
    for event in events[:-1]:
        choices = json.loads(event.removeprefix(b"data: "))["choices"]
        text += "".join(choice["delta"].get("content") or "" for choice in choices)
    if events[-1] == b"data: [DONE]":
        if text != _expected(ask):
            raise Strange(text[:100])
        return Result(Fate.ANSWERED, status)
    assert_is_error(json.loads(events[-1].removeprefix(b"data: ")))
    if not _expected(ask).startswith(text):
        raise Strange(text[:100])
    return Result(Fate.FAILED, status)


def _expected(ask: Ask) -> str:
    return f" {ask.number}" * ask.max_tokens


def assert_is_error(document: Any) -> None:
    """An error that a caller can read. Raises Strange."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict) or not error.get("message"):
        raise Strange(str(document)[:100])


def leave_no_trace(connection: Connection) -> None:
    """Thousands of closed connections would hold on to their ports: these are reset."""
    opened = connection.writer.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
