"""`fairhit gateway` as a process of its own, and what it has said."""

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from fairhit.local.engine_process import free_ports
from tests.e2e.gateway.world import Connection, eventually


class Process:
    """`fairhit gateway` with a settings file, and with more in its environment."""

    def __init__(
        self,
        config: Path,
        port: int,
        *,
        descriptors: int | None = None,
        python: str = sys.executable,
        **environment: str,
    ) -> None:
        self.config, self.port, self.descriptors = config, port, descriptors
        self.python = python
        self.environment = environment
        self.said = ""
        self.child: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("FAIRHIT_")
        }
        limited = ("sh", "-c", f'ulimit -n {self.descriptors}; exec "$@"', "sh")
        self.child = await asyncio.create_subprocess_exec(
            *(limited if self.descriptors else ()), self.python, "-m", "fairhit", "gateway",
            "--config", str(self.config), "--port", str(self.port), stderr=asyncio.subprocess.PIPE,
            env={**environment, **self.environment},
        )  # fmt: skip
        self.reading = asyncio.ensure_future(self.read())
        await eventually(lambda: self.serves or self.reading.done(), within=60)
        assert not self.reading.done(), self.said

    @property
    def serves(self) -> bool:
        """It may be notified of an engine before that listens."""
        return " is up" in self.said and "listening on" in self.said

    async def read(self) -> None:
        assert self.child is not None and self.child.stderr is not None
        async for line in self.child.stderr:
            self.said += line.decode()

    async def says(self, text: str, *, times: int = 1) -> None:
        """Wait until its log has that, so many times."""
        await eventually(lambda: self.said.count(text) >= times)

    @property
    def pid(self) -> int:
        assert self.child is not None
        return self.child.pid

    def signal(self, number: signal.Signals) -> None:
        assert self.child is not None
        self.child.send_signal(number)

    async def connect(self) -> Connection:
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port))

    async def listens(self) -> bool:
        """Whether anybody still takes connections there."""
        try:
            (await self.connect()).writer.close()
        except ConnectionRefusedError:
            return False
        return True

    async def ask(self, path: str, body: bytes = b"", **headers: str) -> Any:
        connection = await self.connect()
        connection.send(path, body, **headers)
        try:
            return await connection.reply()
        finally:
            connection.writer.close()


@contextlib.asynccontextmanager
async def running(
    tmp_path: Path,
    environment: Mapping[str, str] | None = None,
    descriptors: int | None = None,
    python: str = sys.executable,
    **settings: object,
) -> AsyncIterator[Process]:
    config = tmp_path / "gateway.yaml"
    config.write_text(json.dumps(settings))
    process = Process(
        config, free_ports(1)[0], descriptors=descriptors, python=python, **(environment or {})
    )
    await process.start()
    try:
        yield process
    finally:
        assert process.child is not None
        if process.child.returncode is None:
            process.signal(signal.SIGKILL)
        await process.child.wait()
        await process.reading
