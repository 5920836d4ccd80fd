"""What works: streams, whole answers, kept and pipelined connections, slow readers."""

import asyncio
import contextlib
import json
import socket

import pytest

from fairhit.gateway.http import client_connection as caller_module
from tests.e2e.gateway.scripts import (
    USAGE,
    Received,
    begin_stream,
    chat,
    chunk,
    events,
    good,
    whole,
)
from tests.e2e.gateway.world import (
    CHAT,
    World,
    eventually,
    play,
    turns,
)


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

        unusual = {"include_usage": False, "continuous_usage_stats": True}
        odd = chat(stream=True, stream_options=unusual)
        assert (await world.ask(body=odd)).body == b"".join(events(usage=False))
        assert world.received()[2].json()["stream_options"] == unusual

    play(story, good)


def test_a_whole_answer_is_settled_by_its_usage() -> None:
    async def story(world: World) -> None:
        reply = await world.ask()

        assert json.loads(reply.body)["usage"] == USAGE
        assert world.spent() == 18 + 2 * 3
        assert (
            b'fairhit_cached_tokens_total{client="anonymous"} 32.0'
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


def test_who_still_sends_after_far_too_many_requests_gets_the_answers_to_those_taken() -> None:
    """The connection is not closed at once, which would reset it: the last answers could be lost."""

    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat()
        request = b"POST %b HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n\r\n" % (
            CHAT.encode(),
            len(body),
        )
        caller.writer.write(request + body)  # its head is known from here on
        assert (await caller.reply()).status == 200
        caller.writer.write((request + body) * 60)
        last = await caller.reply()
        while "connection" not in last.headers:
            last = await caller.reply()

        assert last.headers["connection"] == "close"
        (connection,) = world.gateway.connections
        assert connection._transport is not None and not connection._transport.is_closing()

    play(story, good)


def test_an_http_1_0_caller_gets_an_answer_without_chunks() -> None:
    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat(stream=True)
        head = f"POST {CHAT} HTTP/1.0\r\ncontent-length: {len(body)}\r\n\r\n"
        caller.writer.write(head.encode() + body)

        assert (await caller.reply()).body == b"".join(events(usage=False))

    play(story, good)


def test_a_caller_that_waits_for_100_continue_receives_it() -> None:
    """curl does, for bodies of a megabyte."""

    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat()
        head = f"POST {CHAT} HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
        head += f"content-length: {len(body)}\r\n\r\n"
        caller.writer.write(head.encode())
        assert await caller.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        caller.writer.write(body)

        assert (await caller.reply()).status == 200

    play(story, good)


@pytest.mark.parametrize(
    ("version", "expectation"), [("1.0", "100-continue"), ("1.1", "foo"), ("1.1", "100-continued")]
)
def test_no_other_caller_receives_100_continue(version: str, expectation: str) -> None:
    """HTTP/1.0 has no such answer, and other expectations are not known (RFC 9110, 10.1.1)."""

    async def story(world: World) -> None:
        caller = await world.connect()
        body = chat()
        head = f"POST {CHAT} HTTP/{version}\r\nhost: a\r\nexpect: {expectation}\r\n"
        caller.writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode())
        await eventually(lambda: any(one._reader.receiving for one in world.gateway.connections))
        caller.writer.write(body)

        assert (await caller.reply()).status == 200

    play(story, good)


def test_a_caller_that_would_rather_speak_http_2_is_answered_over_http_1_1() -> None:
    """Java's client sends this with every first request; it goes on as before if not upgraded."""

    async def story(world: World) -> None:
        caller = await world.connect()
        wish = {"connection": "Upgrade, HTTP2-Settings", "upgrade": "h2c", "HTTP2_Settings": "AA"}
        for _ in range(2):
            caller.send(CHAT, chat(), **wish)
            assert (await caller.reply()).status == 200
        assert "http2-settings" not in world.received()[0].head.lower()
        caller.writer.close()

    play(story, good)


def test_cookies_go_no_further() -> None:
    """They are a session with who is in front, and nothing that an engine's log should have."""

    async def story(world: World) -> None:
        await world.ask(cookie="session=secret", x_mine="kept")
        head = world.received()[0].head.lower()
        assert "cookie" not in head and "secret" not in head
        assert "x-mine: kept" in head

    play(story, good)


def test_small_packets_are_not_held_back() -> None:
    """Nagle's algorithm with delayed acknowledgements costs 40 ms a token."""

    async def story(world: World) -> None:
        caller = await world.connect()
        caller.send(CHAT, chat(stream=True))
        await caller.reply()
        (connection,) = world.gateway.connections
        idle = list(
            world.gateway.pool.engine(world.engines[0].url)._idle
        )  # a probe's may be among them
        assert idle
        for side in (connection, *idle):
            assert side._transport is not None
            opened = side._transport.get_extra_info("socket")
            assert opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        caller.writer.close()

    play(story, good)


def test_a_slow_reader_slows_its_engine_and_no_other() -> None:
    """An answer that is not read must not pile up in the gateway."""

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
        await eventually(lambda: any(one._paused for one in world.gateway.connections))
        (connection,) = world.gateway.connections
        assert connection._transport is not None
        (exchange,) = world.gateway.exchanges.values()
        await eventually(
            lambda: exchange._connection is not None and exchange._connection.is_paused
        )
        await turns()
        assert connection._transport.get_write_buffer_size() < 2 << 20
        assert (await world.get("/health")).status == 200
        caller.reset()
        await eventually(world.engines[0].left.is_set)

    play(story, flood)


@pytest.mark.parametrize("what", ["a stream", "pages", "a last answer"])
def test_who_stops_reading_does_not_hold_its_connection_for_ever(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closing waits until what was written has gone out, which may be never."""
    monkeypatch.setattr(caller_module, "_STUCK_S", 0.2)

    async def flood(received: Received) -> None:
        if what == "a last answer":
            whole(received, 200, b"x" * (16 << 20))
            return
        begin_stream(received)
        while True:
            chunk(received, b'data: {"x":"' + b"y" * 65536 + b'"}\n\n')
            await received.writer.drain()

    async def story(world: World) -> None:
        world.gateway.client_timeout_s = 0.2  # how often the gateway looks
        caller = await world.connect()
        caller.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
        if what == "pages":
            await eventually(lambda: len(world.gateway.connections) == 1)
            (connection,) = world.gateway.connections
            while not connection._paused:
                caller.send("/metrics")
                await asyncio.sleep(0)
        else:
            caller.send(CHAT, chat(stream=what == "a stream"), connection="close")
            await eventually(lambda: len(world.received()) == 1)
        await eventually(lambda: not world.gateway.connections)
        assert not world.gateway.exchanges

    play(story, flood, request_timeout_secs=0.5)
