"""A bug of ours in one request: it is answered, settled, and nothing beside it or behind it is lost."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.wire.recording import Wire

from fairhit.core.request import WorkerId
from fairhit.dispatch import Ticket, TicketState
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.api.request_body import ParsedBody
from fairhit.gateway.http.client_connection import ClientConnection
from fairhit.gateway.http.engine_connection import EngineConnection, EngineConnections
from fairhit.gateway.proxy import admission
from fairhit.gateway.server import Gateway
from fairhit.gateway.settings import GatewaySettings

ENGINE = "http://127.0.0.1:9"
SAID = (
    b'{"choices":[{"message":{"content":"so"}}],"usage":{"prompt_tokens":5,"completion_tokens":7}}'
)
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
    len(SAID),
    SAID,
)
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"so"}}]}\n\n'
STREAM = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"%x\r\n%b\r\n0\r\n\r\n" % (len(EVENT), EVENT)
)
SECRET = "what only the prompt says"


class CallerWire(Wire):
    """What a caller has received."""

    def __init__(self) -> None:
        super().__init__()
        self.received = b""

    def write(self, data: Any) -> None:
        self.received += data

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1)

    def statuses(self) -> list[int]:
        return [int(part[:3]) for part in self.received.split(b"HTTP/1.1 ")[1:]]


class Played:
    """A gateway before an engine that answers when the test says so; nothing else is played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.gateway = Gateway(GatewaySettings(worker_urls=(), max_engine_requests=2))
        self.gateway._loop = asyncio.get_running_loop()
        self.gateway.dispatcher.engine_up(ENGINE)
        engine = EngineConnections(ENGINE)
        monkeypatch.setattr(self.gateway.pool, "engine", lambda _: engine)
        self.asked = [EngineConnection(engine) for _ in range(4)]
        for connection in self.asked:
            connection.connection_made(Wire())
            engine.give_back(connection)
        self.wire = CallerWire()
        self.caller = ClientConnection(self.gateway)
        self.caller.connection_made(self.wire)

    def send(self, *bodies: bytes) -> None:
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b"
        self.caller.data_received(b"".join(head % (len(body), body) for body in bodies))

    async def answer(self, data: bytes) -> None:
        """The engine says this, and what waits behind the answer has its turn."""
        (connection,) = [one for one in self.asked if one._response.listener is not None]
        connection.data_received(data)
        await asyncio.sleep(0)

    def tickets(self) -> list[Ticket]:
        return [one.ticket for one in self.gateway.exchanges.values()]

    def check_settled(self) -> None:
        """No caller has anything at the engine."""
        dispatcher = self.gateway.dispatcher
        worker = dispatcher.engines[WorkerId(ENGINE)]
        assert (self.tickets(), worker.tickets) == ([], set())
        assert worker.limit is not None and worker.limit.in_flight == 0
        assert dispatcher.ledger.in_flight("anonymous") == 0


Test = Callable[[Played], Coroutine[Any, Any, None]]
Run = Callable[[Test], None]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    async def story(test: Test) -> None:
        await test(Played(monkeypatch))

    return lambda test: asyncio.run(story(test))


def body(text: str = "hi", *, stream: bool = False) -> bytes:
    said = b"true" if stream else b"false"
    return b'{"messages":[{"role":"user","content":"%b"}],"stream":%b}' % (text.encode(), said)


def fails(*_: Any, **__: Any) -> None:
    raise KeyError("broken")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], None]]:
    """What is done as a request is read that says SECRET, of which then a bug is raised."""
    reads, done = admission.parse_body, list[Callable[[], None]]()

    def parse_body(given: bytes, endpoint: Endpoint) -> ParsedBody:
        if SECRET.encode() in given:
            for each in done:
                each()
            raise KeyError(given)
        return reads(given, endpoint)

    monkeypatch.setattr(admission, "parse_body", parse_body)
    return done


@pytest.mark.parametrize(
    ("stream", "answer"), [(False, WHOLE), (True, STREAM)], ids=["whole", "stream"]
)
def test_those_around_a_request_that_finds_a_bug_are_answered(
    run: Run, read: list[Callable[[], None]], stream: bool, answer: bytes
) -> None:
    """By the time it is handled the one before must be settled."""
    before: list[TicketState] = []

    async def test(played: Played) -> None:
        played.send(body(stream=stream), body(SECRET), body())
        (ticket,) = played.tickets()
        read.append(lambda: before.append(ticket.state))
        await played.answer(answer)
        assert played.wire.statuses() == [200, 500]
        await played.answer(WHOLE)  # the third is with the engine
        assert played.wire.statuses() == [200, 500, 200]
        played.check_settled()

    run(test)
    assert before == [TicketState.ENDED]


@pytest.mark.usefixtures("read")
def test_a_bug_is_said_in_one_line_that_has_nothing_of_the_prompt(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(played: Played) -> None:
        played.send(body(SECRET))
        assert played.wire.statuses() == [500]
        assert b'"internal error"' in played.wire.received
        played.send(body())
        await played.answer(WHOLE)
        assert played.wire.statuses() == [500, 200]

    run(test)
    (line,) = caplog.messages
    assert line.startswith("a request: KeyError at ") and "test_our_bugs.py:" in line
    assert SECRET not in line


def test_who_is_refused_in_time_is_settled_before_the_next_is_read(
    run: Run, read: list[Callable[[], None]]
) -> None:
    before: list[TicketState] = []

    async def test(played: Played) -> None:
        played.send(body(), body(SECRET))
        (ticket,) = played.tickets()
        read.append(lambda: before.append(ticket.state))
        played.caller.tick(1e12)
        await asyncio.sleep(0)
        assert played.wire.statuses() == [504, 500]
        played.check_settled()

    run(test)
    assert before == [TicketState.ENDED]


@pytest.mark.parametrize(
    ("stream", "answer"), [(False, WHOLE), (True, STREAM)], ids=["whole", "stream"]
)
@pytest.mark.parametrize("broken", ["finished", "on_finished", "on_answer_text"])
def test_accounts_that_fail_keep_no_answer_back(
    *,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    stream: bool,
    answer: bytes,
    broken: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(played: Played) -> None:
        part = played.gateway.dispatcher if broken == "finished" else played.gateway
        monkeypatch.setattr(part, broken, fails)
        played.send(body(stream=stream), body())
        await played.answer(answer)
        assert played.wire.statuses() == [200]
        assert len(played.tickets()) == 1  # the second
        assert not any(one.is_open is False for one in played.asked)

    run(test)
    assert ["KeyError at " in line for line in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("stream", "answer", "broken"), [(False, WHOLE, "write_whole"), (True, STREAM, "end_stream")]
)
def test_an_answer_that_cannot_be_given_is_settled(
    run: Run, monkeypatch: pytest.MonkeyPatch, stream: bool, answer: bytes, broken: str
) -> None:
    async def test(played: Played) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(ClientConnection, broken, fails)
            played.send(body(stream=stream))
            await played.answer(answer)
        played.check_settled()

    run(test)


def test_a_request_that_cannot_be_sent_leaves_nothing_behind(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(played: Played) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(EngineConnections, "take", fails)
            played.send(body())
        assert played.wire.statuses() == [500]
        played.check_settled()
        played.send(body())
        await played.answer(WHOLE)
        assert played.wire.statuses() == [500, 200]

    run(test)
