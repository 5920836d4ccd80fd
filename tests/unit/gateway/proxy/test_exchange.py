"""A request between a caller and an engine that are both played: what is charged, and to whom."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from errno import ECONNREFUSED, EMFILE
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.wire.recording import Wire

from fairhit.core.request import Request
from fairhit.dispatch import Dispatcher, QueueRules, Ticket, TicketState
from fairhit.gateway.api.endpoints import Endpoint, endpoint_of
from fairhit.gateway.api.response_body import WholeResponse
from fairhit.gateway.http.accept.connections import Connections
from fairhit.gateway.http.client_connection import ClientConnection, Site
from fairhit.gateway.http.engine_connection import EngineConnection, EngineConnections
from fairhit.gateway.http.head_cache import HeadCache
from fairhit.gateway.http.read_budget import ITERATION, ReadBudget
from fairhit.gateway.http.response_head import ResponseHead
from fairhit.gateway.proxy.exchange import Exchange, ProxyServices
from fairhit.gateway.proxy.incoming_request import BodyBudget, RequestHead
from fairhit.routers.d2lpm import D2LPM
from fairhit.routers.prefix_index.approximate import ApproximatePrefixIndex, ChunkedText

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"so"}}]}\n\n'


class Clock:
    """The loop's, as far as an exchange asks it."""

    now = 0.0


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr("fairhit.gateway.proxy.exchange.monotonic", lambda: made.now)
    return made


class NotedWire(Wire):
    """What the engine would receive."""

    def __init__(self, calls: list[str]) -> None:
        super().__init__()
        self._calls = calls

    def write(self, data: object) -> None:
        self._calls.append("send")

    def pause_reading(self) -> None:
        self._calls.append("pause")


class Played:
    """Stands for caller and host at once, with engines that say nothing; whatever is called is noted."""

    def __init__(self, *workers: str, window: int = 1, connected: bool = True) -> None:
        self.calls: list[str] = []
        self.order = 0
        rules = QueueRules(max_engine_requests=window)
        self.dispatcher = Dispatcher(
            router=D2LPM(), index=ApproximatePrefixIndex(), rules=rules, on_ready=lambda _: None
        )
        self.first_byte_timeout_s = self.idle_timeout_s = 0.0
        self.exchanges: dict[Ticket, Exchange] = {}
        self.pool = self
        self.engines = {url: EngineConnections(url) for url in workers or ("http://w",)}
        for url, engine in self.engines.items():
            self.dispatcher.engine_up(url)
            if connected:
                connection = EngineConnection(engine)
                connection.connection_made(NotedWire(self.calls))
                engine.give_back(connection)

    def engine(self, url: str) -> EngineConnections:
        return self.engines[url]

    def may_retry(self, _: Ticket, **__: Any) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: self.calls.append(name)

    def ticket(self, *, streams: bool) -> Ticket:
        self.order += 1
        order = self.order
        prompt = ChunkedText().extended(b"x" * 400).chunks
        request = Request(
            id=str(order), client="a", prompt=prompt, input_len=100, max_tokens=500, order=order
        )
        return self.dispatcher.arrive(request, model=None, text_len=400, streams=streams)

    def exchange(self, *, streams: bool, changed: Endpoint | None = None) -> Exchange:
        endpoint = endpoint_of(b"/v1/chat/completions")
        assert endpoint is not None
        exchange = Exchange(
            services=cast("ProxyServices", self),
            writer=self,
            ticket=self.ticket(streams=streams),
            target=b"/v1/chat/completions",
            lines=b"",
            body=(b"{}",),
            hide_usage=False,
            prompt=ChunkedText(),
            endpoint=changed or endpoint,
            indexes_answer=True,
            streams=streams,
            deadline=1e9,
            queue_timeout_s=30.0,
        )
        self.exchanges[exchange.ticket] = exchange
        return exchange


def head(content_type: bytes) -> ResponseHead:
    made = ResponseHead()
    made.status, made.content_type = 200, content_type
    return made


def streaming(played: Played) -> Exchange:
    exchange = played.exchange(streams=True)
    exchange.send()
    exchange.on_head(head(b"text/event-stream"))
    exchange.on_data(EVENT)
    assert exchange.ticket.state is TicketState.STARTED
    return exchange


CREATED = b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n'
PROGRESS = CREATED.replace(b"created", b"in_progress")
ADDED = b'event: response.output_item.added\ndata: {"item":{}}\n\n'


def test_what_greets_is_not_an_answer_begun(clock: Clock) -> None:
    """Engines say that a response is created before it is in their queue: who runs is not known by that."""
    played = Played("http://v", "http://w")
    written: list[tuple[object, bytes]] = []
    played.write_stream = lambda *said: written.append(said)  # type: ignore[attr-defined]
    exchange = played.exchange(streams=True, changed=endpoint_of(b"/v1/responses"))
    exchange.send()
    first, began = exchange.ticket.worker, head(b"text/event-stream")
    exchange.on_head(began)
    exchange.on_data(CREATED)
    exchange.on_data(PROGRESS)

    assert (exchange.ticket.state, exchange.first_s, written) == (TicketState.WAITING, 0.0, [])
    limit = played.dispatcher.engines[first].limit
    assert limit is not None and exchange.ticket.number in limit._unseen
    exchange.on_end()  # and that was all: the other one is asked
    assert (exchange.ticket.state, exchange.ticket.worker != first) == (TicketState.WAITING, True)
    clock.now = 5.0
    exchange.on_head(began)
    exchange.on_data(CREATED)
    exchange.on_data(PROGRESS + ADDED)
    exchange.on_data(ADDED)

    assert (exchange.ticket.state, exchange.first_s) == (TicketState.STARTED, 5.0)
    assert written == [(began, CREATED + PROGRESS + ADDED), (None, ADDED)]


def test_outputs_are_charged_while_they_stream() -> None:
    """Or a client with one endless answer would look as if it had had nothing."""
    exchange = streaming(Played())
    for _ in range(100):
        exchange.on_data(EVENT)

    assert 101 - 16 < exchange.ticket.charged_len <= 101


SEVERAL = EVENT.replace(b"so", b"ten tokens of four bytes, on average....")
WORD = EVENT.replace(b"so", b"unlikely")


def leave(exchange: Exchange) -> None:
    exchange.on_disconnect()


def end_in_silence(exchange: Exchange) -> None:
    exchange.on_end()


def break_off(exchange: Exchange) -> None:
    exchange.on_lost(stale=False)


@pytest.mark.parametrize("end", [leave, end_in_silence, break_off])
@pytest.mark.parametrize(("event", "outputs"), [(SEVERAL, 1000), (WORD, 101), (EVENT, 101)])
def test_who_gets_several_tokens_in_an_event_pays_for_them(
    event: bytes, outputs: int, end: Callable[[Exchange], None]
) -> None:
    """Or who always leaves before the last event pays a tenth. A text of long tokens is not taken for it."""
    exchange = streaming(Played())
    for _ in range(100):
        exchange.on_data(event)
    end(exchange)

    assert exchange.ticket.state is TicketState.ENDED
    assert exchange.ticket.output_len == outputs


def waiting(played: Played) -> Exchange:
    exchange = played.exchange(streams=False)
    exchange.send()
    return exchange


def beginning(played: Played) -> Exchange:
    exchange = waiting(played)
    exchange.on_head(head(b"application/json"))
    return exchange


@pytest.mark.parametrize("begin", [waiting, beginning, streaming])
def test_the_engine_is_notified_in_the_very_call_that_says_its_caller_left(
    begin: Callable[[Played], Exchange],
) -> None:
    """No timer, no task, no look at the clock in between: the loop does not turn."""

    async def story() -> None:
        played, body = Played(), b'{"messages":[]}'
        exchange = begin(played)
        assert exchange._connection is not None
        wire = exchange._connection._transport
        assert isinstance(wire, Wire)
        site = SimpleNamespace(
            date=b"",
            max_payload_size=1000, body_budget=BodyBudget(), head_cache=HeadCache[RequestHead](),
            connections=Connections[ClientConnection](limit=lambda: 1),
            admit=lambda _: True, handle=lambda *_: exchange, read_budget=ReadBudget(),
        )  # fmt: skip
        connection = ClientConnection(cast("Site", site))
        connection.connection_made(Wire())
        connection.data_received(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b"
            % (len(body), body)
        )
        assert not wire.closed

        connection.connection_lost(None)

        assert wire.closed

    asyncio.run(story())


def test_an_answer_that_breaks_our_reader_is_settled_nevertheless() -> None:
    """Its caller has it already; what was left behind would keep a place in the engine for ever."""

    def broken(_: object) -> None:
        raise KeyError("usage")

    played = Played()
    endpoint = endpoint_of(b"/v1/chat/completions")
    assert endpoint is not None
    exchange = played.exchange(streams=False, changed=replace(endpoint, read_usage=broken))
    exchange.send()
    exchange.on_head(head(b"application/json"))
    exchange.on_data(b"{}")
    exchange.on_end()

    assert (exchange.ticket.state, played.calls[-1]) == (TicketState.ENDED, "on_finished")
    assert played.dispatcher.engines["http://w"].limit.in_flight == 0
    assert played.dispatcher.ledger.in_flight("a") == 0


def test_who_must_queue_again_is_not_too_late_at_once(clock: Clock) -> None:
    """It waits for room like anybody else, from when its engine failed it."""
    played = Played("http://v", "http://w")
    first, second = played.exchange(streams=False), played.exchange(streams=False)
    first.send()
    assert TicketState.QUEUED not in {first.ticket.state, second.ticket.state}
    clock.now = 100.0
    first.on_lost(stale=False)
    assert first.ticket.state is TicketState.QUEUED
    first.tick(129.0)
    assert first.ticket.state is TicketState.QUEUED
    first.tick(131.0)
    assert first.ticket.state is TicketState.ENDED
    assert played.calls[-2:] == ["on_finished", "write_error"]


def test_who_waits_when_an_engine_goes_has_waited_all_the_same(clock: Clock) -> None:
    played = Played("http://v", "http://w")
    played.exchange(streams=False), played.exchange(streams=False)
    queued = played.exchange(streams=False)
    assert queued.ticket.state is TicketState.QUEUED
    clock.now = 29.0
    queued.move()
    assert queued.ticket.state is TicketState.QUEUED
    queued.tick(31.0)
    assert queued.ticket.state is TicketState.ENDED


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OSError(EMFILE, "too many open files"), []),
        (TimeoutError(), ["count_fault"]),
        (ConnectionRefusedError(ECONNREFUSED, "refused"), ["count_fault", "mark_down"]),
    ],
)
def test_an_engine_is_down_only_if_it_says_so_itself(error: OSError, expected: list[str]) -> None:
    """A gateway out of sockets must not take all engines for down, and forget their caches."""

    async def refused(*_: Any, **__: Any) -> None:
        raise error

    async def story() -> None:
        asyncio.get_running_loop().create_connection = refused  # type: ignore[assignment, method-assign]
        exchange.send()
        for _ in range(3):
            await asyncio.sleep(0)

    played = Played("http://v", "http://w", connected=False)
    exchange = played.exchange(streams=False)
    first = exchange.ticket.worker
    asyncio.run(story())

    assert [call for call in played.calls if call in {"count_fault", "mark_down"}] == expected
    moved = exchange.ticket.worker != first
    assert moved != ("mark_down" in expected)  # then the host moves it, and all others there


@pytest.mark.parametrize(("caught_up", "expected"), [(False, ["send", "pause"]), (True, ["send"])])
def test_a_caller_that_read_slowly_before_its_engine_was_asked_still_does(
    caught_up: bool, expected: list[str]
) -> None:
    """The rest of an answer before may still be in its way."""
    played = Played()
    exchange = played.exchange(streams=True)
    exchange.pause()
    if caught_up:
        exchange.resume()
    exchange.send()

    assert played.calls[-len(expected) :] == expected


@pytest.mark.parametrize(
    ("end", "outputs"),
    [(b'"usage":{"prompt_tokens":100,"completion_tokens":7}}', 7), (b'"x":1}', 500)],
)
def test_a_long_answer_is_charged_by_its_usage_or_by_its_length(end: bytes, outputs: int) -> None:
    """It is not parsed; by its length it is charged for what was asked for at most."""
    played = Played()
    exchange = played.exchange(streams=False)
    exchange.send()
    exchange.on_head(head(b"application/json"))
    exchange.on_data(b'{"choices":[{"text":"')
    for _ in range(200):
        exchange.on_data(b"x" * (ITERATION // 128))
    exchange.on_data(b'"}],' + end)
    exchange.on_end()

    assert exchange.ticket.state is TicketState.ENDED
    assert exchange.ticket.output_len == outputs
    assert played.calls.count("write_whole") == 1
    assert "on_answer_text" not in played.calls


def test_a_long_answer_reaches_its_caller_in_the_pieces_it_came_in() -> None:
    """A body of small pieces is joined now and then: a list of them would cost more than they do."""
    answer = WholeResponse()
    for number in range(1000):
        answer.feed(b"%d," % number)

    assert b"".join(answer.pieces()) == answer.body() == b"".join(b"%d," % n for n in range(1000))
    assert len(answer.pieces()) < 100
    assert answer.length == len(answer.body())
