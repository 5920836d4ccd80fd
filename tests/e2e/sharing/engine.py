"""An engine with a few slots that says what each client was served, and callers that never have enough."""

import asyncio
import json
from collections import Counter
from dataclasses import dataclass, field

from tests.e2e.gateway.world import eventually

PROMPT, OUTPUT = 40, 10
SERVICE = PROMPT + 2 * OUTPUT  # of a request, in tokens
TOKEN_S = 0.004  # between two outputs


@dataclass
class SlotEngine:
    """First come, first served; `served` is the service that each client got, in tokens."""

    slots: int = 4
    served: Counter[str] = field(default_factory=Counter)
    url: str = ""
    waiting: int = 0
    running: int = 0

    async def start(self) -> "SlotEngine":
        self._free = asyncio.Semaphore(self.slots)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def stop(self) -> None:
        self._server.close()

    async def serve_requests(self, count: int) -> float:
        """Wait until so many more requests are served; return the ratio of a's service to b's meanwhile."""
        before = self.served.copy()
        total = before.total() + count * SERVICE
        await eventually(lambda: self.served.total() >= total)
        served = self.served - before
        return served["a"] / max(1, served["b"])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if head.startswith("GET"):
                    writer.write(_whole(self._looked_at(head)))
                    continue
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                await self._answer(json.loads(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, ConnectionError, RuntimeError):
            pass  # the caller left; writing to it then is a RuntimeError of uvloop's
        finally:
            writer.close()

    def _looked_at(self, head: str) -> bytes:
        if head.startswith("GET /metrics"):
            return (
                f"vllm:num_requests_running {self.running}\n"
                f"vllm:num_requests_waiting {self.waiting}\n"
            ).encode()
        return json.dumps({"data": [{"id": "m", "object": "model"}]}).encode()

    async def _answer(self, body: dict, writer: asyncio.StreamWriter) -> None:
        client = body["messages"][0]["content"].split()[0]
        self.waiting += 1
        async with self._free:
            self.waiting -= 1
            self.running += 1
            try:
                await self._stream(client, writer)
            finally:
                self.running -= 1

    async def _stream(self, client: str, writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        )
        self.served[client] += PROMPT
        for _ in range(OUTPUT):
            await asyncio.sleep(TOKEN_S)
            self.served[client] += 2
            _event(writer, {"choices": [{"index": 0, "delta": {"content": "a"}}]})
        usage = {"prompt_tokens": PROMPT, "completion_tokens": OUTPUT}
        _event(writer, {"choices": [], "usage": usage})
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def _event(writer: asyncio.StreamWriter, document: dict) -> None:
    data = b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
    writer.write(b"%x\r\n%b\r\n" % (len(data), data))


def _whole(body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def keep_asking(connection: Connection, client: str, number: int) -> None:
    """One caller of `client`, whose next request comes when the last is answered; until it is cancelled."""
    turn = 0
    reader, writer = connection
    try:
        while True:
            turn += 1
            words = f"{client} {number} {turn} " + "x" * 120
            body = json.dumps(
                {"model": "m", "stream": True, "messages": [{"role": "user", "content": words}]}
            ).encode()
            writer.write(
                b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-smg-tenant-id: "
                + client.encode() + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body
            )  # fmt: skip
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200"), head
            await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    finally:
        writer.close()
