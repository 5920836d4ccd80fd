"""Exchange: one request between its client and the engines, as the dispatcher decides.

The client gets nothing before the engine's first piece of body, so that until then the request can be
retried at another engine. A response in one piece is held until it is complete, for the same reason.
Charges are trued up before the next request of the connection is handled, even after a bug.
"""

from asyncio import TimerHandle
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Protocol

from fairhit.core.cache.token_blocks import BlockedTokens
from fairhit.dispatch import Dispatcher, Ticket, TicketState, Usage
from fairhit.errors import (
    EngineError,
    EngineFailed,
    FairhitError,
    GatewayFull,
    NoEngine,
    NotFound,
    QueueTimeout,
)
from fairhit.gateway.api.endpoints import Endpoint
from fairhit.gateway.api.endpoints.errors import status_of
from fairhit.gateway.api.request_body import Buffer
from fairhit.gateway.api.response_body import StreamedResponse, WholeResponse, read_end, read_whole
from fairhit.gateway.http.engine_connection import (
    ENGINE_FAULTS,
    EngineConnection,
    EngineConnections,
    Fault,
    is_local,
    reason_of,
)
from fairhit.gateway.http.read_budget import ITERATION
from fairhit.gateway.http.response_head import ResponseHead
from fairhit.gateway.observability.log_exceptions import log_exceptions
from fairhit.gateway.pool.engine_pool import EnginePool
from fairhit.gateway.proxy.incoming_request import IncomingRequest
from fairhit.gateway.proxy.interfaces import ResponseWriter
from fairhit.gateway.proxy.trace import Trace
from fairhit.routers.prefix_index.approximate import ChunkedText

# Length limit of a response in one piece; streams have none.
_MAX_WHOLE = 64 << 20
# Outputs of a stream that are charged together: the queue's shares are no finer than that.
_CHARGED = 16
# Status of a request whose client disconnected, as in nginx's log; it is sent to no one.
CLIENT_CLOSED = 499


class ProxyServices(Protocol):
    """Services shared by all exchanges: dispatcher, engine pool, retries, time limits, and observers."""

    dispatcher: Dispatcher
    pool: EnginePool
    exchanges: "dict[Ticket, Exchange]"  # those under way
    first_byte_timeout_s: float  # of a stream; 0: no limit, here and in the next
    idle_timeout_s: float

    def may_retry(self, ticket: Ticket, *, spends: bool) -> bool:
        """True if the next retry of `ticket` is granted; `spends`: the retry adds work for engines."""
        ...

    def retry_later(self, ticket: Ticket, send: Callable[[], None]) -> TimerHandle:
        """Call `send` after the backoff of the next retry."""
        ...

    def trace(self, request: IncomingRequest) -> Trace | None:
        """Begin the trace of a request, None if it is not sampled; its headers for the engine change."""
        ...

    def on_answer_text(self, exchange: "Exchange", text: str) -> None:
        """The engine has cached the prompt and this answer."""
        ...

    def on_finished(self, exchange: "Exchange", status: int) -> None:
        """The exchange is over, its charges are trued up; `status` was sent, or is CLIENT_CLOSED."""
        ...


class Exchange:
    """A request under way. Ends exactly once: answered, refused, failed, or left by its client."""

    __slots__ = (
        "_answer", "_body", "_connection", "_engine", "_has_data", "_head", "_hide_usage", "_paused",
        "_queue_timeout_s", "_queue_until", "_services", "_silent_since", "_streams", "_target", "_timer",
        "_writer", "arrived_s", "deadline", "endpoint", "first_s", "indexes_answer", "lines", "prompt",
        "sent_s", "ticket", "trace",
    )  # fmt: skip

    def __init__(
        self,
        *,
        services: ProxyServices,
        writer: ResponseWriter,
        ticket: Ticket,
        target: bytes,
        lines: bytes,
        body: Sequence[Buffer],
        hide_usage: bool,
        prompt: ChunkedText | BlockedTokens,
        endpoint: Endpoint,
        indexes_answer: bool,
        streams: bool,
        deadline: float,
        queue_timeout_s: float,
        trace: Trace | None = None,
    ) -> None:
        self.ticket = ticket
        # Times of arrival, of the last sending, of the first output; the last two 0 until then. By the
        # event loop's own clock, but to the microsecond.
        self.arrived_s, self.sent_s, self.first_s = monotonic(), 0.0, 0.0
        self.deadline = deadline
        self._queue_timeout_s = queue_timeout_s
        # Time limit of waiting for an engine with free capacity.
        self._queue_until = self.arrived_s + queue_timeout_s
        self._services = services
        self._writer: ResponseWriter | None = writer
        self._target = target
        self.lines = lines
        self._body = body
        self._hide_usage = hide_usage
        self.prompt = prompt
        self.endpoint = endpoint
        self.trace = trace
        self.indexes_answer = (
            indexes_answer  # the next prompt of a conversation can begin with the answer
        )
        self._streams = streams
        self._connection: EngineConnection | None = None
        self._engine: EngineConnections | None = None  # the one the request was sent to last
        self._timer: TimerHandle | None = None  # of the next retry
        self._paused = False  # the client reads slowly
        self._has_data = False  # the engine sent something since the last tick
        self._silent_since = 0.0
        self._head: ResponseHead | None = None
        self._answer: StreamedResponse | WholeResponse | None = None

    def ran_us(self) -> int:
        """Microseconds since the request was sent to its engine; at least 1."""
        return max(1, int((monotonic() - self.sent_s) * 1e6))

    # -- towards the engine

    def send(self, *, fresh: bool = False) -> None:
        """Send the request to its ticket's engine, over a new connection if `fresh`.

        Not called while the ticket is QUEUED: until an engine has free capacity the ticket has none.
        """
        self.sent_s = monotonic()
        engine = self._services.pool.engine(self.ticket.worker)
        connection = None if fresh else engine.take()
        if connection is not None:
            self._ask(engine, connection)
        else:
            engine.spawn(self._connect(engine))

    async def _connect(self, engine: EngineConnections) -> None:
        try:
            connection = await engine.connect()
        except (OSError, ValueError) as error:  # ValueError: a name no resolver accepts
            if self._awaits(engine):
                self._unconnected(engine, error)
            return
        if self._awaits(engine):
            self._ask(engine, connection)
        else:
            engine.give_back(connection)

    def _unconnected(self, engine: EngineConnections, error: Exception) -> None:
        if is_local(error):
            self._fail(GatewayFull(f"this gateway can open no connection: {reason_of(error)}"))
            return
        self._services.pool.count_fault(engine.url, Fault.CONNECT)
        if isinstance(error, TimeoutError):  # one timeout is not an outage: probes decide
            self._fail()
        else:
            self._services.pool.mark_down(engine.url)

    def _awaits(self, engine: EngineConnections) -> bool:
        """True if the request still waits for a connection to `engine`."""
        waits = self._writer is not None and self._connection is None
        return waits and self.ticket.worker == engine.url

    def _ask(self, engine: EngineConnections, connection: EngineConnection) -> None:
        self._connection = connection
        self._engine = engine
        self._has_data = True  # the idle timeout begins now
        head = engine.head(self._target, self.lines, sum(map(len, self._body)))
        connection.send(self, [head, *self._body])
        if self._paused:
            connection.pause()

    def move(self) -> None:
        """Retry at the next engine: this one is down, and no output was sent."""
        self._drop()
        self._fail()

    # -- from the engine

    def on_head(self, head: ResponseHead) -> None:
        if head.status in ENGINE_FAULTS:
            self._services.pool.count_fault(self.ticket.worker, Fault.STATUS)
            if self._may_retry(spends=True):
                self.move()
                return
        elif head.status == 404 and self._is_elsewhere():
            self.move()
            return
        self._head = head
        if head.status == 200 and head.content_type.startswith(b"text/event-stream"):
            self._answer = StreamedResponse(self.endpoint, hide_usage=self._hide_usage)
        else:
            self._answer = WholeResponse()

    def on_data(self, data: bytes) -> None:
        self._has_data = True
        answer = self._answer
        if isinstance(answer, StreamedResponse):
            data = answer.feed(data)
            if self.ticket.state is TicketState.STARTED and self._writer is not None:
                if data:
                    self._writer.write_stream(None, data)
                if answer.output_len - self.ticket.output_len >= _CHARGED:
                    self._services.dispatcher.emitted(self.ticket, answer.output_len)
            else:
                self._stream(data)
            return
        assert answer is not None
        answer.feed(data)
        if answer.length > _MAX_WHOLE and self._head is not None:  # as it would be elsewhere
            self._drop()
            log_exceptions(self._true_up_dropped, self._head.status, answer.length)
            less = "ask for less at once, or for a stream"
            self._end(502).write_error(
                EngineFailed(f"the answer is over {_MAX_WHOLE} bytes: {less}")
            )

    def on_end(self) -> None:
        self._connection = None
        answer, head = self._answer, self._head
        assert answer is not None and head is not None
        if isinstance(answer, StreamedResponse):
            self._end_stream(answer)
            return
        if answer.length > ITERATION:
            self._end_long(answer, head)
            return
        body = answer.body()
        try:
            self._finish().write_whole(head, body)  # before accounting, which takes time
        finally:
            counts = head.status == 200 and self.endpoint.charged
            self._true_up(head.status, read_whole(self.endpoint, body) if counts else (None, None))

    def on_lost(self, *, stale: bool) -> None:
        self._connection = None
        if stale:
            # Most likely the engine closed it while idle. A new one cannot be stale: a request that
            # breaks engines is not sent a third time.
            self.send(fresh=True)
            return
        self._services.pool.count_fault(self.ticket.worker, Fault.BROKEN)
        self._fail()

    # -- from the client and the clock

    def on_disconnect(self) -> None:
        """The client disconnected: closing the engine's connection makes the engine abort."""
        self._abandon(CLIENT_CLOSED)

    def tick(self, now: float) -> None:
        if self.ticket.state is TicketState.QUEUED:
            if now > min(self.deadline, self._queue_until):
                self._on_queue_timeout()
        elif now > self.deadline:
            if self._connection is not None and self.ticket.state is TicketState.WAITING:
                self._services.pool.count_fault(self.ticket.worker, Fault.TIMEOUT)
            self.stop(EngineFailed("the engine did not answer in time"), status=504)
        elif self._has_data or self._connection is None or self._connection.is_paused:
            self._has_data = False
            self._silent_since = now
        elif now - self._silent_since > (self._silence_limit_s() or now):
            self._on_silence()

    def _on_queue_timeout(self) -> None:
        if self._services.dispatcher.queue.is_full:
            self.stop(QueueTimeout("too many requests were in flight for too long"), status=408)
        else:
            self.stop(NoEngine("no engine had free capacity in time"), status=503)

    def stop(self, error: FairhitError, *, status: int) -> None:
        self._abandon(status).write_error(error, status=status)

    def pause(self) -> None:
        self._paused = True
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        self._paused = False
        if self._connection is not None:
            self._connection.resume()

    # -- inside

    def _stream(self, data: bytes) -> None:
        if not data:
            return
        assert self._writer is not None
        head = None
        if self.ticket.state is TicketState.WAITING:
            self.first_s = monotonic()
            self._services.dispatcher.started(self.ticket)
            head = self._head
            self._body = ()  # it will not be sent again
        self._writer.write_stream(head, data)

    def _end_stream(self, answer: StreamedResponse) -> None:
        self._stream(answer.rest())
        if self.ticket.state is TicketState.WAITING:
            self._services.pool.count_fault(self.ticket.worker, Fault.BROKEN)
            self._fail()  # a stream without a single event is no response
            return
        try:
            self._finish().end_stream()
        finally:
            self._count(answer)
            self._true_up(200, (answer.usage, answer.text() if self.indexes_answer else None))

    def _end_long(self, answer: WholeResponse, head: ResponseHead) -> None:
        """End a response that is too long to be joined or parsed: either takes as long as 1,000 requests."""
        pieces, ticket, dispatcher = answer.pieces(), self.ticket, self._services.dispatcher
        try:
            self._finish().write_whole(head, pieces[0], pieces[1:])
        finally:
            usage = None
            if head.status == 200 and self.endpoint.charged:
                usage = read_end(self.endpoint, pieces)
                if usage is None and self.endpoint.limits:
                    by_length = dispatcher.scale.tokens(answer.length)
                    ticket.output_len = min(by_length, ticket.request.max_tokens)
            self._true_up(head.status, (usage, None))

    def _true_up(self, status: int, found: tuple[Usage | None, str | None]) -> None:
        """Charge the response, by the usage and text `found` in it. An error is not charged, nor is a path
        that runs no model. The exchange is over even after a bug.
        """
        assert self._engine is not None, "the request was sent"
        (usage, text), dispatcher, ran_us = found, self._services.dispatcher, self.ran_us()
        try:
            if status not in ENGINE_FAULTS:
                self._engine.breaker.succeeded()
            if status == 200 and self.endpoint.charged:
                dispatcher.finished(self.ticket, usage, ran_us=ran_us)
            else:
                dispatcher.refused(self.ticket)
            if text and self.indexes_answer:
                self._services.on_answer_text(self, text)
        finally:
            self._services.on_finished(self, status)

    def _true_up_dropped(self, status: int, length: int) -> None:
        """Charge a response of at least `length` bytes that was dropped although its engine computed it.

        If the endpoint generates text, the charge is for the output tokens of a text of that length, at most
        max_tokens.
        """
        dispatcher, ticket = self._services.dispatcher, self.ticket
        if status != 200 or not self.endpoint.charged:
            dispatcher.refused(ticket)
            return
        if self.endpoint.limits:
            ticket.output_len = min(dispatcher.scale.tokens(length), ticket.request.max_tokens)
        dispatcher.finished(ticket, None, ran_us=self.ran_us())

    def _abandon(self, status: int) -> ResponseWriter:
        """End the exchange without a response of the engine."""
        asked = self._connection is not None and self.endpoint.charged
        ran_us = self.ran_us() if asked else 0
        self._drop()
        log_exceptions(self._services.dispatcher.cancelled, self.ticket, ran_us=ran_us)
        return self._end(status)

    def _silence_limit_s(self) -> float:
        """Time limit between two pieces of the response; a response in one piece has none before its head."""
        if self._streams and self.ticket.state is TicketState.WAITING:
            return self._services.first_byte_timeout_s
        return self._services.idle_timeout_s if self._head is not None else 0

    def _on_silence(self) -> None:
        """The engine has sent nothing for too long: retry at another, where that is still possible."""
        self._services.pool.count_fault(self.ticket.worker, Fault.TIMEOUT)
        if self._may_retry(spends=True):
            self.move()
        else:
            self.stop(EngineFailed("the engine sent nothing for too long"), status=504)

    def _is_elsewhere(self) -> bool:
        """True if another engine is to be tried after a 404: this one may have unloaded the model.

        Once, since most requests with this response would get it anywhere.
        """
        assert self._engine is not None, "the request was sent"
        self._engine.on_unknown_model()
        return not self.ticket.tried and self._may_retry(spends=False)

    def _may_retry(self, *, spends: bool) -> bool:
        can = self._services.dispatcher.can_retry(self.ticket)
        return can and self._services.may_retry(self.ticket, spends=spends)

    def _fail(self, why: GatewayFull | None = None) -> None:
        """Retry at the next engine, where there is one; `why`: the error if the engine is not to blame."""
        dispatcher = self._services.dispatcher
        if (
            self.ticket.state is TicketState.WAITING
        ):  # if it is queued again, its time limit begins anew
            self._queue_until = monotonic() + self._queue_timeout_s
        if isinstance(self._answer, StreamedResponse):
            self._count(self._answer)
        if dispatcher.can_retry(self.ticket) and not self._may_retry(spends=False):
            dispatcher.refused(self.ticket)
            self._give_up(why or EngineFailed("the engine failed; there are no more retries"))
            return
        try:
            dispatcher.failed(self.ticket)
        except (EngineError, NotFound) as error:
            self._give_up(why or error)
            return
        self._answer = self._head = None
        if self.ticket.state is TicketState.WAITING:
            self._timer = self._services.retry_later(self.ticket, self.send)

    def _give_up(self, error: FairhitError) -> None:
        self._end(status_of(error)).write_error(error)

    def _drop(self) -> None:
        """Close the connection to the engine, or do not make it; count the outputs so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._connection is not None:
            self._connection.cancel(self)
            self._connection = None
        if isinstance(self._answer, StreamedResponse):
            self._count(self._answer)

    def _count(self, answer: StreamedResponse) -> None:
        """Estimate the outputs of a stream that has ended without usage."""
        most = self.ticket.request.max_tokens
        self.ticket.output_len = answer.counted(self._services.dispatcher.scale, most=most)

    def _end(self, status: int) -> ResponseWriter:
        """End the exchange, whose charges are trued up, with a response of the gateway's own."""
        writer = self._finish()
        log_exceptions(self._services.on_finished, self, status)
        return writer

    def _finish(self) -> ResponseWriter:
        writer, self._writer = self._writer, None
        assert writer is not None, "an exchange ends once"
        del self._services.exchanges[self.ticket]
        return writer
