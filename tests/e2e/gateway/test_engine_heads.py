"""What of an engine's head reaches the caller, and what the gateway adds to it; byte by byte."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime

import pytest

from tests.e2e.gateway.scripts import Received, Script, chat, good
from tests.e2e.gateway.world import CHAT, Connection, World, play

DATE = b"Sun, 06 Nov 1994 08:49:37 GMT"


async def ask(connection: Connection, *, stream: bool = False) -> list[bytes]:
    """The lines of the answer's head, as they came."""
    connection.send(CHAT, chat(stream=stream))
    return (await connection.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[:-2]


def says(data: bytes) -> Script:
    async def script(received: Received) -> None:
        received.writer.write(data)

    return script


@pytest.mark.parametrize("line", [b"", b"content-length: 0\r\n", b"content-length: 5\r\n"])
@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
def test_an_answer_without_a_body_has_no_length(status: bytes, line: bytes) -> None:
    """Of 204 none may be said; that of 304 is of what it speaks of, which is not empty for that."""

    async def story(world: World) -> None:
        connection = await world.connect()
        for _ in range(3):
            head = await ask(connection)
            assert head[0].startswith(b"HTTP/1.1 " + status[:3])
            assert not [one for one in head if b"length" in one or b"encoding" in one]
        connection.send("/health")
        assert (await connection.reply()).body == b'{"status":"ok"}'
        connection.writer.close()

    play(story, says(b"HTTP/1.1 " + status + b"\r\nx-engine: yes\r\n" + line + b"\r\n"))


@pytest.mark.parametrize("named", [b"x-hop", b"keep-alive, X-Hop", b"close , x-hop ,,x-other"])
def test_headers_that_the_engine_says_are_of_its_connection_stay_here(named: bytes) -> None:
    """Also where it says so after them, and in a head that is recognised without being parsed."""
    head = (
        b"HTTP/1.1 200 OK\r\nX-Hop: 1\r\nX-More: 2\r\nconnection: %b\r\ncontent-length: 2\r\n\r\n{}"
    )

    async def story(world: World) -> None:
        connection = await world.connect()
        for _ in range(3):
            lines = b"\n".join(await ask(connection)).lower()
            assert b"x-hop" not in lines and b"connection" not in lines
            assert b"x-more: 2" in lines
            assert await connection.reader.readexactly(2) == b"{}"
        connection.writer.close()

    play(story, says(head % named))


def dates(lines: list[bytes]) -> list[bytes]:
    return [line[6:] for line in lines if line.lower().startswith(b"date: ")]


@pytest.mark.parametrize("stream", [False, True])
def test_every_answer_says_when_it_was_made(stream: bool) -> None:
    """The gateway says so where neither it nor the engine has, and once."""

    async def story(world: World) -> None:
        for path in ("/health", "/nowhere", "/metrics"):
            connection = await world.connect()
            connection.send(path)
            own = (await connection.reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
            await expect_now(own)
            connection.writer.close()
        for _ in range(3):
            connection = await world.connect()
            await expect_now(await ask(connection, stream=stream))
            connection.writer.close()

    async def expect_now(lines: list[bytes]) -> None:
        (date,) = dates(lines)
        made = parsedate_to_datetime(date.decode())
        assert abs(datetime.now(UTC) - made) < timedelta(minutes=1)
        assert date.endswith(b" GMT") and len(date) == len(DATE)

    play(story, good)


def test_the_date_of_the_engine_goes_before_the_gateways() -> None:
    head = b"HTTP/1.1 200 OK\r\nDate: %b\r\ncontent-length: 2\r\n\r\n{}" % DATE

    async def story(world: World) -> None:
        connection = await world.connect()
        for _ in range(3):
            assert dates(await ask(connection)) == [DATE]
            assert await connection.reader.readexactly(2) == b"{}"
        connection.writer.close()

    play(story, says(head))


def test_a_date_of_the_engines_connection_alone_is_replaced() -> None:
    head = b"HTTP/1.1 200 OK\r\nDate: %b\r\nconnection: date\r\ncontent-length: 2\r\n\r\n{}" % DATE

    async def story(world: World) -> None:
        connection = await world.connect()
        (date,) = dates(await ask(connection))
        assert date != DATE
        connection.writer.close()

    play(story, says(head))
