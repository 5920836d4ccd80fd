"""The last answer of a connection, over a real socket: it arrives whatever its caller still sends."""

import asyncio
import socket

import pytest

from tests.e2e.gateway.scripts import chat, good
from tests.e2e.gateway.world import CHAT, World, eventually, play

LATE = b"late" * 50_000


async def read_all(one: socket.socket) -> bytes:
    """All that comes until the end; a reset raises ConnectionResetError."""
    loop, pieces = asyncio.get_running_loop(), []
    while piece := await loop.sock_recv(one, 1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


async def connect(world: World) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", world.gateway.port))
    return one


@pytest.mark.parametrize("ends", ["connection: close", "HTTP/1.0"])
def test_bytes_after_the_last_request_do_not_cost_its_answer(ends: str) -> None:
    """A connection with bytes unread that closes is reset, and what its caller has yet to read is lost."""

    async def story(world: World) -> None:
        loop, body = asyncio.get_running_loop(), chat()
        one = await connect(world)
        version, line = ("1.0", "x: y") if ends == "HTTP/1.0" else ("1.1", ends)
        head = f"POST {CHAT} HTTP/{version}\r\nhost: a\r\n{line}\r\ncontent-length: {len(body)}\r\n\r\n"
        await loop.sock_sendall(one, head.encode() + body)
        await eventually(lambda: bool(world.received()) and not world.gateway.exchanges)
        for at in range(0, len(LATE), 50_000):
            await loop.sock_sendall(one, LATE[at : at + 50_000])
            await asyncio.sleep(0.01)
        answer = await read_all(one)
        one.close()

        assert answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"}")
        await eventually(lambda: not len(world.gateway.connections))

    play(story, good)


@pytest.mark.parametrize("key", ["k1", "wrong"])
def test_who_reads_only_after_it_has_sent_all_reads_why_that_was_refused(key: str) -> None:
    """Most clients send 32 MB in one go, and look for an answer then."""

    async def story(world: World) -> None:
        loop = asyncio.get_running_loop()
        one = await connect(world)
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n"
        await loop.sock_sendall(one, f"{head}content-length: {32 << 20}\r\n\r\n".encode())
        for _ in range(32):
            await loop.sock_sendall(one, b"x" * (1 << 20))
        answer = await read_all(one)
        one.close()

        assert answer.startswith(b"HTTP/1.1 413 " if key == "k1" else b"HTTP/1.1 401 ")

    limit = 1000 if key == "k1" else 64 << 20
    play(story, good, tenant_api_key=("alice:k1",), max_payload_size=limit)
