"""An engine that is a process of its own, has few places, and fails now and then.

`python -m tests.e2e.faults.engine PORT [--host H] [--places N] [--token-s S] [--faults SHARE] [--seed N]`
serves until it is killed. Like a real one it admits in order, computes a token at a time, tells what runs
and waits at `/metrics`, and stops a request whose connection is closed. `GET /census` says what
it did.
"""

import argparse
import asyncio
import json
import random
from collections import Counter

import uvloop

from tests.e2e.gateway.scripts import (
    Received,
    Script,
    begin_stream,
    break_off,
    broken,
    chunk,
    garbage,
    half_a_body,
    half_a_head,
    hang,
    overloaded,
    reset,
    whole,
)

# Between two of these a prompt has the word that an answer is made of.
MARK = "#"
SLOW = 10  # times as long for each token


class Engine:
    """Counts what it is asked, what it answered, and what it was let off."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.token_s: float = options.token_s
        self.faults: float = options.faults
        self.places = asyncio.Semaphore(options.places)
        self.rng = random.Random(options.seed)
        self.did: Counter[str] = Counter()
        self.running = self.waiting = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ahead: bytes | None = b""
        try:
            while ahead is not None:
                head = (ahead + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                if head.startswith("GET"):
                    self.say(head.split()[1], writer)
                    ahead = b""
                    continue
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                body = await reader.readexactly(length)
                ahead = await self.play(Received(head, body, writer), reader)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def play(self, received: Received, reader: asyncio.StreamReader) -> bytes | None:
        """What has come of the next request; None: the connection is over, or no caller wants the answer."""
        self.did["received"] += 1
        playing = asyncio.ensure_future(self.in_turn(received))
        more = asyncio.ensure_future(reader.read(1))
        await asyncio.wait([playing, more], return_when=asyncio.FIRST_COMPLETED)
        ended = playing.done()
        (more if ended else playing).cancel()
        fault, came = await asyncio.gather(playing, more, return_exceptions=True)
        if ended and fault is None and not received.writer.is_closing():
            if isinstance(came, bytes) and came:
                return came
            if isinstance(came, asyncio.CancelledError):
                return b""
        self.did["aborted"] += 1
        return None

    async def in_turn(self, received: Received) -> None:
        script = self.script()
        self.waiting += 1
        try:
            await self.places.acquire()
        finally:
            self.waiting -= 1
        self.running += 1
        try:
            await script(received)
            self.did[script.__name__] += 1
        finally:
            self.running -= 1
            self.places.release()

    def script(self) -> Script:
        """Which it is depends on the order of requests alone."""
        fails = self.rng.random() < self.faults
        return self.rng.choice([*FAULTS, self.slow]) if fails else self.answer

    async def answer(self, received: Received, *, slowness: float = 1) -> None:
        request = received.json()
        prompt = request["messages"][-1]["content"]
        word = " " + prompt.split(MARK)[-2]
        number, streams = request["max_tokens"], request.get("stream")
        if streams:
            begin_stream(received)
        for _ in range(number):
            await asyncio.sleep(self.token_s * slowness)
            if streams:
                chunk(received, event({"delta": {"content": word}}))
        usage = {
            "prompt_tokens": len(prompt) // 4 + 1,
            "completion_tokens": number,
            "total_tokens": len(prompt) // 4 + 1 + number,
        }
        if not streams:
            choice = {"index": 0, "message": {"content": word * number}, "finish_reason": "stop"}
            whole(received, 200, json.dumps({"choices": [choice], "usage": usage}).encode())
            return
        if (request.get("stream_options") or {}).get("include_usage"):
            last = json.dumps({"choices": [], "usage": usage}).encode()
            chunk(received, b"data: " + last + b"\n\n")
        chunk(received, b"data: [DONE]\n\n")
        chunk(received, b"")

    async def slow(self, received: Received) -> None:
        await self.answer(received, slowness=SLOW)

    def say(self, path: str, writer: asyncio.StreamWriter) -> None:
        now = {"running": self.running, "waiting": self.waiting}
        if path == "/metrics":
            lines = [f'vllm:num_requests_{name}{{engine="0"}} {n}' for name, n in now.items()]
            body = "\n".join([*lines, ""]).encode()
        elif path == "/census":
            body = json.dumps({**self.did, **now}).encode()
        else:
            body = json.dumps({"data": [{"id": "m", "object": "model"}]}).encode()
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)


def event(choice: dict[str, object]) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


async def begins_and_dies(received: Received) -> None:
    """Its first words are right; then it is gone."""
    word = " " + received.json()["messages"][-1]["content"].split(MARK)[-2]
    begin_stream(received)
    chunk(received, event({"delta": {"content": word}}))
    await asyncio.sleep(0.01)
    received.writer.close()


FAULTS: list[Script] = [
    broken,
    overloaded,
    garbage,
    half_a_head,
    half_a_body,
    break_off,
    reset,
    begins_and_dies,
    hang,
]


async def serve(options: argparse.Namespace) -> None:
    """For ever."""
    engine = Engine(options)
    await asyncio.start_server(engine.serve, options.host, options.port, backlog=1024)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="tests.e2e.faults.engine")
    parser.add_argument("port", type=int)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--places", type=int, default=16)
    parser.add_argument("--token-s", type=float, default=0.01)
    parser.add_argument("--faults", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    uvloop.run(serve(parser.parse_args()))
