"""Engines as processes that can be killed and stopped, and how much memory a process has."""

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import psutil

from fairhit.local.engine_process import free_ports
from tests.e2e.faults.caller import HOST
from tests.e2e.gateway.process import Process
from tests.e2e.gateway.world import Connection

START_S = 30.0
ROOT = Path(__file__).resolve().parents[3]


class EngineProcess:
    """One engine of `engine.py`; `flags` are its own, and `inside` begins the command."""

    def __init__(
        self, port: int, *flags: str, host: str = HOST, inside: Sequence[str] = ()
    ) -> None:
        self._address = (host, port)
        self.url = f"http://{host}:{port}"
        module = [sys.executable, "-m", "tests.e2e.faults.engine", str(port), "--host", host]
        self._command = [*inside, *module, *flags]
        self._child: subprocess.Popen[bytes] | None = None

    async def start(self) -> None:
        """Once it answers; for the first time, or again after `kill`."""
        self._child = subprocess.Popen(self._command, cwd=ROOT)
        async with asyncio.timeout(START_S):
            while True:
                with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                    await self.census()
                    return
                await asyncio.sleep(0.02)

    def signal(self, number: signal.Signals) -> None:
        assert self._child is not None
        self._child.send_signal(number)

    def kill(self) -> None:
        """kill -9, which also ends one that is stopped."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    async def census(self) -> dict[str, int]:
        """What it did since it was started last."""
        connection = Connection(*await asyncio.open_connection(*self._address))
        connection.send("/census")
        try:
            did: dict[str, int] = json.loads((await connection.reply()).body)
            return did
        finally:
            connection.writer.close()


async def idle(engine: EngineProcess, *, within_s: float = START_S) -> None:
    """It works for no caller any more."""
    async with asyncio.timeout(within_s):
        while (did := await engine.census())["running"] or did["waiting"]:
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def engines(count: int, *flags: str) -> AsyncIterator[list[EngineProcess]]:
    """So many, all up; killed in the end."""
    made = [EngineProcess(port, *flags) for port in free_ports(count)]
    try:
        await asyncio.gather(*(one.start() for one in made))
        yield made
    finally:
        for one in made:
            one.kill()


async def retries(process: Process) -> int:
    """Requests that it sent to another engine so far."""
    page = (await process.ask("/metrics")).body.decode()
    (line,) = (line for line in page.splitlines() if line.startswith("fairhit_retries_total "))
    return int(float(line.split()[1]))


def rss_mb(pid: int) -> float:
    """Memory that the process has, in megabytes."""
    return float(psutil.Process(pid).memory_info().rss) / 1e6
