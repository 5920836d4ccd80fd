"""Latency of the health check, and memory, while callers and engines send the most expensive inputs.

Caveat first: gateway, engine, callers and this process share the machine's cores, so that a part of
each delay is the operating system's; the row `nothing` shows that part at rest. The number of bytes that the
gateway reads in an iteration of its event loop is bounded by `tests/e2e/gateway/test_worst_inputs.py`.

    python -m benchmarks.gateway.worst_inputs [--dry]
"""

import argparse
import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import uvloop

from benchmarks.gateway import mock_engine
from benchmarks.record import write_rows
from fairhit.local.engine_process import free_ports

_READY_TIMEOUT_S = 60.0
_PAUSE_S = 0.005
_MIB = 1 << 20


def chat(events: int, length: int) -> bytes:
    """Make a chat request whose prompt tells the mock engine the number and length of its events."""
    return b'{"model":"mock","stream":true,"messages":[{"role":"user","content":"%d %d"}]}' % (
        events, length,
    )  # fmt: skip


def prompt(unit: bytes, length: int, *, quoted: bool) -> bytes:
    text = unit * (length // len(unit))
    return b'{"model":"mock","prompt":%b}' % (b'"%b"' % text if quoted else b"[%b1]" % text)


# The request, and the number of connections that send it at once.
INPUTS: dict[str, tuple[bytes, int]] = {
    "nothing": (b"", 0),
    "an event of 16 MiB": (chat(1, 16 * _MIB), 1),
    "8 streams of an event of 1 MiB": (chat(1, _MIB), 8),
    "64 events of 1 MiB": (chat(64, _MIB), 1),
    "64 streams of an event of 1 MiB": (chat(1, _MIB), 64),
    "20,000 events of 3 kB": (chat(20_000, 3_000), 1),
    "a body of 16 MiB, text": (prompt(b"word\\n", 16 * _MIB - 100, quoted=True), 1),
    "a body of 16 MiB, tokens": (prompt(b"7,", 16 * _MIB - 100, quoted=False), 1),
    "a body of 16 MiB, lists": (prompt(b"[],", 16 * _MIB - 100, quoted=False), 1),
    "8 bodies of 16 MiB, text": (prompt(b"word\\n", 16 * _MIB - 100, quoted=True), 8),
    "64 bodies of 256 KiB, lists": (prompt(b"[],", _MIB // 4 - 100, quoted=False), 64),
}


# -- the engine


async def serve_engine(port: int) -> None:
    server = await asyncio.start_server(_answer, "127.0.0.1", port, limit=32 * _MIB)
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            if head.startswith(b"GET"):
                writer.write(mock_engine.MODELS_REPLY)
                continue
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            body = await reader.readexactly(length)
            if b'"stream":true' not in body[:100]:
                writer.write(mock_engine.ANSWER_REPLY)
                continue
            events, length = map(int, body.split(b'"content":"')[1].split(b'"')[0].split())
            writer.write(mock_engine.STREAM_HEAD)
            data = b'data: {"choices":[{"text":"%b"}]}\n\n' % (b"ab\\n" * (length // 4))
            framed = b"%x\r\n%b\r\n" % (len(data), data)
            for _ in range(events):
                writer.write(framed)
                await writer.drain()
            writer.write(mock_engine.STREAM_END)
    writer.close()


# -- the callers


async def send(port: int, name: str) -> None:
    body, count = INPUTS[name]
    head = b"POST %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % (
        b"/v1/completions" if b'"prompt"' in body[:40] else b"/v1/chat/completions", len(body),
    )  # fmt: skip

    async def one() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        with contextlib.suppress(ConnectionError):
            writer.writelines([head, body])
            while await reader.read(_MIB):
                pass
        writer.close()

    await asyncio.gather(*(one() for _ in range(count)))


# -- the measurement


@contextlib.asynccontextmanager
async def running(*command: str) -> AsyncIterator[int]:
    process = subprocess.Popen([sys.executable, "-m", *command])
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()


async def ask(port: int, path: bytes, reply: bytes) -> tuple[float, bool]:
    """Return the seconds until an answer, and whether it was the expected one."""
    begun = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(b"GET %b HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n" % path)
        said = await reader.read(_MIB)
        return time.perf_counter() - begun, said.startswith(b"HTTP/1.1 " + reply)
    finally:
        writer.close()


async def until_ready(port: int) -> None:
    async with asyncio.timeout(_READY_TIMEOUT_S):
        while True:
            with contextlib.suppress(OSError):
                if (await ask(port, b"/readiness", b"200"))[1]:
                    return
            await asyncio.sleep(0.1)


def rss_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


async def measure(name: str) -> dict[str, object]:
    """Measure one input on a fresh gateway; return its row."""
    engine_port, port = free_ports(2)
    module = "benchmarks.gateway.worst_inputs"
    async with running(module, "--engine", str(engine_port)):
        gateway = ("benchmarks.gateway.under_test_open", str(port), str(engine_port))
        async with running(*gateway) as pid:
            await until_ready(port)
            before, delays = rss_mb(pid), list[float]()
            async with running(module, "--send", name, "--port", str(port)) as sender:
                ends = time.perf_counter() + 2.0
                while time.perf_counter() < ends or (name != "nothing" and _runs(sender)):
                    delay, is_well = await ask(port, b"/health", b"200")
                    assert is_well, "the gateway is well"
                    delays.append(delay)
                    await asyncio.sleep(_PAUSE_S)
            row = {
                "input": name,
                "health_ms_p50": round(sorted(delays)[len(delays) // 2] * 1e3, 1),
                "health_ms_max": round(max(delays) * 1e3, 1),
                "checks": len(delays),
                "rss_mb_before": round(before),
                "rss_mb_most": round(rss_mb(pid)),
            }
            print(row, flush=True)
            return row


def _runs(pid: int) -> bool:
    """Return whether a child process still runs; one that has ended stays a zombie until waited for."""
    return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").split(") ")[1][0] != "Z"


async def measure_all() -> list[dict[str, object]]:
    return [await measure(name) for name in INPUTS]


def main() -> None:
    """Measure and write the rows; the other roles are this module's own processes."""
    parser = argparse.ArgumentParser(prog="benchmarks.gateway.worst_inputs", allow_abbrev=False)
    parser.add_argument("--engine", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--send", choices=list(INPUTS), help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--dry", action="store_true", help="print, and write nothing")
    options = parser.parse_args()
    if options.engine is not None:
        uvloop.run(serve_engine(options.engine))
    elif options.send is not None:
        uvloop.run(send(options.port, options.send))
    else:
        rows = asyncio.run(measure_all())
        if not options.dry:
            write_rows("worst_inputs", rows, cores=os.cpu_count())


if __name__ == "__main__":
    main()
