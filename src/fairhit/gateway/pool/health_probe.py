"""A GET request from the gateway itself to an engine."""

import asyncio

from fairhit.errors import EngineFailed
from fairhit.gateway.http.engine_connection import EngineConnection, EngineConnections
from fairhit.gateway.http.response_head import ResponseHead

# Longer bodies are cut: a list of models is a few kilobytes, metrics are some hundred.
_MAX_BODY = 4 << 20


async def get(
    engine: EngineConnections, path: bytes, *, timeout_s: float, reuses: bool = False
) -> tuple[int, bytes]:
    """Status and body of `GET path`. Raises OSError or EngineFailed.

    With `reuses` the request goes over a kept connection of the engine's pool, which is kept afterwards.
    """
    close = b"" if reuses else b"connection: close\r\n"
    request = b"GET %b%b HTTP/1.1\r\n%b%b\r\n" % (engine.path, path, engine.fixed_lines, close)
    async with asyncio.timeout(timeout_s):
        kept = engine.take() if reuses else None
        answer = await _Response().of(kept, request, last=False) if kept is not None else None
        if answer is None:
            answer = await _Response().of(await engine.connect(), request, last=not reuses)
        assert answer is not None, "a fresh connection is not stale"
        return answer


class _Response:
    """Listener of an engine connection that resolves a future with status and body."""

    def __init__(self) -> None:
        self._status = 0
        self._pieces: list[bytes] = []
        self._length = 0
        # None: the engine had probably closed the kept connection before the request arrived.
        self._answer: asyncio.Future[tuple[int, bytes] | None] = (
            asyncio.get_running_loop().create_future()
        )

    async def of(
        self, connection: EngineConnection, request: bytes, *, last: bool
    ) -> tuple[int, bytes] | None:
        """Send `request` and wait for its response."""
        connection.send(self, [request], last=last)
        try:
            return await self._answer
        finally:
            connection.cancel(self)

    def on_head(self, head: ResponseHead) -> None:
        self._status = head.status

    def on_data(self, data: bytes) -> None:
        self._length += len(data)
        if self._length <= _MAX_BODY:
            self._pieces.append(data)

    def on_end(self) -> None:
        if not self._answer.done():
            self._answer.set_result((self._status, b"".join(self._pieces)))

    def on_lost(self, *, stale: bool) -> None:
        if self._answer.done():
            return
        if stale:
            self._answer.set_result(None)
        else:
            self._answer.set_exception(EngineFailed("the engine broke the connection"))
