"""One look at an engine: a GET request, and what the list of its models says."""

import asyncio

import orjson

from fairlead.errors import EngineFailed
from fairlead.gateway.first_lines import ResponseHead
from fairlead.gateway.upstream import Engine, EngineConnection

# A list of models is a few kilobytes.
_MAX_BODY = 4 << 20

Model = dict[str, object]


class Probe:
    """One GET request to an engine, as a listener that fills a future."""

    def __init__(self) -> None:
        self._status = 0
        self._pieces: list[bytes] = []
        self._length = 0
        self._answer: asyncio.Future[tuple[int, bytes] | None]

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

    async def get(
        self, engine: Engine, path: bytes, *, timeout_s: float, keeps: bool = False
    ) -> tuple[int, bytes]:
        """Status and body; `keeps`: over a connection that others used and will. Raises OSError or
        EngineFailed.
        """
        close = b"" if keeps else b"connection: close\r\n"
        head = b"GET %b%b HTTP/1.1\r\n%b%b\r\n"
        filled = head % (engine.path, path, engine.fixed_lines, close)
        async with asyncio.timeout(timeout_s):
            used = engine.take() if keeps else None
            answer = await self._ask(used, filled, last=False) if used is not None else None
            if answer is None:
                answer = await self._ask(await engine.connect(), filled, last=not keeps)
            assert answer is not None, "a fresh connection is not stale"
            return answer

    async def _ask(
        self, connection: EngineConnection, request: bytes, *, last: bool
    ) -> tuple[int, bytes] | None:
        """None: most likely the engine had closed the connection while it was idle."""
        self._answer = asyncio.get_running_loop().create_future()
        connection.send(self, [request], last=last)
        try:
            return await self._answer
        finally:
            connection.cancel(self)


def read_models(answer: tuple[int, bytes]) -> tuple[Model, ...]:
    """The entries that have a name; an engine that lists nothing sensible lists nothing."""
    status, body = answer
    if status != 200:
        return ()
    try:
        listed = orjson.loads(body)["data"]
        orjson.dumps(listed)  # reads deeper nesting than it writes, and we pass the list on
    except (orjson.JSONDecodeError, KeyError, TypeError):
        return ()
    entries = listed if isinstance(listed, list) else []
    return tuple(
        entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get("id"), str)
    )
