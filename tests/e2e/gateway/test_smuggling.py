"""What smugglers send: never two requests at an engine for one at the front, and no answer for another.

Every row of the corpus goes over a real socket, to a gateway before an engine that records each byte.
"""

import asyncio
import json
from collections.abc import Iterable

import pytest

from tests.e2e.gateway.scripts import Received, whole
from tests.e2e.gateway.world import World, play
from tests.wire.requests import BODY, LENGTH, PATH, ROWS, Row, request

GOOD = request(LENGTH)


def numbered(data: bytes, number: int) -> bytes:
    return data.replace(b"@@@", b"%03d" % number)


async def echo(received: Received) -> None:
    """Says whose request it was."""
    whole(received, 200, json.dumps({"said": received.json()["prompt"]}).encode())


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Status and body; 0 once the connection is closed."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        while head.startswith(b"HTTP/1.1 100 "):
            head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return 0, b""
    length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
    return int(head.split()[1]), await reader.readexactly(length)


async def send(writer: asyncio.StreamWriter, pieces: Iterable[bytes]) -> None:
    for piece in pieces:
        if writer.transport.is_closing():
            return  # it has been refused
        writer.write(piece)
        await asyncio.sleep(0)


async def judged(world: World, row: Row, number: int, *, cut: bool, warm: bool) -> list[str]:
    """What is wrong with the answers to one row. `cut`: a byte at a time; `warm`: after a good one."""
    reader, writer = await asyncio.open_connection("127.0.0.1", world.gateway.port)
    wrong = []
    try:
        async with asyncio.timeout(60):
            if warm:
                await send(writer, [numbered(GOOD, 999)])
                assert await read_answer(reader) == (200, b'{"said": "999"}')
            data = numbered(row.data, number)
            pieces = [data[i : i + 1] for i in range(len(data))] if cut else [data]
            sending = asyncio.ensure_future(send(writer, pieces))  # an answer may come meanwhile
            if not row.statuses:
                await sending
                early = asyncio.ensure_future(read_answer(reader))
                await world.get("/health")  # once this is answered, what was sent before is read
                if early.done():
                    wrong.append(f"{row.name}: expected nothing, got {early.result()}")
                early.cancel()
            for status in row.statuses:
                came, body = await read_answer(reader)
                right = status != 200 or not row.forwarded or body == b'{"said": "%03d"}' % number
                if came != status or not right:
                    wrong.append(f"{row.name}: expected {status}, got {came} {body!r}")
            await sending
            if row.stays:
                await send(writer, [b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"])
                if await read_answer(reader) != (200, b'{"status":"ok"}'):
                    wrong.append(f"{row.name}: the connection does not go on")
            elif row.statuses and (extra := await read_answer(reader))[0]:
                wrong.append(f"{row.name}: the connection is not closed, but {extra}")
    except TimeoutError:
        wrong.append(f"{row.name}: no answer")
    finally:
        writer.close()
    return wrong


def at_engine(world: World, row: Row, number: int) -> list[str]:
    """What is wrong with what the engine got of one row."""
    mark = b'"%03d"' % number
    got = [one for one in world.received() if mark in one.body or mark in one.head.encode()]
    address = world.engines[0].url.removeprefix("http://").encode()
    head = b"POST %b%b HTTP/1.1\r\nhost: %b\r\n%bcontent-length: %d\r\n\r\n" % (
        PATH, row.query, address, row.lines, len(BODY)
    )  # fmt: skip
    wrong = [] if len(got) == row.forwarded else [f"{row.name}: {len(got)} at the engine"]
    for one in got:
        if one.raw != head + numbered(BODY, number):
            wrong.append(f"{row.name}: the engine got {one.raw!r}")
    return wrong


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("warm", [False, True])
def test_one_request_at_the_front_is_one_at_the_engine_or_none(cut: bool, warm: bool) -> None:
    async def story(world: World) -> None:
        wrong: list[str] = []
        for at in range(0, len(ROWS), 32):
            rows = list(enumerate(ROWS[at : at + 32], start=at))
            found = await asyncio.gather(
                *(judged(world, row, number, cut=cut, warm=warm) for number, row in rows)
            )
            wrong += [one for each in found for one in each]
        for number, row in enumerate(ROWS):
            wrong += at_engine(world, row, number)
        warming = len(ROWS) if warm else 0
        assert wrong == []
        assert len(world.received()) == warming + sum(row.forwarded for row in ROWS)

    play(story, echo, identity_field="none", usage_field="none")
