"""The worst that callers and engines send, at full speed: a health check waits for a turn or two.

No clock: what is counted is the bytes that the gateway reads between two turns of the event loop, where it
reads them, and the turns that a health check takes.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from fairhit.gateway.api import request_body as openai
from fairhit.gateway.api import response_body as answers
from fairhit.gateway.api.response_body import StreamedResponse
from fairhit.gateway.http.read_budget import ITERATION, STEP
from fairhit.gateway.http.request_parser import RequestParser
from fairhit.gateway.http.response_parser import ResponseParser
from tests.e2e.gateway.scripts import Received, Script, begin_stream, chat, chunk, whole
from tests.e2e.gateway.world import World, play

# Other connections' short reads; the reads of the turn's last step go on behind its limit.
_SLACK = 2 * STEP
# The test's own caller and engine have the same loop, and take some of these.
_TURNS = 20


class Work:
    """Bytes read in each turn, by what reads them."""

    def __init__(self) -> None:
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        self.turns = 0
        self.health_turns: list[int] = []

    def note(self, kind: str, length: int) -> None:
        self.now[kind] = self.now.get(kind, 0) + length

    def turn(self) -> None:
        """Between any two of these the loop has looked for what has come."""
        for kind, length in self.now.items():
            self.most[kind] = max(length, self.most.get(kind, 0))
        self.now.clear()
        self.turns += 1
        self._next = asyncio.get_running_loop().call_soon(self.turn)

    async def ask_for_health(self, world: World) -> None:
        """Until cancelled."""
        connection = await world.connect()
        while True:
            begun = self.turns
            connection.send("/health")
            assert (await connection.reply()).status == 200
            self.health_turns.append(self.turns - begun)

    @contextmanager
    def counted(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Note what readers, searches and parsers are given."""
        for where, name, kind in (
            (RequestParser, "feed", "requests"),
            (ResponseParser, "feed", "answers"),
            (StreamedResponse, "feed", "streams"),
            (StreamedResponse, "_read", "events"),
        ):
            monkeypatch.setattr(where, name, self._noting(getattr(where, name), kind))
        for module in (answers, openai):
            parser = SimpleNamespace(**vars(orjson))
            parser.loads = self._parsing
            monkeypatch.setattr(module, "orjson", parser)
        self.turn()
        yield
        self._next.cancel()

    def _noting(self, method: Any, kind: str) -> Any:
        def noting(own: object, data: bytes) -> object:
            late = getattr(own, "_late", None)
            if not late or kind != "answers":
                self.note(kind, len(data))
            return method(own, data)

        return noting

    def _parsing(self, data: bytes) -> object:
        self.note("parsed", len(data))
        return orjson.loads(data)


def streaming(event: bytes, count: int) -> Script:
    async def script(received: Received) -> None:
        begin_stream(received)
        for _ in range(count):
            chunk(received, event)
            if received.writer.transport.get_write_buffer_size() > 4 << 20:  # type: ignore[attr-defined]
                await received.writer.drain()
        chunk(received, b"data: [DONE]\n\n")
        chunk(received, b"")

    return script


def event(length: int) -> bytes:
    return b'data: {"choices":[{"index":0,"text":"' + b"ab\\n" * (length // 4) + b'"}]}\n\n'


async def repeating(received: Received) -> None:
    """As engines do for a completion with `echo`: the first event is as long as its prompt."""
    assert received.json()["echo"]
    await streaming(event(len(received.body)), 1)(received)


async def answered(received: Received) -> None:
    whole(received, 200, b'{"usage":{"prompt_tokens":5,"completion_tokens":1}}')


LISTS = b'{"model":"m","prompt":[' + b"[]," * 87_000 + b"[]]}"
SENT = {
    "an event of 16 MiB": (streaming(event(16 << 20), 1), chat(stream=True), 1),
    "64 events of 1 MiB in a stream": (streaming(event(1 << 20), 64), chat(stream=True), 1),
    "64 streams of an event of 1 MiB": (streaming(event(1 << 20), 1), chat(stream=True), 64),
    "20,000 events of 3 kB": (streaming(event(3_000), 20_000), chat(stream=True), 1),
    "8 prompts of 2 MiB that are repeated": (
        repeating,
        b'{"model":"m","echo":true,"stream":true,"max_tokens":1,"prompt":"%b"}' % (b"word " * (2 << 20 >> 2)),
        8,
    ),
    "a body of 16 MiB": (answered, b'{"model":"m","prompt":"%b"}' % (b"word\\n" * (16 << 20 >> 3)), 1),
    "5 bodies of 16 MiB": (answered, b'{"model":"m","prompt":"%b"}' % (b"7" * 16_000_000), 5),
    "16 bodies of lists of 256 KiB": (answered, LISTS, 16),
    "an answer of 16 MiB": (
        lambda received: _whole(received, b'{"a":"%b"}' % (b"x" * (16 << 20))), chat(), 1,
    ),
}  # fmt: skip


async def _whole(received: Received, body: bytes) -> None:
    whole(received, 200, body)


@pytest.mark.parametrize("name", SENT)
def test_a_health_check_waits_for_a_turn_or_two(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    script, body, count = SENT[name]
    work = Work()

    async def story(world: World) -> None:
        path = "/v1/completions" if b'"prompt"' in body else "/v1/chat/completions"
        with work.counted(monkeypatch):
            asking = asyncio.ensure_future(work.ask_for_health(world))
            replies = await asyncio.gather(*(world.ask(path, body) for _ in range(count)))
            asking.cancel()
        assert {reply.status for reply in replies} <= {200, 400}, replies[0].body[:300]
        assert asking.cancelled() or not asking.done() or asking.exception() is None

    play(story, script, max_payload_size=17 << 20)

    for kind, most in work.most.items():
        assert most <= ITERATION + _SLACK, (kind, work.most)
    assert max(work.health_turns) <= _TURNS
    assert len(work.health_turns) > 3
