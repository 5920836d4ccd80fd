"""A line between a subscriber and a publisher that can be cut, mended, or made to lose a message."""

import asyncio
from dataclasses import dataclass, field

from fairhit.local.engine_process import HOST


@dataclass
class Link:
    """Forwards connections to `target`; `drops` messages of the publisher's are swallowed next."""

    port: int
    target: int
    drops: int = 0
    _server: asyncio.Server | None = None
    _writers: list[asyncio.StreamWriter] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @classmethod
    async def open(cls, port: int, target: int) -> "Link":
        link = cls(port, target)
        await link.mend()
        return link

    async def mend(self) -> None:
        self._server = await asyncio.start_server(self._accept, HOST, self.port)

    def cut(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def close(self) -> None:
        self.cut()
        for task in self._tasks:
            task.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs_reader, theirs = await asyncio.open_connection(HOST, self.target)
        self._writers += [writer, theirs]
        for ours, to, loses in ((reader, theirs, False), (theirs_reader, writer, True)):
            task = asyncio.get_running_loop().create_task(self._pump(ours, to, loses=loses))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, loses: bool
    ) -> None:
        """ZMTP frames: flags, a length of one byte or eight, and the rest; a message ends with a last one.

        The handshake of 64 bytes comes first, in pieces that the other side waits for.
        """
        try:
            for _ in range(64):
                writer.write(await reader.readexactly(1))
            message = b""
            while True:
                flags = await reader.readexactly(1)
                size = await reader.readexactly(8 if flags[0] & 2 else 1)
                body = await reader.readexactly(int.from_bytes(size, "big"))
                message += flags + size + body
                is_last, is_command = not flags[0] & 1, flags[0] & 4
                if not is_last:
                    continue
                if loses and self.drops and not is_command:
                    self.drops -= 1
                else:
                    writer.write(message)
                message = b""
        except (OSError, asyncio.IncompleteReadError):
            writer.transport.abort()
