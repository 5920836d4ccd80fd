"""Connections to engines: who may close them, and which are used again."""

import asyncio

from tests.wire.recording import Wire

from fairhit.gateway.http.engine_connection import EngineConnection, EngineConnections
from fairhit.gateway.http.response_head import ResponseHead

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


class Asker:
    """Receives an answer."""

    def __init__(self) -> None:
        self.received: list[object] = []

    def on_head(self, head: ResponseHead) -> None:
        self.received.append(head.status)

    def on_data(self, data: bytes) -> None:
        self.received.append(data)

    def on_end(self) -> None:
        self.received.append("end")

    def on_lost(self, *, stale: bool) -> None:
        self.received.append(("lost", stale))


def connected(engine: EngineConnections) -> tuple[EngineConnection, Wire]:
    connection, wire = EngineConnection(engine), Wire()
    connection.connection_made(wire)
    return connection, wire


def test_who_has_had_its_answer_cannot_close_what_another_uses() -> None:
    """A probe once closed the connection that a request had just been given."""

    async def story() -> None:
        engine = EngineConnections("http://127.0.0.1:1")
        connection, wire = connected(engine)
        first, second = Asker(), Asker()
        connection.send(first, [b"GET"])
        connection.data_received(ANSWER)
        assert engine.take() is connection
        connection.send(second, [b"GET"])
        connection.cancel(first)
        connection.data_received(ANSWER)

        assert first.received == second.received == [200, b"hi", "end"]
        assert not wire.closed

    asyncio.run(story())


def test_a_connection_idle_for_too_long_is_not_used() -> None:
    """The engine closes it after five seconds, perhaps while a request is on its way."""

    async def story() -> None:
        engine = EngineConnections("http://127.0.0.1:1")
        connection, wire = connected(engine)
        engine.give_back(connection)
        connection.idle_since -= 4.5

        assert engine.take() is None
        assert wire.closed

    asyncio.run(story())


def test_an_answer_cut_anywhere_is_heard_the_same() -> None:
    async def story() -> None:
        for cut in range(len(ANSWER)):
            connection, _ = connected(EngineConnections("http://127.0.0.1:1"))
            asker = Asker()
            connection.send(asker, [b"GET"])
            connection.data_received(b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER[:cut])
            connection.data_received(ANSWER[cut:])
            body = [received for received in asker.received if isinstance(received, bytes)]
            assert (asker.received[0], b"".join(body), asker.received[-1]) == (200, b"hi", "end")

    asyncio.run(story())


def test_bytes_without_a_request_end_the_connection() -> None:
    async def story() -> None:
        engine = EngineConnections("http://127.0.0.1:1")
        connection, wire = connected(engine)
        engine.give_back(connection)
        connection.data_received(ANSWER)

        assert wire.closed
        assert engine.take() is None

    asyncio.run(story())


def test_a_connection_paused_by_a_slow_caller_reads_again_for_the_next() -> None:
    """The last piece of an answer may fill the caller's buffer; the next request must not hang."""

    class SlowCaller(Asker):
        def on_data(self, data: bytes) -> None:
            super().on_data(data)
            connection.pause()

    async def story() -> None:
        connection.send(SlowCaller(), [b"GET"])
        connection.data_received(ANSWER[:-1])
        assert wire.paused
        connection.data_received(ANSWER[-1:])
        assert not wire.paused

    async def connect() -> tuple[EngineConnection, Wire]:
        return connected(EngineConnections("http://127.0.0.1:1"))

    connection, wire = asyncio.run(connect())
    asyncio.run(story())


def test_a_connection_that_comes_back_to_an_engine_that_is_gone_is_closed() -> None:
    """No request would take it again, nor close it."""

    async def story() -> None:
        engine = EngineConnections("http://127.0.0.1:1")
        connection, wire = connected(engine)
        asker = Asker()
        connection.send(asker, [b"GET"])
        engine.close()
        assert not wire.closed
        connection.data_received(ANSWER)

        assert asker.received == [200, b"hi", "end"]
        assert wire.closed

    asyncio.run(story())
