"""An engine's connection without a socket, and a listener that notes what its responses contain."""

import asyncio
import re

from fairhit.gateway.http.engine_connection import EngineConnection, EngineConnections
from fairhit.gateway.http.response_head import ResponseHead

LINE = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [^\r\n\0]*\r\n")


class Wire(asyncio.Transport):
    """A transport that goes nowhere."""

    half_closes = True  # as TCP, and not TLS

    def __init__(self) -> None:
        super().__init__()
        self.closed = self.paused = self.ended = False

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False

    def write(self, data: object) -> None:
        """Discard the data."""

    def can_write_eof(self) -> bool:
        return self.half_closes

    def write_eof(self) -> None:
        self.ended = True

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


class RecordingListener:
    """Records what is read from one engine, which is sent a request whenever a response has ended."""

    def __init__(self, engine: EngineConnections | None = None) -> None:
        self.received: list[object] = []
        self.connections = 0  # that were opened
        self.engine = engine or EngineConnections("http://127.0.0.1:1")
        self._ask()

    def _ask(self) -> None:
        connection = self.engine.take()
        if connection is None:
            self.connections += 1
            connection = EngineConnection(self.engine)
            connection.connection_made(Wire())
        self.connection = connection
        connection.send(self, [b"POST"])

    def data_received(self, data: bytes) -> None:
        """The engine sends `data`; after a lost response it is ignored."""
        self.connection.data_received(data)

    def leave(self) -> None:
        """The engine closes the connection without an error."""
        self.connection.connection_lost(None)

    # -- from the connection

    def on_head(self, head: ResponseHead) -> None:
        lines = b"".join(head.lines)
        assert b"".join(LINE.findall(lines)) == lines, lines
        assert head.status >= 100
        self.received += [
            (head.status, lines, head.content_type, head.framed, head.keep_alive),
            b"",
        ]

    def on_data(self, data: bytes) -> None:
        self.received[-1] += data  # type: ignore[operator]

    def on_end(self) -> None:
        self.received.append("end")
        self._ask()

    def on_lost(self, *, stale: bool) -> None:
        self.received.append("lost")
