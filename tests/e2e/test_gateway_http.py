"""Every row of DESIGN section 7 over real sockets, with engines that fail in ways a real one will not.

The engines here are scripts: they hang, lie, stop halfway and reset. What real engines do with the
gateway is tested beside this, on real engines.
"""

import asyncio
import contextlib
import json
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
import uvloop

from fairlead.core.service import UNITS_PER_TOKEN
from fairlead.gateway.server import Gateway
from fairlead.gateway.settings import GatewaySettings
from fairlead.routers.d2lpm import D2LPM

CHAT = "/v1/chat/completions"
USAGE = {
    "prompt_tokens": 50,
    "completion_tokens": 3,
    "prompt_tokens_details": {"cached_tokens": 32},
}


@dataclass
class Received:
    """A request as an engine got it."""

    head: str
    body: bytes
    writer: asyncio.StreamWriter

    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Received], Awaitable[None]]


@dataclass
class FakeEngine:
    """Plays `script` for each POST; answers probes while `healthy`."""

    script: Script
    models: tuple[str, ...] = ("m",)
    healthy: bool = True
    received: list[Received] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)  # the gateway closed a connection
    url: str = ""
    server: asyncio.Server | None = None
    connections: int = 0

    async def start(self) -> "FakeEngine":
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"
        return self

    def stop(self) -> None:
        assert self.server is not None
        self.server.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        posts = 0
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                if head.startswith("GET"):
                    self.probe(head, writer)
                    continue
                self.connections += posts == 0
                posts += 1
                length = int(head.lower().split("content-length:")[1].split("\r\n")[0])
                received = Received(head, await reader.readexactly(length), writer)
                self.received.append(received)
                playing = asyncio.ensure_future(self.script(received))
                gone = asyncio.ensure_future(self.watch(reader, writer, playing))
                await asyncio.wait([playing])
                gone.cancel()
                if not playing.cancelled() and playing.exception() is not None:
                    self.left.set()  # it found out by writing
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def watch(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, playing: Any
    ) -> None:
        while not reader.at_eof() and reader.exception() is None:
            await asyncio.sleep(0.01)
        self.left.set()
        playing.cancel()

    def probe(self, head: str, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"data": [{"id": name, "object": "model"} for name in self.models]})
        status = "200 OK" if self.healthy else "503 Service Unavailable"
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n\r\n{body}".encode())


@dataclass
class Reply:
    """An answer as a caller got it."""

    status: int
    headers: dict[str, str]
    body: bytes

    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = json.loads(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}, error
        assert "Traceback" not in error["message"] and "\n" not in error["message"]
        return error


class Connection:
    """A caller's connection, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, path: str, body: bytes = b"", **headers: str) -> None:
        method = "POST" if body else "GET"
        lines = [f"{method} {path} HTTP/1.1", "host: gateway", f"content-length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    async def reply(self) -> Reply:
        async with asyncio.timeout(10):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
            status, *lines = head.split("\r\n")
            headers = dict(line.lower().split(": ", 1) for line in lines if line)
            if headers.get("transfer-encoding") == "chunked":
                body = b"".join([piece async for piece in self.chunks()])
            elif "content-length" in headers:
                body = await self.reader.readexactly(int(headers["content-length"]))
            else:
                body = await self.reader.read()
            return Reply(int(status.split()[1]), headers, body)

    async def chunks(self) -> AsyncIterator[bytes]:
        while True:
            size = int(await self.reader.readuntil(b"\r\n"), 16)
            data = await self.reader.readexactly(size + 2)
            if not size:
                return
            yield data[:-2]

    def reset(self) -> None:
        self.writer.transport.abort()


@dataclass
class World:
    """A gateway, its engines, and callers."""

    gateway: Gateway
    engines: list[FakeEngine]

    async def connect(self) -> Connection:
        return Connection(*await asyncio.open_connection("127.0.0.1", self.gateway.port))

    async def ask(self, path: str = CHAT, body: bytes = b"", **headers: str) -> Reply:
        connection = await self.connect()
        connection.send(path, body or chat(), **headers)
        try:
            return await connection.reply()
        finally:
            connection.writer.close()

    async def get(self, path: str) -> Reply:
        connection = await self.connect()
        connection.send(path)
        try:
            return await connection.reply()
        finally:
            connection.writer.close()

    def received(self) -> list[Received]:
        return [received for engine in self.engines for received in engine.received]

    def spent(self, client: str = "anonymous") -> int:
        """What the client is charged over all engines, in tokens."""
        router = self.gateway.dispatcher.router
        assert isinstance(router, D2LPM)
        up = [name for name, worker in self.gateway.dispatcher.workers.items() if worker.up]
        full = router.quantum_of(client)
        return sum(full - router.deficit(client, name) for name in up) // UNITS_PER_TOKEN


def play(
    story: Callable[[World], Coroutine[Any, Any, None]], *scripts: Script, **settings: Any
) -> None:
    """Run `story` with one engine for each script; afterwards nothing may be in flight."""

    async def run() -> None:
        engines = [await FakeEngine(script).start() for script in scripts]
        gateway = Gateway(
            GatewaySettings(
                port=0,
                worker_urls=tuple(engine.url for engine in engines),
                health_check_interval_secs=settings.pop("health_check_interval_secs", 60),
                shutdown_timeout_secs=0.2,
                **settings,
            )
        )
        await gateway.start()
        await eventually(lambda: all(w.up for w in gateway.dispatcher.workers.values()))
        await story(World(gateway, engines))
        await gateway.stop()
        assert not any(account.in_flight for _, account in gateway.dispatcher.ledger.accounts())
        for engine in engines:
            engine.stop()

    uvloop.run(run())


async def eventually(condition: Callable[[], bool], *, within: float = 5.0) -> None:
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.01)


def chat(**fields: object) -> bytes:
    return json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    ).encode()


def events(*, usage: bool) -> list[bytes]:
    deltas: list[dict[str, object]] = [
        {"choices": [{"index": 0, "delta": {"content": text}}]} for text in ("", "a", "b", "c")
    ]
    if usage:
        deltas.append({"choices": [], "usage": USAGE})
    data = [json.dumps(delta, separators=(",", ":")).encode() for delta in deltas]
    return [b"data: " + one + b"\n\n" for one in [*data, b"[DONE]"]]


def begin_stream(received: Received) -> None:
    received.writer.write(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
        b"transfer-encoding: chunked\r\nx-engine: yes\r\n\r\n"
    )


def chunk(received: Received, data: bytes) -> None:
    received.writer.write(b"%x\r\n%b\r\n" % (len(data), data))


async def good(received: Received) -> None:
    """What an engine should do."""
    request = received.json()
    if request.get("stream"):
        begin_stream(received)
        wants = bool((request.get("stream_options") or {}).get("include_usage"))
        for event in events(usage=wants):
            chunk(received, event)
            await asyncio.sleep(0)
        chunk(received, b"")
        return
    answer = {"choices": [{"message": {"content": "abc"}}], "usage": USAGE}
    whole(received, 200, json.dumps(answer).encode())


def whole(received: Received, status: int, body: bytes) -> None:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n"
    received.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)


async def hang(received: Received) -> None:
    await asyncio.sleep(30)


async def hang_after_head(received: Received) -> None:
    begin_stream(received)
    await asyncio.sleep(30)


async def endless(received: Received) -> None:
    begin_stream(received)
    while True:
        chunk(received, events(usage=False)[1])
        await asyncio.sleep(0.01)


async def break_off(received: Received) -> None:
    received.writer.close()


async def reset(received: Received) -> None:
    opened = received.writer.get_extra_info("socket")
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    received.writer.transport.abort()


async def garbage(received: Received) -> None:
    received.writer.write(b"\x16\x03\x01 this is no HTTP\r\n\r\n")


async def half_a_head(received: Received) -> None:
    received.writer.write(b"HTTP/1.1 200 OK\r\ncontent-ty")
    await asyncio.sleep(0.05)
    received.writer.close()


async def half_a_body(received: Received) -> None:
    received.writer.write(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"choices":')
    await asyncio.sleep(0.05)
    received.writer.close()


async def only_a_head(received: Received) -> None:
    begin_stream(received)
    await asyncio.sleep(0.05)
    received.writer.close()


async def an_empty_stream(received: Received) -> None:
    begin_stream(received)
    chunk(received, b"")


async def broken(received: Received) -> None:
    whole(received, 500, b'{"error":{"message":"EngineDeadError"}}')


async def overloaded(received: Received) -> None:
    whole(received, 503, b'{"error":{"message":"too many requests queued"}}')


async def die_in_mid_stream(received: Received) -> None:
    begin_stream(received)
    for event in events(usage=False)[:3]:
        chunk(received, event)
    await asyncio.sleep(0.05)
    received.writer.close()


# -- what works


def test_a_stream_reaches_the_caller_to_the_byte() -> None:
    """The gateway asks for usage on its own account, and keeps the answer to itself."""

    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=True))
        asked = world.received()[0].json()

        assert reply.body == b"".join(events(usage=False))
        assert reply.headers["x-engine"] == "yes"
        assert asked["stream_options"] == {"include_usage": True}
        assert world.spent() == 18 + 2 * 3

    play(story, good)


def test_a_caller_that_asks_for_usage_gets_it() -> None:
    async def story(world: World) -> None:
        body = chat(stream=True, stream_options={"include_usage": True})
        assert (await world.ask(body=body)).body == b"".join(events(usage=True))

        other = chat(stream=True, stream_options={"include_usage": False, "other": 1})
        assert (await world.ask(body=other)).body == b"".join(events(usage=False))
        asked = world.received()[1].json()
        assert asked["stream_options"] == {"include_usage": True, "other": 1}

    play(story, good)


def test_a_whole_answer_is_settled_by_its_usage() -> None:
    async def story(world: World) -> None:
        reply = await world.ask()

        assert json.loads(reply.body)["usage"] == USAGE
        assert world.spent() == 18 + 2 * 3
        assert (
            b'fairlead_cached_tokens_total{client="anonymous"} 32.0'
            in (await world.get("/metrics")).body
        )
        workers = json.loads((await world.get("/workers")).body)["workers"]
        assert workers[0]["fairness"] == "fair in extend tokens as the engine reports them"

    play(story, good)


def test_connections_are_kept_and_pipelined_requests_answered_in_order() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=True))
        caller.send("/health")
        caller.send(CHAT, chat())
        caller.send("/nowhere")
        replies = [await caller.reply() for _ in range(4)]

        assert [reply.status for reply in replies] == [200, 200, 200, 404]
        assert replies[0].body.endswith(b"[DONE]\n\n")
        assert replies[1].body == b'{"status":"ok"}'
        assert world.engines[0].connections == 1
        caller.writer.close()

    play(story, good)


def test_far_too_many_pipelined_requests_end_the_connection_after_those_taken() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        for _ in range(100):
            caller.send(CHAT, chat())
        answered = 0
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while (await caller.reply()).status == 200:
                answered += 1

        assert 1 <= answered < 100

    play(story, good)


def test_an_http_1_0_caller_gets_an_answer_without_chunks() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat(stream=True)
        head = f"POST {CHAT} HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n"
        caller.writer.write(head.encode() + body)

        assert (await caller.reply()).body == b"".join(events(usage=False))

    play(story, good)


def test_a_caller_that_waits_for_100_continue_is_told_so() -> None:
    """curl does, for bodies of a megabyte."""

    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat()
        head = (
            f"POST {CHAT} HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        caller.writer.write(head.encode())
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.writer.write(body)

        assert (await caller.reply()).status == 200

    play(story, good)


def test_small_packets_are_not_held_back() -> None:
    """Nagle's algorithm with delayed acknowledgements costs 40 ms a token."""

    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=True))
        await caller.reply()
        (connection,) = world.gateway._connections
        (upstream,) = world.gateway.engine(world.engines[0].url)._idle
        for side in (connection, upstream):
            assert side._transport is not None
            opened = side._transport.get_extra_info("socket")
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        caller.writer.close()

    play(story, good)


def test_a_slow_reader_slows_its_engine_and_nobody_else() -> None:
    """An answer nobody reads must not pile up in the gateway."""

    async def flood(received: Received) -> None:
        begin_stream(received)
        event = b'data: {"x":"' + b"y" * 65536 + b'"}\n\n'
        while True:
            chunk(received, event)
            await received.writer.drain()

    async def story(world: World) -> None:
        caller = await world.connect()
        caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        caller.send(CHAT, chat(stream=True))
        await asyncio.sleep(0.5)
        (connection,) = world.gateway._connections
        assert connection._transport is not None
        assert connection._paused
        assert connection._transport.get_write_buffer_size() < 2 << 20
        assert (await world.get("/health")).status == 200
        caller.reset()
        await asyncio.wait_for(world.engines[0].left.wait(), 2)

    play(story, flood)


# -- bad input


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        (b"{", 400, None),
        (b"[1]", 400, None),
        (chat(messages="hi"), 400, "messages"),
        (chat(max_tokens="x"), 400, "max_tokens"),
        (chat(stream=1), 400, "stream"),
        (chat(model=["m"]), 400, "model"),
        (chat(model="unknown"), 404, "model"),
    ],
)
def test_a_bad_body_is_refused_with_the_field_named(
    body: bytes, status: int, param: str | None
) -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=body)

        assert (reply.status, reply.error()["param"]) == (status, param)
        assert world.received() == []

    play(story, good)


def test_what_the_engine_refuses_is_passed_on_and_not_charged() -> None:
    """A prompt that can never fit: the engine knows its limits and says both numbers."""
    refusal = b'{"error":{"message":"10 + 99 is more than 64","param":"max_tokens"}}'

    async def refuse(received: Received) -> None:
        whole(received, 400, refusal)

    async def story(world: World) -> None:
        reply = await world.ask(body=chat(max_tokens=99))

        assert (reply.status, reply.body) == (400, refusal)
        assert world.spent() == 0
        assert len(world.received()) == 1  # asking another would not help

    play(story, refuse, refuse)


@pytest.mark.parametrize("announced", [True, False])
def test_a_body_too_large_is_refused(announced: bool) -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat(user="x" * 2000)
        if announced:
            caller.send(CHAT, body)
        else:
            head = f"POST {CHAT} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".encode()
            caller.writer.write(head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
        reply = await caller.reply()

        assert (reply.status, reply.headers["connection"]) == (413, "close")
        assert "1000" in reply.error()["message"]

    play(story, good, max_payload_size=1000)


def test_a_chunked_body_is_forwarded_with_its_length() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        head = f"POST {CHAT} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n".encode()
        parts = [chat()[:20], chat()[20:]]
        data = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
        caller.writer.write(head + data + b"0\r\n\r\n")

        assert (await caller.reply()).status == 200
        assert "transfer-encoding" not in world.received()[0].head.lower()

    play(story, good)


def test_headers_too_large_are_refused() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        for line in (
            b"GET /health HTTP/1.1\r\n",
            *[b"x-%d: %b\r\n" % (n, b"y" * 1000) for n in range(99)],
        ):
            caller.writer.write(line)
        reply = await caller.reply()

        assert (reply.status, reply.error()["code"]) == (431, "headers_too_large")

    play(story, good)


def test_a_request_that_takes_too_long_to_arrive_is_refused() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.writer.write(f"POST {CHAT} HTTP/1.1\r\ncontent-length: 100\r\n\r\n{{".encode())
        reply = await caller.reply()

        assert (reply.status, reply.error()["code"]) == (408, "request_timeout")

    play(story, good, client_timeout_secs=0.2)


@pytest.mark.parametrize(
    "data",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01",
        b"GET /\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: -5\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n",
        b"POST /v1/completions HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello!",
        b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_http_request_is_answered_and_the_connection_closed(data: bytes) -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.writer.write(data)
        reply = await caller.reply()

        assert reply.status in {400, 404}
        assert reply.error()["type"] == "invalid_request_error"
        assert world.received() == []

    play(story, good)


def test_paths_and_methods_that_do_not_exist() -> None:
    async def story(world: World) -> None:
        assert (await world.get("/v2/other")).status == 404
        assert (await world.get(CHAT)).status == 405
        assert (await world.ask("/health")).status == 405

    play(story, good)


# -- identity


def test_without_a_key_nothing_is_served_and_the_key_stays_here() -> None:
    async def story(world: World) -> None:
        refused = [
            await world.ask(),
            await world.ask(authorization="Bearer nope"),
            await world.ask(x_smg_tenant_id="alice"),
        ]
        assert [(reply.status, reply.error()["code"]) for reply in refused] == [
            (401, "invalid_api_key")
        ] * 3
        assert {reply.body for reply in refused} == {refused[0].body}

        spoof = chat(vllm_xargs={"fair_client": "bob"}, user="bob")
        reply = await world.ask(
            body=spoof, authorization="Bearer k1", x_llm_d_inference_fairness_id="bob", x_other="1"
        )
        (received,) = world.received()
        assert reply.status == 200
        assert received.json()["vllm_xargs"] == {"fair_client": "alice"}
        assert "k1" not in received.head and "fairness" not in received.head
        assert "x-other: 1" in received.head
        assert world.spent("alice") > 0 == world.spent("bob")

    play(story, good, tenant_api_key=("alice:k1",))


def test_stock_engines_get_the_body_untouched() -> None:
    async def story(world: World) -> None:
        await world.ask(body=chat(seed=1))
        assert world.received()[0].body == chat(seed=1)

    play(story, good, identity_field="none")


def test_a_full_client_waits_while_another_is_served() -> None:
    async def story(world: World) -> None:
        waiting = await world.connect()
        waiting.send(CHAT, chat(stream=True, max_tokens=5), authorization="Bearer k1")
        await eventually(lambda: len(world.received()) == 1)
        full = await world.ask(authorization="Bearer k1")
        other = await world.ask(body=chat(max_tokens=6), authorization="Bearer k2")

        assert (full.status, full.headers["retry-after"]) == (429, "1")
        assert full.error()["code"] == "rate_limit_exceeded"
        assert other.status == 200
        waiting.reset()

    async def slow_for_one(received: Received) -> None:
        await (hang if received.json().get("max_tokens") == 5 else good)(received)

    keys = ("alice:k1", "bob:k2")
    play(story, slow_for_one, tenant_api_key=keys, max_client_requests=1)


# -- engines that fail

BEFORE_THE_FIRST_BYTE = [
    break_off,
    reset,
    garbage,
    half_a_head,
    half_a_body,
    only_a_head,
    an_empty_stream,
    broken,
    overloaded,
]


@pytest.mark.parametrize("fault", BEFORE_THE_FIRST_BYTE)
@pytest.mark.parametrize("stream", [True, False])
def test_a_failure_before_the_first_byte_is_retried_elsewhere(fault: Script, stream: bool) -> None:
    """Whichever engine is asked first fails; the caller does not notice, and pays once."""
    asked: list[str] = []

    async def first_time_fails(received: Received) -> None:
        asked.append(received.head)
        await (fault if len(asked) == 1 else good)(received)

    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=stream))

        assert reply.status == 200
        assert reply.body.endswith(b"[DONE]\n\n") or json.loads(reply.body)["usage"] == USAGE
        assert [len(engine.received) for engine in world.engines] == [1, 1]
        assert world.received()[0].body == world.received()[1].body
        assert world.spent() == 18 + 2 * 3
        assert world.gateway.dispatcher.retries == 1

    play(story, first_time_fails, first_time_fails)


@pytest.mark.parametrize("fault", [break_off, garbage, only_a_head])
def test_each_engine_is_tried_once_and_then_the_caller_is_told(fault: Script) -> None:
    async def story(world: World) -> None:
        reply = await world.ask(body=chat(stream=True))

        assert (reply.status, reply.headers["retry-after"]) == (502, "1")
        assert reply.error()["code"] == "engine_failed"
        assert [len(engine.received) for engine in world.engines] == [1, 1, 1]
        assert world.spent() == 0

    play(story, fault, fault, fault)


def test_the_last_engines_own_error_is_passed_on() -> None:
    async def story(world: World) -> None:
        reply = await world.ask()
        assert (reply.status, reply.body) == (500, b'{"error":{"message":"EngineDeadError"}}')

    play(story, broken)


def test_an_engine_that_does_not_listen_any_more_is_passed_over() -> None:
    async def story(world: World) -> None:
        world.engines[0].stop()
        for _ in range(4):
            assert (await world.ask()).status == 200
        states = json.loads((await world.get("/workers")).body)["workers"]
        assert [state["up"] for state in states] == [False, True]

    play(story, good, good, policy="round-robin")


def test_an_idle_connection_the_engine_has_closed_costs_no_retry() -> None:
    """Engines close idle connections after 5 s; the request that finds out just goes again."""

    async def close_afterwards(received: Received) -> None:
        await good(received)
        await asyncio.sleep(0.02)
        received.writer.close()

    async def story(world: World) -> None:
        for _ in range(3):
            assert (await world.ask()).status == 200
        assert world.gateway.dispatcher.retries == 0

    play(story, close_afterwards)


def test_a_request_that_breaks_engines_is_not_sent_to_one_for_ever() -> None:
    """A kept connection that breaks may just have been idle too long: one more try, and no third."""

    async def fatal(received: Received) -> None:
        await (break_off if b"fatal" in received.body else good)(received)

    async def story(world: World) -> None:
        assert (await world.ask()).status == 200  # now there is a connection to keep
        reply = await world.ask(body=chat(user="fatal"))

        assert reply.status == 502
        assert len(world.received()) == 1 + 2
        assert (await world.ask()).status == 200

    play(story, fatal)


def test_a_failure_in_mid_stream_ends_the_stream_with_an_error_event() -> None:
    """The caller keeps what it got, pays for that, and can tell that it was not the end."""

    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=True))
        reply = await caller.reply()
        *deltas, last = reply.body.removesuffix(b"\n\n").split(b"\n\n")

        assert b"\n\n".join(deltas) + b"\n\n" == b"".join(events(usage=False)[:3])
        error = json.loads(last.removeprefix(b"data: "))["error"]
        assert (error["code"], error["type"]) == ("engine_failed", "server_error")
        assert world.spent() == max(1, len(b"m\0\0user\0hi") // 4) + 2 * 2
        assert len(world.received()) == 1
        caller.send("/health")  # the connection is still good
        assert (await caller.reply()).status == 200

    play(story, die_in_mid_stream, die_in_mid_stream)


def test_a_hanging_engine_is_given_up_at_the_time_limit() -> None:
    async def story(world: World) -> None:
        reply = await world.ask()

        assert (reply.status, reply.error()["code"]) == (504, "engine_timeout")
        await asyncio.wait_for(world.engines[0].left.wait(), 1)

    play(story, hang, request_timeout_secs=0.3)


def test_an_engine_that_fails_its_probes_gets_no_requests_and_loses_those_that_wait() -> None:
    async def story(world: World) -> None:
        hanging, sound = world.engines
        callers = [await world.connect() for _ in range(2)]
        for caller in callers:
            caller.send(CHAT, chat())
        await eventually(lambda: len(hanging.received) == 1)
        hanging.healthy = False

        assert [(await caller.reply()).status for caller in callers] == [200, 200]
        assert (len(hanging.received), len(sound.received)) == (1, 2)
        assert (await world.ask()).status == 200
        hanging.healthy = True
        await eventually(lambda: world.gateway.dispatcher.workers[hanging.url].up)

    play(
        story, hang, good,
        policy="round-robin", health_check_interval_secs=0.05, health_failure_threshold=2,
    )  # fmt: skip


def test_without_an_engine_the_answer_is_503_and_readiness_says_so() -> None:
    async def story(world: World) -> None:
        assert (await world.get("/readiness")).status == 200
        world.engines[0].stop()
        replies = [await world.ask(), await world.ask(), await world.get("/v1/models")]

        assert [(reply.status, reply.headers["retry-after"]) for reply in replies] == [
            (503, "1")
        ] * 3
        assert (await world.get("/readiness")).status == 503
        assert (await world.get("/health")).status == 200

    play(story, good)


def test_an_engine_can_be_replaced_while_requests_wait_for_it() -> None:
    """A restarted engine has another port: the new one is added, the old one removed."""

    async def story(world: World) -> None:
        replacement = await FakeEngine(good).start()
        caller = await world.connect()
        caller.send(CHAT, chat())
        await eventually(lambda: len(world.received()) == 1)
        world.gateway.add_worker(replacement.url)
        await eventually(lambda: world.gateway.dispatcher.workers[replacement.url].up)
        world.gateway.remove_worker(world.engines[0].url)

        assert (await caller.reply()).status == 200
        assert list(world.gateway.dispatcher.workers) == [replacement.url]
        replacement.stop()

    play(story, hang)


def test_models_of_all_engines_are_listed_once() -> None:
    async def story(world: World) -> None:
        listed = json.loads((await world.get("/v1/models")).body)
        assert [model["id"] for model in listed["data"]] == ["m"]

    play(story, good, good)


# -- callers that leave


@pytest.mark.parametrize("script", [hang, hang_after_head, endless])
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("politely", [True, False])
def test_an_engine_stops_within_a_second_of_its_caller_leaving(
    script: Script, stream: bool, politely: bool
) -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=stream))
        await eventually(lambda: len(world.received()) == 1)
        await asyncio.sleep(0.05)
        if politely:
            caller.writer.close()
        else:
            caller.reset()

        await asyncio.wait_for(world.engines[0].left.wait(), 1)
        if script is hang:
            assert world.spent() == 0

    play(story, script)


def test_nothing_is_lost_when_everything_fails_at_once() -> None:
    """
    Three engines that break in every way, 300 callers of whom every third leaves early: each that
    stays gets an answer, and afterwards no engine is thought to be busy.
    """
    rng = random.Random(7)
    faults = [
        break_off,
        reset,
        half_a_head,
        half_a_body,
        broken,
        die_in_mid_stream,
        an_empty_stream,
    ]

    async def unreliable(received: Received) -> None:
        await asyncio.sleep(rng.random() * 0.02)
        await (rng.choice(faults) if rng.random() < 0.3 else good)(received)

    async def one(world: World, number: int, client: str) -> int:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=number % 2 == 0, user=client))
        if number % 3 == 0:
            await asyncio.sleep(rng.random() * 0.05)
            caller.reset()
            return 0
        reply = await caller.reply()
        caller.writer.close()
        return reply.status

    async def story(world: World) -> None:
        statuses = await asyncio.gather(
            *(one(world, number, rng.choice("abc")) for number in range(300))
        )
        stayed = [status for number, status in enumerate(statuses) if number % 3]
        assert set(stayed) <= {200, 500, 502, 503}
        assert stayed.count(200) > len(stayed) * 0.8
        await eventually(lambda: not world.gateway._exchanges)
        router = world.gateway.dispatcher.router
        assert isinstance(router, D2LPM)
        for name, worker in world.gateway.dispatcher.workers.items():
            assert not worker.tickets
            assert not worker.up or router.outstanding(name) == 0

    play(story, *[unreliable] * 3, identify_by_user=True)


def test_shutting_down_finishes_what_is_under_way() -> None:
    release = asyncio.Event()

    async def finish_later(received: Received) -> None:
        await release.wait()
        await good(received)

    async def story(world: World) -> None:
        caller = await world.connect()
        idle = await world.connect()
        caller.send(CHAT, chat(stream=True))
        await eventually(lambda: len(world.received()) == 1)
        stopping = asyncio.ensure_future(world.gateway.stop())
        await asyncio.sleep(0.05)
        release.set()

        assert (await caller.reply()).body.endswith(b"[DONE]\n\n")
        assert await idle.reader.read() == b""
        await stopping
        with pytest.raises(ConnectionRefusedError):
            await world.connect()

    play(story, finish_later)
